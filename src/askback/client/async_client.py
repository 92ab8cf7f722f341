"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from askback.client import calls, requests
from askback.client.calls import Call, Download, Listing
from askback.client.errors import ServerFault, ServerUnreachable, WaitTimedOut
from askback.client.following import PATIENCE_SEC, Following, may_settle
from askback.wire.runs import Event, Run

T = TypeVar("T")


class AsyncClient(requests.AsyncMethods):
    """A client of one server. Use it in an `async with` block, or close it."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_sec: float = requests.TIMEOUT_SEC,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`headers` are sent with every request."""
        self.url = url
        self._timeout_sec = timeout_sec
        with requests.transport_errors(url):
            self._http = httpx.AsyncClient(**requests.connection(url, token, timeout_sec, headers), transport=transport)

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

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _do(self, call: Call[T]) -> T:
        async with self._response(call) as response:
            return calls.decode(call, response.status_code, response.headers, await _body(response))

    async def _list(self, listing: Listing[T]) -> list[T]:
        return [each async for each in self._items(listing)]

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
        with requests.request_arguments(call, stream_timeout_sec) as arguments, requests.transport_errors(self.url):
            async with self._http.stream(call.method, call.path, **arguments) as response:
                yield response

    @asynccontextmanager
    async def _stream(self, call: Call[bytes], timeout_sec: float | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._response(call, timeout_sec) as response:
            if response.status_code != httpx.codes.OK:
                calls.check(call, response.status_code, await _body(response))
            yield response.aiter_bytes()

    async def _save(self, download: Download) -> Path:
        with requests.written(download.target) as file:
            async with self._stream(download.call) as chunks:
                async for chunk in chunks:
                    await asyncio.to_thread(file.write, chunk)
        return download.target


async def _body(response: httpx.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        calls.check_size(len(body))
    return bytes(body)
