"""Every API call as data: the request, and the type of the response. Does no I/O; the two clients send it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec

from askback.client.errors import AnswerUnreadable, Refused, refusal
from askback.client.paths import path_of
from askback.wire.artifacts import Artifact, ArtifactDiff, ArtifactVersion
from askback.wire.audit import AuditEntry
from askback.wire.base import Page
from askback.wire.deliveries import Delivery
from askback.wire.questions import Interaction, Link, ListedLink
from askback.wire.runs import ClosedQuestion, Event, PendingQuestion, Result, Run
from askback.wire.server import Engine, EngineModels, Health, Problem, Skill, SkillDetails, SkillFile, Upload, Worker
from askback.wire.statistics import Statistics
from askback.wire.tokens import CreatedToken, Invitation, ListedInvitation, Token

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request. `returns` is the type of the response; `file` is sent as the form field `file`."""

    method: str
    path: str
    returns: type[T]
    params: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """A sequence is sent as a parameter that is repeated."""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    file: Path | None = None
    accepted_statuses: frozenset[int] = frozenset()
    """Error statuses whose body is decoded like that of a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """A call that returns a page; `cursor` names the parameter for the next one."""

    call: Call[Page[T]]
    cursor: str = "cursor"

    def after(self, page: Page[T]) -> Listing[T] | None:
        """The call for the next page."""
        if page.next_cursor is None:
            return None
        params = {**self.call.params, self.cursor: page.next_cursor}
        return replace(self, call=replace(self.call, params=params))


# Responses.

_OF_PROXIES = frozenset({502, 503, 504})


def decode(call: Call[T], status: int, body: bytes) -> T:
    """The decoded body. Raises `Refused` for an error response."""
    check(call, status, body)
    try:
        return msgspec.json.decode(body or b"null", type=call.returns)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AnswerUnreadable(f"{call.method} {call.path}: cannot decode the response: {error}") from None


def check(call: Call[Any], status: int, body: bytes) -> None:
    if not 200 <= status < 300 and status not in call.accepted_statuses:
        raise _refused(call, status, body)


def _refused(call: Call[Any], status: int, body: bytes) -> Refused:
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = f"{call.method} {call.path} returned status {status}, not from an Askback server"
        if status in _OF_PROXIES:
            message += "; a proxy sends this if it cannot reach the server behind it"
        return refusal(status, "NOT_ASKBACK", message)
    return refusal(status, problem.code, problem.detail, problem.problems or (), problem.answered_with)


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the caller has given: zero, false and empty values mean something."""
    return {name: value for name, value in arguments.items() if value is not None}


# Runs.


def create_run(
    skill: str | Mapping[str, str],
    *,
    engine: str | None,
    mode: str | None,
    input: Mapping[str, Any],  # noqa: A002 as in the API
    parameter: Mapping[str, Any],
    env: Mapping[str, str],
    options: Mapping[str, Any],
    from_run: Mapping[str, Any] | None,
    workdir: str | None,
    labels: Mapping[str, str] | None,
    webhooks: Sequence[Mapping[str, Any]],
    idempotency_key: str | None,
) -> Call[Run]:
    given = {
        "engine": engine,
        "mode": mode,
        "input": dict(input),
        "parameter": dict(parameter),
        "env": dict(env),
        "options": dict(options),
        "from_run": None if from_run is None else dict(from_run),
        "workdir": workdir,
        # Without any, a run that continues another one has none; if they are not given, it has those of that run.
        "labels": None if labels is None else dict(labels),
        "webhooks": [dict(each) for each in webhooks],
    }
    wanted = {"skill": skill, **_given(given)}
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return Call(method="POST", path="/v1/runs", returns=Run, body=_json(wanted), headers=_JSON | headers)


def list_runs(
    *, state: str | None, skill: str | None, engine: str | None, labels: Mapping[str, str], mine: bool, page_size: int
) -> Listing[Run]:
    own = "true" if mine else None
    chosen = {"state": state, "skill": skill, "engine": engine, "mine": own, "limit": str(page_size)}
    params = _given(chosen) | _labels(labels)
    return Listing(call=Call(method="GET", path="/v1/runs", returns=Page[Run], params=params))


def get_run(run_id: str, wait_sec: float = 0.0) -> Call[Run]:
    waiting = {"wait": str(wait_sec)} if wait_sec else {}
    return Call(method="GET", path=_run(run_id), returns=Run, params=waiting)


