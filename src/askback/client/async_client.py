"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from askback.client import calls
from askback.client.bodies import Body, Received
from askback.client.calls import Call, Listing
from askback.client.errors import ServerFault, ServerUnreachable, WaitTimedOut
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.client.requests import (
    TIMEOUT_SEC,
    connection,
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


class AsyncClient:
    """A client of one server. Use it in an `async with` block, or close it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_sec: float = TIMEOUT_SEC,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`headers` are sent with every request."""
        self.url = url
        self._timeout_sec = timeout_sec
        with transport_errors(url):
            self._http = httpx.AsyncClient(**connection(url, token, timeout_sec, headers), transport=transport)

    # Runs.

    async def create_run(
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
        return await self._do(
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

    async def get_run(self, run_id: str, *, wait_sec: float = 0.0) -> Run:
        """The run. With `wait_sec`, at most 60, the server waits until the run asks or is final."""
        return await self._do(calls.get_run(run_id, wait_sec))

    async def changed_run(
        self, run_id: str, etag: str | None = None, *, wait_sec: float = 0.0
    ) -> tuple[Run, str] | None:
        """The run and its `ETag`. With an earlier one, the server waits until the run differs, at most `wait_sec` and 60.

        None if it is still the same.
        """
        call = calls.changed_run(run_id, etag, wait_sec)
        response = await self._sent(call)
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
    ) -> AsyncIterator[Run]:
        """Runs, newest first. Pages are fetched as needed. `mine`: only those that this token created; needs `labels`."""
        return self._items(
            calls.list_runs(state=state, skill=skill, engine=engine, labels=labels, mine=mine, page_size=page_size)
        )

    async def cancel(self, run_id: str) -> Run:
        return await self._do(calls.cancel(run_id))

    async def delete_run(self, run_id: str) -> None:
        """Delete a run with everything that belongs to it. Raises `Conflict` until it is final."""
        await self._do(calls.delete_run(run_id))

    async def result(self, run_id: str) -> Result:
        """The result of the run. Raises `Conflict` until it is final."""
        return await self._do(calls.result(run_id))

    # Questions.

    async def interaction(self, run_id: str) -> Interaction:
        """The pending question. Raises `NotFound` if there is none."""
        return await self._do(calls.interaction(run_id))

    async def reply(self, run_id: str, interaction_id: str, response: Any) -> Run:
        return await self._do(calls.reply(run_id, interaction_id, response))

    async def interactions(self, run_id: str) -> list[Interaction]:
        return [each async for each in self._items(calls.interactions(run_id))]

    async def link(self, run_id: str, *, expires_in_sec: int = 86_400, recipient: str | None = None) -> Link:
        """A link to the pending question, for a user without a token. `recipient` is the name in `answered_with`."""
        return await self._do(calls.link(run_id, expires_in_sec, recipient))

    async def links(self, run_id: str) -> list[ListedLink]:
        """The valid links to the pending question, without their URLs."""
        return [each async for each in self._items(calls.links(run_id))]

    async def revoke_links(self, run_id: str) -> None:
        """Revoke every link to the pending question."""
        await self._do(calls.revoke_links(run_id))

    async def revoke_link(self, run_id: str, link_id: str) -> None:
        await self._do(calls.revoke_link(run_id, link_id))

    def inbox(
        self,
        *,
        skill: str | None = None,
        engine: str | None = None,
        words: str | None = None,
        order: str | None = None,
        labels: Mapping[str, str] = {},
    ) -> AsyncIterator[PendingQuestion]:
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
    ) -> AsyncIterator[AuditEntry]:
        """The audit log, newest first. Requires the scope `admin`."""
        return self._items(calls.audit(actor=actor, action=action, run_id=run_id, since=since, until=until))

    def closed_questions(self, *, labels: Mapping[str, str] = {}) -> AsyncIterator[ClosedQuestion]:
        """The questions of all runs that are no longer pending, the last closed first."""
        return self._items(calls.closed_questions(labels))

    # Events.

    def events(self, run_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """The events so far."""
        return self._items(calls.events(run_id, after))

    async def follow(
        self, run_id: str, *, after: int = 0, patience_sec: float = PATIENCE_SEC
    ) -> AsyncGenerator[Event, None]:
        """Every event exactly once, past and new ones, until the run is final. Reconnects if the server restarts."""
        following = Following(run_id, after, patience_sec)
        while True:
            try:
                async with self._stream(following.stream(), stream_timeout(self._timeout_sec)) as chunks:
                    async for chunk in chunks:
                        for event in following.feed(chunk):
                            yield event
                if (await self.get_run(run_id)).state.final:
                    async for event in self._items(following.rest()):
                        if following.is_new(event):
                            yield event
                    return
                await asyncio.sleep(following.pause())
            except (ServerUnreachable, ServerFault) as error:
                await asyncio.sleep(following.lost(error))

    async def wait(self, run_id: str, *, timeout_sec: float | None = None) -> Run:
        """Wait until the run asks its user or is final. Raises `WaitTimedOut` after `timeout_sec`."""
        run = await self.get_run(run_id)
        if run.settled:
            return run
        try:
            async with asyncio.timeout(timeout_sec):
                return await self._settled(run)
        except TimeoutError:
            raise WaitTimedOut(run_id, timeout_sec or 0.0) from None

    async def _settled(self, run: Run) -> Run:
        async with aclosing(self.follow(run.id)) as events:
            async for event in events:
                if may_settle(event):
                    run = await self.get_run(run.id)
                    if run.settled:
                        break
        return run

    # Files.

    async def artifacts(self, run_id: str) -> list[Artifact]:
        return [each async for each in self._items(calls.artifacts(run_id))]

    async def versions(self, run_id: str, path: str) -> list[ArtifactVersion]:
        """An artifact as it was at the end of each turn that changed it."""
        return [each async for each in self._items(calls.versions(run_id, path))]

    async def diff(self, run_id: str, path: str, from_turn: int, to_turn: int | None = None) -> ArtifactDiff:
        """What has changed in a text file since the end of a turn; 0: before the first. Until the end of `to_turn`, or now."""
        return await self._do(calls.diff(run_id, path, from_turn, to_turn))

    async def download(self, run_id: str, path: str, target: Path) -> Path:
        """Save one artifact to a file."""
        return await self._save(calls.download(run_id, path), target)

    async def bundle(self, run_id: str, target: Path) -> Path:
        """Save all artifacts as a zip file."""
        return await self._save(calls.bundle(run_id), target)

    async def upload(self, file: Path) -> Upload:
        """Upload a file. Use `upload.reference` in the input of a run, or in a reply."""
        return await self._do(calls.upload(file))

    # Skills, engines, the server.

    async def skills(self) -> list[Skill]:
        return [each async for each in self._items(calls.skills())]

    async def skill(self, skill_id: str) -> SkillDetails:
        return await self._do(calls.skill(skill_id))

    async def skill_files(self, skill_id: str) -> list[SkillFile]:
        """The files of the version that new runs use, with their digests."""
        return [each async for each in self._items(calls.skill_files(skill_id))]

    async def download_skill_file(self, skill_id: str, path: str, target: Path) -> Path:
        """Save one file of a skill."""
        return await self._save(calls.download_skill_file(skill_id, path), target)

    async def install_skill(self, source: Path) -> Skill:
        """Install a skill from a zip file or a folder."""
        with packed(source) as file:
            return await self._do(calls.install_skill(file))

    async def delete_skill(self, skill_id: str) -> None:
        """Delete a skill. Runs that use it are not affected."""
        await self._do(calls.delete_skill(skill_id))

    def deliveries(self, run_id: str | None = None) -> AsyncIterator[Delivery]:
        """Deliveries to webhooks, done and due, of one run or of all runs."""
        return self._items(calls.deliveries(run_id))

    async def engines(self) -> list[Engine]:
        return [each async for each in self._items(calls.engines())]

    async def workers(self) -> list[Worker]:
        """The programs that execute runs, with their engines and slots."""
        return [each async for each in self._items(calls.workers())]

    async def models(self, engine: str) -> EngineModels:
        """The models that a run on this engine can name. `models` is None if the engine cannot list them."""
        return await self._do(calls.models(engine))

    async def tokens(self) -> list[Token]:
        """The server's own token and all others, with their last use. Requires the scope `admin`."""
        return [each async for each in self._items(calls.tokens())]

    async def create_token(
        self, name: str, scopes: Sequence[str], *, labels: Mapping[str, str] = {}, expires_in_sec: int | None = None
    ) -> CreatedToken:
        """Create a token for a person or a program, restricted to runs with these labels if there are any.

        Its text is only available here.
        """
        return await self._do(calls.create_token(name, scopes, labels, expires_in_sec))

    async def revoke_token(self, name: str) -> None:
        """Revoke a token at once, with its sessions, links and invitations."""
        await self._do(calls.revoke_token(name))

    async def invitations(self) -> list[ListedInvitation]:
        """The invitations that were not used yet, without their URLs."""
        return [each async for each in self._items(calls.invitations())]

    async def invite(self, token: str, *, expires_in_sec: int = 86_400) -> Invitation:
        """A URL that signs one device in as the person of the token, once."""
        return await self._do(calls.invite(token, expires_in_sec))

    async def revoke_invitation(self, invitation_id: str) -> None:
        await self._do(calls.revoke_invitation(invitation_id))

    async def statistics(self, days: int = 30, *, labels: Mapping[str, str] = {}) -> Statistics:
        """Runs, failures and tokens of the last days, and what waits now."""
        return await self._do(calls.statistics(days, labels))

    async def health(self) -> Health:
        """The state of the server. Requires no token."""
        return await self._do(calls.health())

    # The connection.

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _do(self, call: Call[T]) -> T:
        response = await self._sent(call)
        return calls.decode(call, response.status, response.content)

    async def _sent(self, call: Call[Any]) -> Received:
        with request_arguments(call) as arguments, transport_errors(self.url):
            async with self._http.stream(call.method, call.path, **arguments) as response:
                return Received(status=response.status_code, headers=response.headers, content=await _body(response))

    async def _items(self, listing: Listing[T] | None) -> AsyncIterator[T]:
        while listing is not None:
            page = await self._do(listing.call)
            for item in page.items:
                yield item
            listing = listing.after(page)

    @asynccontextmanager
    async def _stream(
        self, call: Call[bytes], timeout: httpx.Timeout | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        more: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
        with request_arguments(call) as arguments, transport_errors(self.url):
            async with self._http.stream(call.method, call.path, **arguments, **more) as response:
                if response.status_code != httpx.codes.OK:
                    calls.check(call, response.status_code, await _body(response))
                yield response.aiter_bytes()

    async def _save(self, call: Call[bytes], target: Path) -> Path:
        with written(target) as file:
            async with self._stream(call) as chunks:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
        return target


async def _body(response: httpx.Response) -> bytes:
    body = Body()
    async for chunk in response.aiter_bytes():
        body.add(chunk)
    return body.content
