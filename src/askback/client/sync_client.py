"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from askback.client import calls
from askback.client.bodies import Body, Received
from askback.client.calls import Call, Listing
from askback.client.errors import ServerFault, ServerUnreachable
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.client.requests import (
    TIMEOUT_SEC,
    connection,
    cut_off,
    packed,
    request_arguments,
    stream_timeout,
    transport_errors,
    written,
)
from askback.wire.artifacts import Artifact, ArtifactDiff, ArtifactVersion
from askback.wire.audit import AuditEntry
from askback.wire.deliveries import Delivery
from askback.wire.questions import Interaction, Link, ListedLink
from askback.wire.runs import ClosedQuestion, Event, PendingQuestion, Result, Run
from askback.wire.server import Engine, EngineModels, Health, Skill, SkillDetails, SkillFile, Upload, Worker
from askback.wire.statistics import Statistics
from askback.wire.tokens import CreatedToken, Invitation, ListedInvitation, Token

T = TypeVar("T")


class Client:
    """A client of one server. Use it in a `with` block, or close it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_sec: float = TIMEOUT_SEC,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with every request."""
        self.url = url
        self._timeout_sec = timeout_sec
        with transport_errors(url):
            self._http = httpx.Client(**connection(url, token, timeout_sec, headers))

    # Runs.

    def create_run(
        self,
        skill: str | Mapping[str, str],
        *,
        engine: str | None = None,
        mode: str | None = None,
        input: Mapping[str, Any] = {},  # noqa: A002 as in the API
        parameter: Mapping[str, Any] = {},
        env: Mapping[str, str] = {},
        options: Mapping[str, Any] = {},
        from_run: Mapping[str, Any] | None = None,
        workdir: str | None = None,
        labels: Mapping[str, str] | None = None,
        webhooks: Sequence[Mapping[str, Any]] = (),
        idempotency_key: str | None = None,
    ) -> Run:
        """Create a run. With an idempotency key, a retry returns the same run.

        `labels` are short texts by name, such as `{"customer": "4711"}`, to find the run again.
        `skill` is an ID, or `client.upload(zip_file).reference`: a skill that is used for this run alone.
        """
        return self._do(
            calls.create_run(
                skill,
                engine=engine,
                mode=mode,
                input=input,
                parameter=parameter,
                env=env,
                options=options,
                from_run=from_run,
                workdir=workdir,
                labels=labels,
                webhooks=webhooks,
                idempotency_key=idempotency_key,
            )
        )

    def get_run(self, run_id: str, *, wait_sec: float = 0.0) -> Run:
        """The run. With `wait_sec`, at most 60, the server waits until the run asks or is final."""
        return self._do(calls.get_run(run_id, wait_sec))

    def changed_run(self, run_id: str, etag: str | None = None, *, wait_sec: float = 0.0) -> tuple[Run, str] | None:
        """The run and its `ETag`. With an earlier one, the server waits until the run differs, at most `wait_sec` and 60.

        None if it is still the same.
        """
        call = calls.changed_run(run_id, etag, wait_sec)
        response = self._sent(call)
        run = calls.decode(call, response.status, response.content)
        return None if run is None else (run, response.headers["ETag"])

    def list_runs(
        self,
        *,
        state: str | None = None,
        skill: str | None = None,
        engine: str | None = None,
        labels: Mapping[str, str] = {},
        mine: bool = False,
        page_size: int = 50,
    ) -> Iterator[Run]:
        """Runs, newest first. Pages are fetched as needed. `mine`: only those that this token created; needs `labels`."""
        return self._items(
            calls.list_runs(state=state, skill=skill, engine=engine, labels=labels, mine=mine, page_size=page_size)
        )

    def cancel(self, run_id: str) -> Run:
        return self._do(calls.cancel(run_id))

    def delete_run(self, run_id: str) -> None:
        """Delete a run with everything that belongs to it. Raises `Conflict` until it is final."""
        self._do(calls.delete_run(run_id))

    def result(self, run_id: str) -> Result:
        """The result of the run. Raises `Conflict` until it is final."""
        return self._do(calls.result(run_id))

    # Questions.

    def interaction(self, run_id: str) -> Interaction:
        """The pending question. Raises `NotFound` if there is none."""
        return self._do(calls.interaction(run_id))

    def reply(self, run_id: str, interaction_id: str, response: Any) -> Run:
        return self._do(calls.reply(run_id, interaction_id, response))

    def interactions(self, run_id: str) -> list[Interaction]:
        return list(self._items(calls.interactions(run_id)))

    def link(self, run_id: str, *, expires_in_sec: int = 86_400, recipient: str | None = None) -> Link:
        """A link to the pending question, for a user without a token. `recipient` is the name in `answered_with`."""
        return self._do(calls.link(run_id, expires_in_sec, recipient))

    def links(self, run_id: str) -> list[ListedLink]:
        """The valid links to the pending question, without their URLs."""
        return list(self._items(calls.links(run_id)))

    def revoke_links(self, run_id: str) -> None:
        """Revoke every link to the pending question."""
        self._do(calls.revoke_links(run_id))

    def revoke_link(self, run_id: str, link_id: str) -> None:
        self._do(calls.revoke_link(run_id, link_id))

    def inbox(
        self,
        *,
        skill: str | None = None,
        engine: str | None = None,
        words: str | None = None,
        order: str | None = None,
        labels: Mapping[str, str] = {},
    ) -> Iterator[PendingQuestion]:
        """The pending questions of all runs, oldest first; with `order="deadline"` the nearest deadline first."""
        return self._items(calls.inbox(skill=skill, engine=engine, words=words, order=order, labels=labels))

    def audit(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        run_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[AuditEntry]:
        """The audit log, newest first. Requires the scope `admin`."""
        return self._items(calls.audit(actor=actor, action=action, run_id=run_id, since=since, until=until))

    def closed_questions(self, *, labels: Mapping[str, str] = {}) -> Iterator[ClosedQuestion]:
        """The questions of all runs that are no longer pending, the last closed first."""
        return self._items(calls.closed_questions(labels))

    # Events.

    def events(self, run_id: str, *, after: int = 0) -> Iterator[Event]:
        """The events so far."""
        return self._items(calls.events(run_id, after))

    def follow(
        self, run_id: str, *, after: int = 0, patience_sec: float = PATIENCE_SEC
    ) -> Generator[Event, None, None]:
        """Every event exactly once, past and new ones, until the run is final. Reconnects if the server restarts."""
        return self._follow(run_id, Following(run_id, after, patience_sec))

    def _follow(self, run_id: str, following: Following) -> Generator[Event, None, None]:
        while True:
            try:
                with self._stream(following.stream(), stream_timeout(self._timeout_sec), following.left_sec) as chunks:
                    for chunk in chunks:
                        yield from following.feed(chunk)
                if self.get_run(run_id).state.final:
                    yield from filter(following.is_new, self._items(following.rest()))
                    return
                time.sleep(following.pause())
            except (ServerUnreachable, ServerFault) as error:
                time.sleep(following.lost(error))

    def wait(self, run_id: str, *, timeout_sec: float | None = None) -> Run:
        """Wait until the run asks its user or is final. Raises `WaitTimedOut` after `timeout_sec`."""
        following = Following(run_id, 0, PATIENCE_SEC, timeout_sec)
        run = self.get_run(run_id)
        if run.settled:
            return run
        with closing(self._follow(run_id, following)) as events:
            for event in filter(may_settle, events):
                run = self.get_run(event.run_id)
                if run.settled:
                    break
        return run

    # Files.

    def artifacts(self, run_id: str) -> list[Artifact]:
        return list(self._items(calls.artifacts(run_id)))

    def versions(self, run_id: str, path: str) -> list[ArtifactVersion]:
        """An artifact as it was at the end of each turn that changed it."""
        return list(self._items(calls.versions(run_id, path)))

    def diff(self, run_id: str, path: str, from_turn: int, to_turn: int | None = None) -> ArtifactDiff:
        """What has changed in a text file since the end of a turn; 0: before the first. Until the end of `to_turn`, or now."""
        return self._do(calls.diff(run_id, path, from_turn, to_turn))

    def download(self, run_id: str, path: str, target: Path) -> Path:
        """Save one artifact to a file."""
        return self._save(calls.download(run_id, path), target)

    def bundle(self, run_id: str, target: Path) -> Path:
        """Save all artifacts as a zip file."""
        return self._save(calls.bundle(run_id), target)

    def upload(self, file: Path) -> Upload:
        """Upload a file. Use `upload.reference` in the input of a run, or in a reply."""
        return self._do(calls.upload(file))

    # Skills, engines, the server.

    def skills(self) -> list[Skill]:
        return list(self._items(calls.skills()))

    def skill(self, skill_id: str) -> SkillDetails:
        return self._do(calls.skill(skill_id))

    def skill_files(self, skill_id: str) -> list[SkillFile]:
        """The files of the version that new runs use, with their digests."""
        return list(self._items(calls.skill_files(skill_id)))

    def download_skill_file(self, skill_id: str, path: str, target: Path) -> Path:
        """Save one file of a skill."""
        return self._save(calls.download_skill_file(skill_id, path), target)

    def install_skill(self, source: Path) -> Skill:
        """Install a skill from a zip file or a folder."""
        with packed(source) as file:
            return self._do(calls.install_skill(file))

    def delete_skill(self, skill_id: str) -> None:
        """Delete a skill. Runs that use it are not affected."""
        self._do(calls.delete_skill(skill_id))

    def deliveries(self, run_id: str | None = None) -> Iterator[Delivery]:
        """Deliveries to webhooks, done and due, of one run or of all runs."""
        return self._items(calls.deliveries(run_id))

    def engines(self) -> list[Engine]:
        return list(self._items(calls.engines()))

    def workers(self) -> list[Worker]:
        """The programs that execute runs, with their engines and slots."""
        return list(self._items(calls.workers()))

    def models(self, engine: str) -> EngineModels:
        """The models that a run on this engine can name. `models` is None if the engine cannot list them."""
        return self._do(calls.models(engine))

    def tokens(self) -> list[Token]:
        """The server's own token and all others, with their last use. Requires the scope `admin`."""
        return list(self._items(calls.tokens()))

    def create_token(
        self, name: str, scopes: Sequence[str], *, labels: Mapping[str, str] = {}, expires_in_sec: int | None = None
    ) -> CreatedToken:
        """Create a token for a person or a program, restricted to runs with these labels if there are any.

        Its text is only available here.
        """
        return self._do(calls.create_token(name, scopes, labels, expires_in_sec))

    def revoke_token(self, name: str) -> None:
        """Revoke a token at once, with its sessions, links and invitations."""
        self._do(calls.revoke_token(name))

    def invitations(self) -> list[ListedInvitation]:
        """The invitations that were not used yet, without their URLs."""
        return list(self._items(calls.invitations()))

    def invite(self, token: str, *, expires_in_sec: int = 86_400) -> Invitation:
        """A URL that signs one device in as the person of the token, once."""
        return self._do(calls.invite(token, expires_in_sec))

    def revoke_invitation(self, invitation_id: str) -> None:
        self._do(calls.revoke_invitation(invitation_id))

    def statistics(self, days: int = 30, *, labels: Mapping[str, str] = {}) -> Statistics:
        """Runs, failures and tokens of the last days, and what waits now."""
        return self._do(calls.statistics(days, labels))

    def health(self) -> Health:
        """The state of the server. Requires no token."""
        return self._do(calls.health())

    # The connection.

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, call: Call[T]) -> T:
        response = self._sent(call)
        return calls.decode(call, response.status, response.content)

    def _sent(self, call: Call[Any]) -> Received:
        with (
            request_arguments(call) as arguments,
            transport_errors(self.url),
            self._http.stream(call.method, call.path, **arguments) as response,
        ):
            return Received(status=response.status_code, headers=response.headers, content=_body(response))

    def _items(self, listing: Listing[T] | None) -> Iterator[T]:
        while listing is not None:
            page = self._do(listing.call)
            yield from page.items
            listing = listing.after(page)

    @contextmanager
    def _stream(
        self, call: Call[bytes], timeout: httpx.Timeout | None = None, cut_after_sec: float | None = None
    ) -> Iterator[Iterator[bytes]]:
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        with (
            request_arguments(call) as arguments,
            transport_errors(self.url),
            self._http.stream(call.method, call.path, **arguments, **more) as response,
            cut_off(response, cut_after_sec),
        ):
            if response.status_code != httpx.codes.OK:
                calls.check(call, response.status_code, _body(response))
            yield response.iter_bytes()

    def _save(self, call: Call[bytes], target: Path) -> Path:
        with self._stream(call) as chunks, written(target) as file:
            for chunk in chunks:
                file.write(chunk)
        return target


def _body(response: httpx.Response) -> bytes:
    body = Body()
    for chunk in response.iter_bytes():
        body.add(chunk)
    return body.content
