"""The objects that every handler uses."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from askback.access.grants import Grant
from askback.access.push_subscriptions import Push
from askback.access.sessions import Invitations, Sessions
from askback.access.tokens import Tokens, TokenUses
from askback.background.pools import Pools
from askback.core import runs
from askback.core.access import AccessScope, Action, audit_entry
from askback.core.actors import Actor
from askback.core.errors import Forbidden, Invalid, RefusalCode
from askback.core.labels import read_labels
from askback.core.runs import parse_run_id
from askback.core.trace_context import read_trace_parent
from askback.core.webhooks import EVERY_DELIVERY, MIN_REQUESTED_SEC, DeliveryView, Reminders, Webhook, reminders_of
from askback.http.addresses import Addresses
from askback.http.auth import actor_of
from askback.http.bodies import BodyLimits, BodyMemory
from askback.http.quotas import MAIN, Quotas
from askback.http.streams import Streams
from askback.runs.links import Links
from askback.runs.service import Service
from askback.runs.submission import Submission
from askback.store.base import Store
from askback.store.pages import IdempotencyKey
from askback.telemetry.metrics import Metrics
from askback.text.json_text import is_large
from askback.wire.base import Shape, encode
from askback.wire.requests import FromRun, ReminderCreate, RunCreate, RunCreateHeaders, WebhookCreate
from askback.wire.runs import Run
from askback.wire.server import Health, Readiness, Worker
from askback.workspace.uploads import Uploads

_SAME = {each.name for each in fields(Submission)} & set(RunCreate.__struct_fields__) - {
    "skill",
    "mode",
    "input",
    "webhooks",
}
"""What a request says is the same in a submission. The others name uploads, or have settings as their defaults."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Context:
    service: Service
    uploads: Uploads
    links: Links
    sessions: Sessions
    tokens: Tokens
    """Without the server's own."""
    main_digest: str
    """Of the server's own token."""
    token_uses: TokenUses
    invitations: Invitations
    addresses: Addresses
    streams: Streams
    metrics: Metrics
    health: Callable[[], Awaitable[Health]]
    readiness: Callable[[], Awaitable[Readiness]]
    workers: Callable[[], Awaitable[Sequence[Worker]]]
    bodies: BodyLimits
    body_memory: BodyMemory
    bundle_bytes: int
    quotas: Quotas
    audit: AuditTrail
    reminders: Reminders
    """Of webhooks that name no others."""
    push: Push
    uploads_of: str | None = None
    """The name of a restricted token: it can use its own uploads alone."""

    def seen_by(self, grant: Grant) -> Context:
        """What the caller may see. If its token is restricted to labels, other runs do not exist for any handler."""
        if not grant.labels:
            return self
        return replace(self, service=self.service.restricted_to(grant.labels), uploads_of=grant.name)

    def labelled(self, texts: Collection[str]) -> Service:
        """The service in which only runs with the labels of a query exist."""
        return self.service.restricted_to(read_labels(texts, ":", "label"))

    def deliveries_seen_by(self, grant: Grant) -> DeliveryView:
        """A restricted token sees nothing of the server's receivers, and only an admin those of other people."""
        if grant.labels:
            return DeliveryView(of_server=False)
        if grant.allows(AccessScope.ADMIN):
            return EVERY_DELIVERY
        devices = self.push.subscriptions.of(grant.token_digest)
        return DeliveryView(devices=frozenset(each.endpoint for each in devices))

    @property
    def pools(self) -> Pools:
        return self.service.pools

    def run(self, run: runs.Run, input_: dict[str, Any] | None = None) -> Run:
        return Run.of(run, queue_reason=self.service.queue_reason(run), input=input_)

    async def submission(self, body: RunCreate, headers: RunCreateHeaders, grant: Grant, by: Actor) -> Submission:
        key = None
        if headers.idempotency_key is not None:
            key = await self._idempotency_key(headers.idempotency_key, body, grant)
        values, files = await self.files_of(body.input)
        skill = body.skill
        same = {name: getattr(body, name) for name in _SAME}
        return Submission(
            **same,
            skill=skill if isinstance(skill, str) else "",
            archive=None if isinstance(skill, str) else await self._path(skill.upload_id),
            by_path=False,
            mode=None if body.mode is None else body.mode.value,
            input=values,
            files=files,
            origin=None if body.from_run is None else _origin(body.from_run, grant),
            answer=None if body.from_run is None else body.from_run.response,
            by=by,
            webhooks=tuple(self._webhook(place, each) for place, each in enumerate(body.webhooks)),
            fixed_labels=grant.labels,
            token_permissions=grant.permissions,
            created_by=grant.name,
            trace_parent=read_trace_parent(headers.traceparent),
            max_open=self.quotas.of(grant).open_runs,
            key=key,
        )

    def _webhook(self, place: int, given: WebhookCreate) -> Webhook:
        own = given.reminders
        if isinstance(own, ReminderCreate) and own.too_dense:
            problem = f"webhooks[{place}].reminders.after_sec: must be at least {MIN_REQUESTED_SEC:.0f} seconds apart"
            raise Invalid(RefusalCode.INPUT_INVALID, "the webhooks are invalid", [problem])
        wanted = own.reminders(self.reminders) if isinstance(own, ReminderCreate) else own
        reminders = reminders_of(given.kind, wanted, self.reminders)
        return Webhook(url=given.url, secret=given.secret, kind=given.kind, states=given.states, reminders=reminders)

    async def _idempotency_key(self, key: str, body: RunCreate, grant: Grant) -> IdempotencyKey:
        """Keys of different tokens never meet: the response would show one caller the run of another."""
        if is_large(body.input, body.parameter, body.options):
            digest = await self.pools.parsing.run(body_digest, body, self.links.key)
        else:
            digest = body_digest(body, self.links.key)
        return IdempotencyKey(key=key if grant.name == MAIN else f"{grant.name}: {key}", body_digest=digest)

    async def files_of(self, values: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Path]]:
        """The values without uploads, and the files of the uploads."""
        single = {key: value for key, value in values.items() if isinstance(value, dict) and len(value) == 1}
        named = {key: value["upload_id"] for key, value in single.items() if isinstance(value.get("upload_id"), str)}
        if not named:
            return values, {}
        files = {key: await self._path(upload_id) for key, upload_id in named.items()}
        return {key: value for key, value in values.items() if key not in files}, files

    async def _path(self, upload_id: str) -> Path:
        return await self.pools.files.run(self.uploads.path, upload_id, self.uploads_of)

    async def record_use(self, uploaded: Collection[Path], run: runs.Run) -> None:
        if uploaded:
            await self.pools.files.run(self.uploads.record_use, uploaded, run.id, admitted=True)