def changed_run(run_id: str, etag: str | None, wait_sec: float) -> Call[Any]:
    """Returns nothing if the run is still as in `etag`."""
    seen = {} if etag is None else {"If-None-Match": etag}
    waiting = {"wait": str(wait_sec)} if seen and wait_sec else {}
    return Call(
        method="GET",
        path=_run(run_id),
        returns=cast("type[Any]", Run | None),
        params=waiting,
        headers=seen,
        accepted_statuses=frozenset({304}),
    )


def cancel(run_id: str) -> Call[Run]:
    return Call(method="POST", path=_run(run_id, "cancel"), returns=Run)


def delete_run(run_id: str) -> Call[None]:
    return Call(method="DELETE", path=_run(run_id), returns=type(None))


def result(run_id: str) -> Call[Result]:
    return Call(method="GET", path=_run(run_id, "result"), returns=Result)


# Questions.


def interaction(run_id: str) -> Call[Interaction]:
    return Call(method="GET", path=_run(run_id, "interaction"), returns=Interaction)


def reply(run_id: str, interaction_id: str, response: Any) -> Call[Run]:
    body = _json({"interaction_id": interaction_id, "response": response})
    return Call(method="POST", path=_run(run_id, "interaction", "reply"), returns=Run, body=body, headers=_JSON)


def interactions(run_id: str) -> Listing[Interaction]:
    return Listing(call=Call(method="GET", path=_run(run_id, "interactions"), returns=Page[Interaction]))


def link(run_id: str, expires_in_sec: int, recipient: str | None = None) -> Call[Link]:
    body = _json(_given({"expires_in_sec": expires_in_sec, "recipient": recipient}))
    return Call(method="POST", path=_run(run_id, "interaction", "link"), returns=Link, body=body, headers=_JSON)


def links(run_id: str) -> Listing[ListedLink]:
    return Listing(call=Call(method="GET", path=_run(run_id, "interaction", "links"), returns=Page[ListedLink]))


def revoke_links(run_id: str) -> Call[None]:
    return Call(method="DELETE", path=_run(run_id, "interaction", "links"), returns=type(None))


def revoke_link(run_id: str, link_id: str) -> Call[None]:
    return Call(method="DELETE", path=_run(run_id, "interaction", "links", link_id), returns=type(None))


def inbox(
    *, skill: str | None, engine: str | None, words: str | None, order: str | None, labels: Mapping[str, str]
) -> Listing[PendingQuestion]:
    params = _given({"skill": skill, "engine": engine, "q": words, "order": order}) | _labels(labels)
    return Listing(call=Call(method="GET", path="/v1/inbox", returns=Page[PendingQuestion], params=params))


def audit(
    *, actor: str | None, action: str | None, run_id: str | None, since: datetime | None, until: datetime | None
) -> Listing[AuditEntry]:
    chosen = {"actor": actor, "action": action, "run_id": run_id}
    times = {"since": since, "until": until}
    params = _given(chosen)
    params |= {name: moment.astimezone(UTC).isoformat() for name, moment in times.items() if moment is not None}
    return Listing(call=Call(method="GET", path="/v1/audit", returns=Page[AuditEntry], params=params))


def closed_questions(labels: Mapping[str, str]) -> Listing[ClosedQuestion]:
    call = Call(method="GET", path="/v1/interactions", returns=Page[ClosedQuestion], params=_labels(labels))
    return Listing(call=call)


def _labels(labels: Mapping[str, str]) -> dict[str, str | Sequence[str]]:
    return {"label": [f"{name}:{value}" for name, value in labels.items()]} if labels else {}


# Events.


def events(run_id: str, after: int) -> Listing[Event]:
    call = Call(method="GET", path=_run(run_id, "events"), returns=Page[Event], params={"after": str(after)})
    return Listing(call=call, cursor="after")


def event_stream(run_id: str, after: int) -> Call[bytes]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return Call(method="GET", path=_run(run_id, "events"), returns=bytes, headers=headers)


# Files.


def artifacts(run_id: str) -> Listing[Artifact]:
    return Listing(call=Call(method="GET", path=_run(run_id, "artifacts"), returns=Page[Artifact]))


