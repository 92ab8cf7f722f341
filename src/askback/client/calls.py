"""Every call of the API as data: the request, and the type of the response. Does no I/O.

A function here is a method of both clients, with the same arguments and docstring.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec

from askback.client.errors import AnswerUnreadable, NotFound, Refused, refusal
from askback.core.errors import FieldProblem, RefusalCode
from askback.wire import server
from askback.wire.access import AuditEntry, CreatedToken, Invitation, ListedInvitation, Token
from askback.wire.artifacts import Artifact, ArtifactDiff, ArtifactVersion
from askback.wire.base import Page
from askback.wire.deliveries import Delivery
from askback.wire.questions import Background, Interaction, Link, ListedLink
from askback.wire.runs import ClosedQuestion, Event, PendingQuestion, Result, Run

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
    packed: bool = False
    """Whether a folder is sent as a zip file."""
    with_etag: bool = False
    """Whether the result is a pair with the `ETag` of the response, or nothing."""
    accepted_statuses: frozenset[int] = frozenset()
    """Error statuses whose body is decoded like that of a success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """A call whose response is saved as a file."""

    call: Call[bytes]
    target: Path


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


MAX_BYTES = 64_000_000
"""Bytes of a response in JSON, and of one event of a stream. A server sends much less. Downloads have no limit."""
_OF_PROXIES = frozenset({502, 503, 504})


def check_size(size: int) -> None:
    """Raises `AnswerUnreadable` for too large a response: a broken or hostile server can send without end."""
    if size > MAX_BYTES:
        raise AnswerUnreadable(f"the server sent a response of more than {MAX_BYTES:,} bytes; it was not read further")


def decode(call: Call[T], status: int, headers: Mapping[str, str], body: bytes) -> T:
    """The decoded body. Raises `Refused` for an error response."""
    check(call, status, body)
    try:
        found: Any = msgspec.json.decode(body or b"null", type=call.returns)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AnswerUnreadable(f"{call.method} {call.path}: cannot decode the response: {error}") from None
    result: Any = (found, headers["ETag"]) if call.with_etag and found is not None else found
    return result  # type: ignore[no-any-return]


def check(call: Call[Any], status: int, body: bytes) -> None:
    if not 200 <= status < 300 and status not in call.accepted_statuses:
        raise _refused(call, status, body)


