"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from askback.client import calls
from askback.client.calls import Call, Listing, Received
from askback.client.errors import ServerFault, ServerUnreachable, WaitTimedOut
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.client.requests import (
    TIMEOUT_SEC,
    connection,
    described_as,
    packed,
    request_arguments,
    transport_errors,
    written,
)
from askback.wire.runs import Event, Run
from askback.wire.server import Skill

P = ParamSpec("P")
T = TypeVar("T")


def _call(make: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method that sends the call and returns the response."""

    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client._do(make(*args, **kwargs))

    return described_as(make, method)


def _iterator(make: Callable[P, Listing[T]]) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """A method that yields the items of all pages, and fetches them as needed."""

    def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return client._items(make(*args, **kwargs))

    return described_as(make, method)


def _list(make: Callable[P, Listing[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, list[T]]]:
    """A method that returns the items of all pages."""

    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> list[T]:
        return [each async for each in client._items(make(*args, **kwargs))]

    return described_as(make, method)


class AsyncClient:
    """A client of one server. Use it in an `async with` block, or close it. `calls` has the arguments of most methods."""

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

    create_run = _call(calls.create_run)
    get_run = _call(calls.get_run)
    list_runs = _iterator(calls.list_runs)
    cancel = _call(calls.cancel)
    delete_run = _call(calls.delete_run)
    result = _call(calls.result)

    async def changed_run(
        self, run_id: str, etag: str | None = None, *, wait_sec: float = 0.0
    ) -> tuple[Run, str] | None:
        """The run and its `ETag`. With an earlier one, the server waits until the run differs, at most `wait_sec` and 60.

        None if it is still the same.
        """
        call = calls.changed_run(run_id, etag, wait_sec=wait_sec)
        response = await self._sent(call)
        run = calls.decode(call, response.status, response.content)
        return None if run is None else (run, response.headers["ETag"])

    # Questions.

    interaction = _call(calls.interaction)
    reply = _call(calls.reply)
    interactions = _list(calls.interactions)
    link = _call(calls.link)
    links = _list(calls.links)
    revoke_links = _call(calls.revoke_links)
    revoke_link = _call(calls.revoke_link)
    inbox = _iterator(calls.inbox)
    audit = _iterator(calls.audit)
    closed_questions = _iterator(calls.closed_questions)

    # Events.

    events = _iterator(calls.events)

    async def follow(
        self, run_id: str, *, after: int = 0, patience_sec: float = PATIENCE_SEC
    ) -> AsyncGenerator[Event, None]:
        """Every event exactly once, past and new ones, until the run is final. Reconnects if the server restarts."""
        following = Following(run_id, after, patience_sec)
        while True:
            try:
                async with self._stream(following.stream(), self._timeout_sec) as chunks:
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
            async with asyncio.timeout(timeout_sec), aclosing(self.follow(run_id)) as events:
                async for event in events:
                    if may_settle(event):
                        run = await self.get_run(run_id)
                        if run.settled:
                            break
        except TimeoutError:
            raise WaitTimedOut(run_id, timeout_sec or 0.0) from None
        return run

    # Files.

    artifacts = _list(calls.artifacts)
    versions = _list(calls.versions)
    diff = _call(calls.diff)
    upload = _call(calls.upload)

    async def download(self, run_id: str, path: str, target: Path) -> Path:
        """Save one artifact to a file."""
        return await self._save(calls.download(run_id, path), target)

    async def bundle(self, run_id: str, target: Path) -> Path:
        """Save all artifacts as a zip file."""
        return await self._save(calls.bundle(run_id), target)

    # Skills, engines, the server.

    skills = _list(calls.skills)
    skill = _call(calls.skill)
    skill_files = _list(calls.skill_files)
    delete_skill = _call(calls.delete_skill)
    deliveries = _iterator(calls.deliveries)
    engines = _list(calls.engines)
    workers = _list(calls.workers)
    models = _call(calls.models)
    tokens = _list(calls.tokens)
    create_token = _call(calls.create_token)
    revoke_token = _call(calls.revoke_token)
    invitations = _list(calls.invitations)
    invite = _call(calls.invite)
    revoke_invitation = _call(calls.revoke_invitation)
    statistics = _call(calls.statistics)
    health = _call(calls.health)

    async def download_skill_file(self, skill_id: str, path: str, target: Path) -> Path:
        """Save one file of a skill."""
        return await self._save(calls.download_skill_file(skill_id, path), target)

    async def install_skill(self, source: Path) -> Skill:
        """Install a skill from a zip file or a folder."""
        with packed(source) as file:
            return await self._do(calls.install_skill(file))

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
        async with self._response(call) as response:
            return Received(status=response.status_code, headers=response.headers, content=await _body(response))

    async def _items(self, listing: Listing[T] | None) -> AsyncIterator[T]:
        while listing is not None:
            page = await self._do(listing.call)
            for item in page.items:
                yield item
            listing = listing.after(page)

    @asynccontextmanager
    async def _response(
        self, call: Call[Any], stream_timeout_sec: float | None = None
    ) -> AsyncIterator[httpx.Response]:
        with request_arguments(call, stream_timeout_sec) as arguments, transport_errors(self.url):
            async with self._http.stream(call.method, call.path, **arguments) as response:
                yield response

    @asynccontextmanager
    async def _stream(self, call: Call[bytes], timeout_sec: float | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._response(call, timeout_sec) as response:
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
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        calls.check_size(len(body))
    return bytes(body)