def versions(run_id: str, path: str) -> Listing[ArtifactVersion]:
    call = Call(method="GET", path=_run(run_id, "versions"), returns=Page[ArtifactVersion], params={"path": path})
    return Listing(call=call)


def diff(run_id: str, path: str, from_turn: int, to_turn: int | None) -> Call[ArtifactDiff]:
    params = {"path": path, "from": str(from_turn), "to": "now" if to_turn is None else str(to_turn)}
    return Call(method="GET", path=_run(run_id, "diff"), returns=ArtifactDiff, params=params)


def download(run_id: str, path: str) -> Call[bytes]:
    return Call(method="GET", path=_run(run_id, "artifacts", *path.split("/")), returns=bytes)


def bundle(run_id: str) -> Call[bytes]:
    return Call(method="GET", path=_run(run_id, "bundle"), returns=bytes)


def upload(file: Path) -> Call[Upload]:
    return Call(method="POST", path="/v1/uploads", returns=Upload, file=file)


# Skills, engines, the server.


def deliveries(run_id: str | None) -> Listing[Delivery]:
    path = "/v1/deliveries" if run_id is None else _run(run_id, "deliveries")
    return Listing(call=Call(method="GET", path=path, returns=Page[Delivery]))


def skills() -> Listing[Skill]:
    return Listing(call=Call(method="GET", path="/v1/skills", returns=Page[Skill]))


def skill(skill_id: str) -> Call[SkillDetails]:
    return Call(method="GET", path=path_of("skills", skill_id), returns=SkillDetails)


def skill_files(skill_id: str) -> Listing[SkillFile]:
    return Listing(call=Call(method="GET", path=path_of("skills", skill_id, "files"), returns=Page[SkillFile]))


def download_skill_file(skill_id: str, path: str) -> Call[bytes]:
    return Call(method="GET", path=path_of("skills", skill_id, "files", *path.split("/")), returns=bytes)


def install_skill(zip_file: Path) -> Call[Skill]:
    return Call(method="POST", path="/v1/skills", returns=Skill, file=zip_file)


def delete_skill(skill_id: str) -> Call[None]:
    return Call(method="DELETE", path=path_of("skills", skill_id), returns=type(None))


def engines() -> Listing[Engine]:
    return Listing(call=Call(method="GET", path="/v1/engines", returns=Page[Engine]))


def workers() -> Listing[Worker]:
    return Listing(call=Call(method="GET", path="/v1/workers", returns=Page[Worker]))


def models(engine: str) -> Call[EngineModels]:
    return Call(method="GET", path=path_of("engines", engine, "models"), returns=EngineModels)


def tokens() -> Listing[Token]:
    return Listing(call=Call(method="GET", path="/v1/tokens", returns=Page[Token]))


def create_token(
    name: str, scopes: Sequence[str], labels: Mapping[str, str], expires_in_sec: int | None
) -> Call[CreatedToken]:
    wanted = {"name": name, "scopes": list(scopes), "labels": dict(labels), "expires_in_sec": expires_in_sec}
    body = _json(_given(wanted))
    return Call(method="POST", path="/v1/tokens", returns=CreatedToken, body=body, headers=_JSON)


def revoke_token(name: str) -> Call[None]:
    return Call(method="DELETE", path=path_of("tokens", name), returns=type(None))


def invitations() -> Listing[ListedInvitation]:
    return Listing(call=Call(method="GET", path="/v1/invitations", returns=Page[ListedInvitation]))


def invite(token: str, expires_in_sec: int) -> Call[Invitation]:
    body = _json({"token": token, "expires_in_sec": expires_in_sec})
    return Call(method="POST", path="/v1/invitations", returns=Invitation, body=body, headers=_JSON)


def revoke_invitation(invitation_id: str) -> Call[None]:
    return Call(method="DELETE", path=path_of("invitations", invitation_id), returns=type(None))


def statistics(days: int, labels: Mapping[str, str]) -> Call[Statistics]:
    return Call(method="GET", path="/v1/stats", returns=Statistics, params={"days": str(days), **_labels(labels)})


def health() -> Call[Health]:
    return Call(method="GET", path="/healthz", returns=Health, accepted_statuses=frozenset({503}))


_JSON = {"Content-Type": "application/json"}


def _run(run_id: str, *below: str) -> str:
    return path_of("runs", run_id, *below)


def _json(document: Any) -> bytes:
    """Strict JSON: raises `ValueError` for NaN and infinities."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
