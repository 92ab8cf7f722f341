"""What every call has at hand, and whether its caller may make it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from askback.core.errors import Forbidden, NotFound, RefusalCode
from askback.core.runs import Run
from askback.core.views import run_view
from askback.core.webhooks import Webhook, WebhookKind
from askback.http.addresses import Addresses
from askback.http.auth import AccessScope, Grant
from askback.http.bodies import BodyLimits, BodyMemory
from askback.http.inputs import RunCreate, WebhookIn
from askback.http.links import Link, Links
from askback.http.metrics import Metrics
from askback.http.problems import as_json
from askback.http.quotas import Quotas
from askback.http.sessions import Sessions
from askback.http.streams import Streams
from askback.process.pools import Pools
from askback.process.uploads import Uploads
from askback.service import Service, Submission
from askback.store.base import IdempotencyKey
from askback.text.json_text import is_large


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    service: Service
    uploads: Uploads
    links: Links
    sessions: Sessions
    addresses: Addresses
    streams: Streams
    metrics: Metrics
    health: Callable[[], Any]
    bodies: BodyLimits
    body_memory: BodyMemory
    bundle_bytes: int
    quotas: Quotas

    @property
    def pools(self) -> Pools:
        return self.service.pools

    def run(self, run: Run) -> dict[str, Any]:
        """The run as callers see it; a queued one says why it is queued."""
        view = run_view(run)
        if (reason := self.service.queue_reason(run)) is not None:
            view["queue_reason"] = reason
        return view

    async def submission(self, body: RunCreate, key: str | None, grant: Grant) -> Submission:
        digest = None if key is None else await self._digest(body)
        if is_large(body.input):
            values, files = await self.pools.parsing.run(self.files_of, body.input)
        else:
            values, files = self.files_of(body.input)
        return Submission(
            skill=body.skill,
            by_path=False,
            engine=body.engine,
            mode=None if body.mode is None else body.mode.value,
            input=values,
            parameter=body.parameter,
            options=body.options,
            files=files,
            webhooks=tuple(_webhook(each) for each in body.webhooks),
            created_by=grant.name,
            most_open=self.quotas.of(grant).open_runs,
            key=None if key is None or digest is None else IdempotencyKey(key=key, body_digest=digest),
        )

    async def _digest(self, body: RunCreate) -> str:
        if is_large(body.input, body.parameter, body.options):
            return await self.pools.parsing.run(_digest, body)
        return _digest(body)

    def files_of(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, FilePath]]:
        """Inputs that are uploads, apart from the rest."""
        named = {key: value["upload_id"] for key, value in values.items() if _is_upload(value)}
        files = {key: self.uploads.path(upload_id) for key, upload_id in named.items()}
        return {key: value for key, value in values.items() if key not in files}, files


def _is_upload(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"upload_id"} and isinstance(value["upload_id"], str)


def _webhook(given: WebhookIn) -> Webhook:
    states = None if given.states is None else tuple(given.states)
    return Webhook(url=given.url, secret=given.secret, kind=WebhookKind(given.kind), states=states)


def _digest(body: RunCreate) -> str:
    """The same for two bodies that say the same, in whatever order and spacing."""
    document = {name: getattr(body, name) for name in RunCreate.model_fields if name != "webhooks"}
    document["webhooks"] = [webhook.model_dump(mode="json") for webhook in body.webhooks]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


class Allowed:
    """A dependency: the context, for callers whose token has one of these scopes. Checked before the body is read."""

    def __init__(self, *scopes: AccessScope) -> None:
        self.scopes = scopes

    # Not in a thread: it is faster than getting there.
    async def __call__(self, request: Request) -> Context:
        here: Context = request.app.state.context
        return here

    def check(self, request: Request) -> None:
        grant: Grant = request.scope["grant"]
        if not grant.allows(*self.scopes):
            wanted = " or ".join(f"'{scope}'" for scope in self.scopes)
            raise Forbidden(RefusalCode.SCOPE_MISSING, f"this token may not do that: it lacks the scope {wanted}")


class LinkHeld:
    """A dependency: the link to one question that the request came with. Checked before the body is read."""

    async def __call__(self, request: Request) -> Link:
        link: Link = request.scope["grant"].link
        return link

    def check(self, request: Request) -> None:
        if request.scope["grant"].link is None:
            raise NotFound(RefusalCode.INTERACTION_NOT_FOUND, "a link is used without a token")


Submitting = Annotated[Context, Depends(Allowed(AccessScope.SUBMIT))]
Uploading = Annotated[Context, Depends(Allowed(AccessScope.SUBMIT, AccessScope.ANSWER))]
Reading = Annotated[Context, Depends(Allowed(AccessScope.READ))]
ReadingQuestions = Annotated[Context, Depends(Allowed(AccessScope.READ, AccessScope.ANSWER))]
Answering = Annotated[Context, Depends(Allowed(AccessScope.ANSWER))]
Administering = Annotated[Context, Depends(Allowed(AccessScope.ADMIN))]
HeldLink = Annotated[Link, Depends(LinkHeld())]
SignedIn = Annotated[Context, Depends(Allowed(*AccessScope))]
"""Any token, whatever its scopes."""

RunPath = Annotated[str, Path(description="The run's id.", examples=["1m7gekfsksrgk77s"])]
Cursor = Annotated[str | SkipJsonSchema[None], Query(max_length=200, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200, description="How many at the most.", examples=[50])]


def answer(document: Any, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    return Response(as_json(document), status.value, headers, "application/json")