def _refused(call: Call[Any], status: int, body: bytes) -> Refused:
    try:
        problem = msgspec.json.decode(body, type=server.Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        message = f"{call.method} {call.path} returned status {status}, not from an Askback server"
        if status in _OF_PROXIES:
            message += "; a proxy sends this if it cannot reach the server behind it"
        return refusal(status, "NOT_ASKBACK", message)
    problems: Sequence[str] = problem.problems or ()
    if problem.errors is not None:
        parts = zip(problems, problem.errors, strict=False)
        problems = [FieldProblem(text, each.path, each.message, each.code) for text, each in parts]
    return refusal(status, problem.code, problem.detail, problems, problem.answered_with)


_JSON = {"Content-Type": "application/json"}
_COLLECTIONS = {
    "runs": (RefusalCode.RUN_NOT_FOUND, "run"),
    "links": (RefusalCode.LINK_NOT_FOUND, "link"),
    "artifacts": (RefusalCode.ARTIFACT_NOT_FOUND, "artifact"),
    "skills": (RefusalCode.SKILL_NOT_FOUND, "skill"),
    "files": (RefusalCode.SKILL_FILE_NOT_FOUND, "file"),
    "engines": (RefusalCode.ENGINE_NOT_FOUND, "engine"),
}
_OF_PATHS = ("artifacts", "files")


def path_of(*segments: str) -> str:
    """Raises `NotFound` for a name that would lead elsewhere.

    HTTP libraries resolve `.` and `..`, and the server takes an encoded slash for a slash.
    """
    for index, segment in enumerate(segments):
        if segment in ("", ".", "..") or "/" in segment:
            raise _no_such(segments[:index], segments[index:])
    return "/v1/" + "/".join(quote(segment, safe="") for segment in segments)


def _no_such(above: tuple[str, ...], rest: tuple[str, ...]) -> NotFound:
    """For the name that starts below the nearest collection: a path has several segments, an id has one."""
    collections = [index for index, segment in enumerate(above) if segment in _COLLECTIONS]
    # The folders of a path may be named like a collection.
    at = next((index for index in collections if above[index] in _OF_PATHS), collections[-1])
    code, noun = _COLLECTIONS[above[at]]
    name = "/".join((*above[at + 1 :], *rest)) if above[at] in _OF_PATHS else rest[0]
    return NotFound(404, code, f"there is no {noun} {name!r}")


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the caller has given: zero, false and empty values mean something."""
    return {name: value for name, value in arguments.items() if value is not None}


def _labels(labels: Mapping[str, str]) -> dict[str, str | Sequence[str]]:
    return {"label": [f"{name}:{value}" for name, value in labels.items()]} if labels else {}


def _run(run_id: str, *below: str) -> str:
    return path_of("runs", run_id, *below)


def _get(path: str, returns: type[T], params: Mapping[str, str | Sequence[str]] = {}) -> Call[T]:
    return Call(method="GET", path=path, returns=returns, params=params)


def _post(path: str, returns: type[T], document: Any) -> Call[T]:
    """Raises `ValueError` for NaN and infinities, which JSON does not have."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
    return Call(method="POST", path=path, returns=returns, body=body, headers=_JSON)


def _delete(path: str) -> Call[None]:
    return Call(method="DELETE", path=path, returns=type(None))


def create_run(
    skill: str | Mapping[str, str],
    *,
    engine: str | None = None,
    mode: str | None = None,
    input: Mapping[str, Any] = {},  # noqa: A002 as in the API
    parameter: Mapping[str, Any] = {},
    env: Mapping[str, str] = {},
    options: Mapping[str, Any] = {},
    from_run: Mapping[str, Any] | None = None,
    permissions: Mapping[str, Any] | str | None = None,
    workdir: str | None = None,
    labels: Mapping[str, str] | None = None,
    webhooks: Sequence[Mapping[str, Any]] = (),
    idempotency_key: str | None = None,
) -> Call[Run]:
    """Create a run. With an idempotency key, a retry returns the same run.

    `labels` are short texts by name, such as `{"customer": "4711"}`, to find the run again.
    `skill` is an ID, or `client.upload(zip_file).reference`: a skill that is used for this run alone.
    """
    given = {
        "engine": engine,
        "mode": mode,
        "input": dict(input),
        "parameter": dict(parameter),
        "env": dict(env),
        "options": dict(options),
        "from_run": None if from_run is None else dict(from_run),
        "permissions": permissions,
        "workdir": workdir,
        # Without any, a run that continues another one has none; if they are not given, it has those of that run.
        "labels": None if labels is None else dict(labels),
        "webhooks": [dict(each) for each in webhooks],
    }
    call = _post("/v1/runs", Run, {"skill": skill, **_given(given)})
    return call if idempotency_key is None else replace(call, headers={**_JSON, "Idempotency-Key": idempotency_key})


def list_runs(
    *,
    state: str | None = None,
    skill: str | None = None,
    engine: str | None = None,
    labels: Mapping[str, str] = {},
    mine: bool = False,
    page_size: int = 50,
) -> Listing[Run]:
    """Runs, newest first. Pages are fetched as needed. `mine`: only those that this token created; needs `labels`."""
    own = "true" if mine else None
    chosen = {"state": state, "skill": skill, "engine": engine, "mine": own, "limit": str(page_size)}
    return Listing(call=_get("/v1/runs", Page[Run], _given(chosen) | _labels(labels)))


def get_run(run_id: str, *, wait_sec: float = 0.0) -> Call[Run]:
    """The run. With `wait_sec`, at most 60, the server waits until the run asks or is final."""
    return _get(_run(run_id), Run, {"wait": str(wait_sec)} if wait_sec else {})


def changed_run(run_id: str, etag: str | None = None, *, wait_sec: float = 0.0) -> Call[tuple[Run, str] | None]:
    """The run and its `ETag`. With an earlier one, the server waits until the run differs, at most `wait_sec` and 60.

    None if it is still the same.
    """
    seen = {} if etag is None else {"If-None-Match": etag}
    waiting = {"wait": str(wait_sec)} if seen and wait_sec else {}
    call = _get(_run(run_id), cast("type[Any]", Run | None), waiting)
    return replace(call, headers=seen, accepted_statuses=frozenset({304}), with_etag=True)


def cancel(run_id: str) -> Call[Run]:
    """Cancel a run. It is `canceled` when all its processes have ended."""
    return Call(method="POST", path=_run(run_id, "cancel"), returns=Run)


def resume(run_id: str) -> Call[Run]:
    """Execute a run now that is parked for a limit of the model provider. Raises `Conflict` if it is not parked."""
    return Call(method="POST", path=_run(run_id, "resume"), returns=Run)


def delete_run(run_id: str) -> Call[None]:
    """Delete a run with everything that belongs to it. Raises `Conflict` until it is final."""
    return _delete(_run(run_id))


def result(run_id: str) -> Call[Result]:
    """The result of the run. Raises `Conflict` until it is final."""
    return _get(_run(run_id, "result"), Result)


def interaction(run_id: str) -> Call[Interaction]:
    """The pending question. Raises `NotFound` if there is none."""
    return _get(_run(run_id, "interaction"), Interaction)


def reply(run_id: str, interaction_id: str, response: Any) -> Call[Run]:
    """Answer the pending question. Raises `Conflict` if it is closed."""
    return _post(_run(run_id, "interaction", "reply"), Run, {"interaction_id": interaction_id, "response": response})


def interactions(run_id: str) -> Listing[Interaction]:
    """The questions of a run, with their answers."""
    return Listing(call=_get(_run(run_id, "interactions"), Page[Interaction]))


def background(run_id: str) -> Call[Background]:
    """What led to the pending question: the engine's last messages, changed files, and earlier answers."""
    return _get(_run(run_id, "interaction", "background"), Background)


def link(run_id: str, *, expires_in_sec: int = 86_400, recipient: str | None = None) -> Call[Link]:
    """A link to the pending question, for a user without a token. `recipient` is the name in `answered_with`."""
    wanted = _given({"expires_in_sec": expires_in_sec, "recipient": recipient})
    return _post(_run(run_id, "interaction", "link"), Link, wanted)


def links(run_id: str) -> Listing[ListedLink]:
    """The valid links to the pending question, without their URLs."""
    return Listing(call=_get(_run(run_id, "interaction", "links"), Page[ListedLink]))


def revoke_links(run_id: str) -> Call[None]:
    """Revoke every link to the pending question."""
    return _delete(_run(run_id, "interaction", "links"))


def revoke_link(run_id: str, link_id: str) -> Call[None]:
    """Revoke one link to the pending question."""
    return _delete(_run(run_id, "interaction", "links", link_id))


def inbox(
    *,
    skill: str | None = None,
    engine: str | None = None,
    words: str | None = None,
    order: str | None = None,
    labels: Mapping[str, str] = {},
) -> Listing[PendingQuestion]:
    """The pending questions of all runs, oldest first; with `order="deadline"` the nearest deadline first."""
    chosen = {"skill": skill, "engine": engine, "q": words, "order": order}
    return Listing(call=_get("/v1/inbox", Page[PendingQuestion], _given(chosen) | _labels(labels)))


def audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    run_id: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Listing[AuditEntry]:
    """The audit log, newest first. Requires the scope `admin`."""
    times = {"since": since, "until": until}
    params = _given({"actor": actor, "action": action, "run_id": run_id})
    params |= {name: moment.astimezone(UTC).isoformat() for name, moment in times.items() if moment is not None}
    return Listing(call=_get("/v1/audit", Page[AuditEntry], params))


def closed_questions(*, labels: Mapping[str, str] = {}) -> Listing[ClosedQuestion]:
    """The questions of all runs that are no longer pending, the last closed first."""
    return Listing(call=_get("/v1/interactions", Page[ClosedQuestion], _labels(labels)))


def events(run_id: str, *, after: int = 0) -> Listing[Event]:
    """The events so far."""
    return Listing(call=_get(_run(run_id, "events"), Page[Event], {"after": str(after)}), cursor="after")


def event_stream(run_id: str, after: int) -> Call[bytes]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    return replace(_get(_run(run_id, "events"), bytes), headers=headers)


def artifacts(run_id: str) -> Listing[Artifact]:
    """The output files of a run."""
    return Listing(call=_get(_run(run_id, "artifacts"), Page[Artifact]))


def versions(run_id: str, path: str) -> Listing[ArtifactVersion]:
    """An artifact as it was at the end of each turn that changed it."""
    return Listing(call=_get(_run(run_id, "versions"), Page[ArtifactVersion], {"path": path}))


def diff(run_id: str, path: str, from_turn: int, to_turn: int | None = None) -> Call[ArtifactDiff]:
    """What has changed in a text file since the end of a turn; 0: before the first. Until the end of `to_turn`, or now."""
    params = {"path": path, "from": str(from_turn), "to": "now" if to_turn is None else str(to_turn)}
    return _get(_run(run_id, "diff"), ArtifactDiff, params)


def download(run_id: str, path: str, target: Path) -> Download:
    """Save one artifact to a file."""
    return Download(call=_get(_run(run_id, "artifacts", *path.split("/")), bytes), target=target)


def bundle(run_id: str, target: Path) -> Download:
    """Save all artifacts as a zip file."""
    return Download(call=_get(_run(run_id, "bundle"), bytes), target=target)


def upload(file: Path) -> Call[server.Upload]:
    """Upload a file. Use `upload.reference` in the input of a run, or in a reply."""
    return Call(method="POST", path="/v1/uploads", returns=server.Upload, file=file)


# Skills, engines, the server.


def skills() -> Listing[server.Skill]:
    """The skills that can be run by ID."""
    return Listing(call=_get("/v1/skills", Page[server.Skill]))


def skill(skill_id: str) -> Call[server.SkillDetails]:
    """A skill with its schemas."""
    return _get(path_of("skills", skill_id), server.SkillDetails)


def skill_files(skill_id: str) -> Listing[server.SkillFile]:
    """The files of the version that new runs use, with their digests."""
    return Listing(call=_get(path_of("skills", skill_id, "files"), Page[server.SkillFile]))


def download_skill_file(skill_id: str, path: str, target: Path) -> Download:
    """Save one file of a skill."""
    return Download(call=_get(path_of("skills", skill_id, "files", *path.split("/")), bytes), target=target)


def install_skill(source: Path) -> Call[server.Skill]:
    """Install a skill from a zip file or a folder."""
    return Call(method="POST", path="/v1/skills", returns=server.Skill, file=source, packed=True)


def delete_skill(skill_id: str) -> Call[None]:
    """Delete a skill. Runs that use it are not affected."""
    return _delete(path_of("skills", skill_id))


def deliveries(run_id: str | None = None) -> Listing[Delivery]:
    """Deliveries to webhooks, done and due, of one run or of all runs."""
    path = "/v1/deliveries" if run_id is None else _run(run_id, "deliveries")
    return Listing(call=_get(path, Page[Delivery]))


def engines() -> Listing[server.Engine]:
    """The engines, with their versions and abilities."""
    return Listing(call=_get("/v1/engines", Page[server.Engine]))


def workers() -> Listing[server.Worker]:
    """The programs that execute runs, with their engines and slots."""
    return Listing(call=_get("/v1/workers", Page[server.Worker]))


def models(engine: str) -> Call[server.EngineModels]:
    """The models that a run on this engine can name. `models` is None if the engine cannot list them."""
    return _get(path_of("engines", engine, "models"), server.EngineModels)


def tokens() -> Listing[Token]:
    """The server's own token and all others, with their last use. Requires the scope `admin`."""
    return Listing(call=_get("/v1/tokens", Page[Token]))


def create_token(
    name: str, scopes: Sequence[str], *, labels: Mapping[str, str] = {}, expires_in_sec: int | None = None
) -> Call[CreatedToken]:
    """Create a token for a person or a program, restricted to runs with these labels if there are any.

    Its text is only available here.
    """
    wanted = {"name": name, "scopes": list(scopes), "labels": dict(labels), "expires_in_sec": expires_in_sec}
    return _post("/v1/tokens", CreatedToken, _given(wanted))


def revoke_token(name: str) -> Call[None]:
    """Revoke a token at once, with its sessions, links and invitations."""
    return _delete(path_of("tokens", name))


def invitations() -> Listing[ListedInvitation]:
    """The invitations that were not used yet, without their URLs."""
    return Listing(call=_get("/v1/invitations", Page[ListedInvitation]))


def invite(token: str, *, expires_in_sec: int = 86_400) -> Call[Invitation]:
    """A URL that signs one device in as the person of the token, once."""
    return _post("/v1/invitations", Invitation, {"token": token, "expires_in_sec": expires_in_sec})


def revoke_invitation(invitation_id: str) -> Call[None]:
    """Revoke an unused invitation."""
    return _delete(path_of("invitations", invitation_id))


def statistics(days: int = 30, *, labels: Mapping[str, str] = {}) -> Call[server.Statistics]:
    """Runs, failures and tokens of the last days, and what waits now."""
    return _get("/v1/stats", server.Statistics, {"days": str(days), **_labels(labels)})


def usage(by: str = "day", *, days: int = 30, labels: Mapping[str, str] = {}) -> Call[server.UsageReport]:
    """Tokens and costs of the last days by `day`, `engine`, `model`, `skill`, `token` or `label`."""
    return _get("/v1/usage", server.UsageReport, {"by": by, "days": str(days), **_labels(labels)})


def health() -> Call[server.Health]:
    """The state of the server. Requires no token."""
    return replace(_get("/healthz", server.Health), accepted_statuses=frozenset({503}))