def _origin(given: FromRun, grant: Grant) -> runs.Origin:
    """The run to continue. Requires the scope `read`."""
    if not grant.allows(AccessScope.READ):
        raise Forbidden(
            RefusalCode.SCOPE_MISSING, "from_run reads another run: the token needs the scope 'read' as well"
        )
    return runs.Origin(run_id=parse_run_id(given.run_id), files=given.files, session=given.session, at=given.at)


def body_digest(body: RunCreate, key: bytes = b"") -> str:
    """The same for equal bodies, whatever the order of their fields. Fields that are not set do not count, so that a new
    optional field does not change the digest of a body without it.
    """
    given = _given_fields(body)
    if body.from_run is not None:
        given["from_run"] = _given_fields(body.from_run)
    if body.webhooks:
        given["webhooks"] = [
            {name: value for name, value in msgspec.structs.asdict(each).items() if value is not None}
            for each in body.webhooks
        ]
    if body.env:
        # With a key: nobody can guess a value by trying.
        seal = hmac.new(key, json.dumps(body.env, sort_keys=True).encode(), hashlib.sha256)
        given["env"] = seal.hexdigest()
    return hashlib.sha256(json.dumps(msgspec.to_builtins(given), sort_keys=True).encode()).hexdigest()


def _given_fields(part: Shape) -> dict[str, Any]:
    """The fields that differ from their defaults: an answer may be false or 0, and no labels are not the usual ones."""
    given = {}
    for each in msgspec.structs.fields(part):
        default = each.default if each.default_factory is msgspec.NODEFAULT else each.default_factory()
        if (value := getattr(part, each.name)) != default:
            given[each.name] = value
    return given


def json_response(
    document: Any, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(encode(document), status.value, headers, "application/json")


_CHANGED = "audit_changed"


def changed(
    request: Request, what: str | None = None, *, run_id: str | None = None, interaction_id: str | None = None
) -> None:
    """Set what the audit entry is about, if the handler has written something outside the database."""
    request.scope[_CHANGED] = {"object": what, "run_id": run_id, "interaction_id": interaction_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTrail:
    """Adds entries for writes to files, right after them. The store adds those about runs itself."""

    store: Store
    clock: Callable[[], datetime]

    async def record(self, by: Actor, action: Action, **what: str | None) -> None:
        await self.store.record(audit_entry(by, action, self.clock(), **what))

    async def record_request(self, request: Request, action: Action | None) -> None:
        """Add the entry of a request whose handler has succeeded."""
        what: dict[str, str | None] | None = request.scope.pop(_CHANGED, None)
        if what is None:
            return
        if action is None or action.with_run:
            raise RuntimeError(f"{request.method} {request.url.path} does not declare what it writes")
        await self.record(actor_of(request), action, **what)
