"""Server-sent events of a run, of all runs or of the inbox, with a limit on open streams."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from askback.background.loops import racing
from askback.core.errors import Unavailable
from askback.core.events import Event
from askback.core.runs import Run
from askback.http.auth import check_still_valid
from askback.http.bodies import until_disconnected
from askback.runs.following import InboxPage
from askback.store.pages import EventPage
from askback.wire import runs as wire

Batches = AsyncGenerator[Sequence[Any]]

WRITE = "askback.write"
"""The extension of the ASGI scope that writes a part of a response directly; see `ConnectionProtocol.write_part`."""
HEARTBEAT_SEC = 15.0
MAX_PER_TOKEN = 1_000
MAX_IN_TOTAL = 4_000
_END_SEC = 1.0
"""How long the end of a stream waits for a client that does not read."""
_VALID_SEC = 5.0
_PIECE_BYTES = 65_536
_CACHED_EVENTS = 512
_CACHED_EVENT_BYTES = 16_384


def wants_stream(accept: str) -> bool:
    """Whether `Accept` prefers a stream over JSON."""
    weights = dict(_preference(part) for part in accept.split(","))
    stream = weights.get(EventStream.media_type, 0.0)
    return stream > 0 and stream >= weights.get("application/json", 0.0)


def _preference(part: str) -> tuple[str, float]:
    name, *parameters = (word.strip().lower() for word in part.split(";"))
    weight = next((each.removeprefix("q=") for each in parameters if each.startswith("q=")), "1")
    with suppress(ValueError):
        return name, float(weight)
    return name, 1.0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Streams:
    heartbeat_sec: float = HEARTBEAT_SEC
    max_per_token: int = MAX_PER_TOKEN
    max_in_total: int = MAX_IN_TOTAL
    closing: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    measure_lag: Callable[[float], None] = field(init=False, default_factory=lambda: lambda seconds: None)
    """Gets the time from the commit of an event until it was written to a client."""
    _open: Counter[str] = field(init=False, default_factory=Counter)
    _cached: dict[Hashable, bytes] = field(init=False, default_factory=dict)
    _inbox: tuple[InboxPage, bytes] | None = None

    @property
    def count(self) -> int:
        return self._open.total()

    def close(self) -> None:
        """End every stream. Clients reconnect with `Last-Event-ID` and miss nothing."""
        self.closing.set()

    @contextmanager
    def reserve(self, token_name: str) -> Iterator[None]:
        if self._open[token_name] >= self.max_per_token or self.count >= self.max_in_total:
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "too many event streams are open; close one first")
        self._open[token_name] += 1
        try:
            yield
        finally:
            self._open[token_name] -= 1

    def record_sent(self, batch: Sequence[Any]) -> None:
        """A batch was written to a client. History is not measured: nobody waited for it."""
        if isinstance(batch, EventPage) and batch.committed_at is not None:
            self.measure_lag(time.monotonic() - batch.committed_at)

    async def until_closing(self, work: Awaitable[object]) -> None:
        """Wait for the work, or until the server stops."""
        async with racing(work, self.closing.wait()) as (working, _):
            if working.done():
                working.result()

    async def while_valid(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application respond, until the server stops or the caller's token ends."""
        answer = _Answer(send)
        async with racing(self.until_closing(app(scope, receive, answer)), _signed_out(scope)) as (work, _):
            if work.done():
                work.result()
                return
        if not answer.started:
            check_still_valid(scope)
        await answer.end()

    def encoded(self, event: Event) -> bytes:
        """The event as it is sent, encoded once for all clients."""
        head = b"id: %d\nevent: %s\n" % (event.seq, event.type.encode())
        return self._encoded((event.run_id, event.seq), head, lambda: wire.Event.of(event))

    def encoded_run(self, run: Run, view: Callable[[Run], Any]) -> bytes:
        """The run as it is sent to clients that follow all runs."""
        return self._encoded((run.id, "version", run.version), b"event: run\n", lambda: view(run))

    def _encoded(self, key: Hashable, head: bytes, shown: Callable[[], Any]) -> bytes:
        if (known := self._cached.get(key)) is not None:
            return known
        text = head + b"data: %s\n\n" % msgspec.json.encode(shown())
        if len(text) <= _CACHED_EVENT_BYTES:
            self._cached[key] = text
            if len(self._cached) > _CACHED_EVENTS:
                del self._cached[next(iter(self._cached))]
        return text

    def encoded_inbox(self, page: InboxPage) -> bytes:
        """The pending questions as they are sent, encoded once for all clients."""
        if self._inbox is None or self._inbox[0] is not page:
            self._inbox = page, b"event: inbox\ndata: %s\n\n" % msgspec.json.encode(page.shown())
        return self._inbox[1]


class EventStream(Response):
    """A response that lasts until the run is final, the client leaves or the server stops. `encoded` encodes one event.

    A client that does not read delays only itself: its next events are fetched when it has room.
    """

    media_type = "text/event-stream"

    def __init__(self, streams: Streams, batches: Batches, token_name: str, encoded: Callable[[Any], bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._streams = streams
        self._batches = batches
        self._encoded = encoded
        self._token_name = token_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Before the response starts, so that one stream too many is refused with a problem.
        async with aclosing(self._batches):
            with self._streams.reserve(self._token_name):
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._until_over(scope, receive, send)

    async def _until_over(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = scope.get("extensions", {}).get(WRITE, lambda data: False)
        ends = (self._beat(send), until_disconnected(receive), _signed_out(scope), self._streams.closing.wait())
        async with racing(self._send_events(scope, send, write), *ends) as (sending, *_):
            pass
        with suppress(asyncio.CancelledError, Unavailable):
            sending.result()
        await _end(send)

    async def _send_events(self, scope: Scope, send: Send, write: Callable[[bytes], bool]) -> None:
        await send(_chunk(b": events\n\n"))
        async for events in self._batches:
            for number, piece in enumerate(_pieces(map(self._encoded, events))):
                if number:
                    # Nothing waits while there is room: let other tasks run.
                    await asyncio.sleep(0)
                # The periodic check ends quiet streams; nothing is sent in between.
                if not scope["still_valid"]():
                    return
                if not write(piece):
                    await send(_chunk(piece))
            self._streams.record_sent(events)

    async def _beat(self, send: Send) -> None:
        """Heartbeats, so that no proxy or client considers a quiet stream lost."""
        while True:
            await asyncio.sleep(self._streams.heartbeat_sec)
            await send(_chunk(b": alive\n\n"))


class _Answer:
    """Sends the response of another application, and completes it if the application is canceled."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self._complete = False

    async def __call__(self, message: Message) -> None:
        if self._complete:
            # The application noticed an error too late: the caller has its response.
            return
        self.started = True
        self._complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        if not self._complete:
            await _end(self._send)


async def _end(send: Send) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_END_SEC):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def one_by_one(pages: AsyncGenerator[InboxPage]) -> Batches:
    async with aclosing(pages):
        async for page in pages:
            yield (page,)


def _pieces(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Small events together in one piece, and large ones in several: a client that does not read holds one piece."""
    piece = b""
    for text in texts:
        piece += text
        if len(piece) >= _PIECE_BYTES:
            yield from (piece[at : at + _PIECE_BYTES] for at in range(0, len(piece), _PIECE_BYTES))
            piece = b""
    if piece:
        yield piece


def _chunk(body: bytes) -> dict[str, object]:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _signed_out(scope: Scope) -> None:
    """Returns when the token or session of the stream is no longer valid."""
    while True:
        await asyncio.sleep(_VALID_SEC)
        if not scope["still_valid"]():
            return
