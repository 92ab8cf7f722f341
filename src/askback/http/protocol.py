"""HTTP connections below ASGI: uvicorn's protocol with our limits on headers, parsing, slow clients and connections."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from http import HTTPStatus
from typing import Any, Protocol

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from askback.http.app import SAFE_HEADERS
from askback.http.auth import DECIDED
from askback.http.problems import problem
from askback.http.streams import WRITE

HEAD_SEC = 20.0
"""How long a client may take to send the head of a request, which includes its token."""
REST_SEC = 2.0
"""How long a refused client may continue to send its body. Closing at once could hide the response from it."""


MAX_HEAD_BYTES = 16_384
"""Of the request line and all headers together."""
MAX_HEADERS = 100
MAX_PARAMETERS = 100
"""In the query. Decoding them takes time before it is known who asks."""
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_EVENTS = 32
"""How many parts of a request are parsed for one connection before it is the turn of another."""
_PARSE_SEC = 0.002
"""How long requests are parsed before the event loop does something else."""
_SMALL_BYTES = 16_384
_PASSES = 3
"""Of the event loop, until what had arrived with a new connection has been received: it is watched from the second one on."""


class _Http(h11.Connection):
    """Parses a limited number of events, and refuses every head that is too long or has too many headers.

    h11 itself parses everything that has arrived, and refuses a long head only if it is incomplete.
    """

    events_left = 0
    has_more = False
    """Whether parsing ended at the limit."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        self.has_more = self.events_left == 0
        if self.has_more:
            return h11.NEED_DATA
        self.events_left -= 1
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        return super().next_event()

    def _check_head(self, received: bytes) -> None:
        end = _END_OF_HEAD.search(received, 0, MAX_HEAD_BYTES)
        if end is None and len(received) > MAX_HEAD_BYTES:
            raise h11.RemoteProtocolError("the head is too long")
        if received.count(b"\n", 0, end.start() if end else MAX_HEAD_BYTES) > MAX_HEADERS:
            raise h11.RemoteProtocolError("the head has too many headers")
        if received.count(b"&", 0, max(received.find(b"\n", 0, MAX_HEAD_BYTES), 0)) >= MAX_PARAMETERS:
            raise h11.RemoteProtocolError("the query has too many parameters")


class _Flow(FlowControl):
    """Reads from a client while uvicorn has room for it, and the parser has caught up."""

    _full = False
    _behind = False

    def pause_reading(self) -> None:
        self._full = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._full = False
        if not self._behind:
            super().resume_reading()

    def set_behind(self, behind: bool) -> None:
        self._behind = behind
        if behind:
            super().pause_reading()
        elif not self._full:
            super().resume_reading()


class _Parsing:
    """Lets connections take turns in parsing what they have received, for a few milliseconds in each pass of the loop.

    One client can send tens of thousands of parts in one packet, and there can be hundreds of such clients.
    """

    def __init__(self) -> None:
        self._waiting: dict[ConnectionProtocol, None] = {}
        self._scheduled = False

    def add(self, connection: ConnectionProtocol) -> None:
        self._waiting[connection] = None
        if not self._scheduled:
            self._scheduled = True
            connection.loop.call_soon(self._run, connection.loop)

    def __contains__(self, connection: ConnectionProtocol) -> bool:
        return connection in self._waiting

    def discard(self, connection: ConnectionProtocol) -> None:
        self._waiting.pop(connection, None)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        until = loop.time() + _PARSE_SEC
        self._scheduled = False
        try:
            while self._waiting and loop.time() < until:
                connection = next(iter(self._waiting))
                del self._waiting[connection]
                connection.parse()
        finally:
            if self._waiting and not self._scheduled:
                self._scheduled = True
                loop.call_soon(self._run, loop)


class _InvalidRequests(logging.Filter):
    """Passes at most one of these log lines a minute: anybody can cause them."""

    def __init__(self) -> None:
        super().__init__()
        self._next_at = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg != "Invalid HTTP request received.":
            return True
        if time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + LOG_EVERY_SEC
        return True


_INVALID_REQUESTS = _InvalidRequests()


class ConnectionProtocol(H11Protocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _passes_left = _PASSES
    _has_responded = False
    _all: Connections
    _flow: _Flow
    conn: _Http

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = _Http(h11.SERVER, MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self._all.add(self)
        self._watch()
        self._count_passes()

    def _count_passes(self) -> None:
        if self._passes_left:
            self._passes_left -= 1
            self.loop.call_soon(self._count_passes)

    def data_received(self, data: bytes) -> None:
        if len(data) > _SMALL_BYTES or self in self._all.parsing:
            self._flow.set_behind(True)
        super().data_received(data)

    def handle_events(self) -> None:
        """Queue this connection for parsing."""
        self._all.parsing.add(self)

    def parse(self) -> None:
        """Parse some of what has arrived."""
        if self.transport.is_closing():
            return
        self.conn.events_left = _EVENTS
        super().handle_events()
        if self.conn.has_more:
            self._all.parsing.add(self)
        self._flow.set_behind(self.conn.has_more)
        self._watch()
        if self.scope is not None:
            extensions: dict[str, Any] = self.scope.setdefault("extensions", {})
            extensions[WRITE] = self.write_part

    def write_part(self, data: bytes) -> bool:
        """Write a part of a chunked response without the layers in between, for a stream with a thousand clients.

        False if that is not possible now, or the client does not read: then the part must be sent in the usual way.
        """
        cycle = self.cycle
        if cycle is None or cycle.disconnected or cycle.response_complete or self.flow.write_paused or not data:
            return False
        if self.conn.our_state is not h11.SEND_BODY or self.scope["http_version"] != "1.1":
            return False
        # What h11 would write: in this state, a part of a chunked body changes nothing else.
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    @property
    def is_trusted(self) -> bool:
        """Authentication stores the grant in the scope."""
        return self.scope is not None and "grant" in self.scope

    @property
    def is_read(self) -> bool:
        has_request = self.cycle is not None
        if has_request:
            return self._has_responded or DECIDED in self.cycle.scope
        return not self._passes_left and self not in self._all.parsing

    def drop(self) -> None:
        self.transport.abort()

    def on_response_complete(self) -> None:
        self._has_responded = True
        self._all.responded(self)
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._all.remove(self)
        self._all.parsing.discard(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """An invalid request never reaches the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            why = (
                f"not a valid HTTP request, or its head has more than {MAX_HEAD_BYTES:,} bytes, {MAX_HEADERS} headers"
                f" or {MAX_PARAMETERS} parameters"
            )
            answer = problem(HTTPStatus.BAD_REQUEST, why)
            headers = [*answer.raw_headers, *SAFE_HEADERS, (b"connection", b"close")]
            self._write(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
            self._write(h11.Data(data=bytes(answer.body)))
            self._write(h11.EndOfMessage())
        if self.cycle is not None:
            # The head may have been valid: then the application has the request, but cannot respond.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")

    def _watch(self) -> None:
        """Start a timer when the client has to send something, and stop it when that has arrived."""
        answered = self.cycle is not None and self.cycle.response_complete
        if self.transport.is_closing():
            self._stop_timer()
        elif self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._timer = self._timer or self.loop.call_later(HEAD_SEC, self.transport.close)
        elif self.conn.their_state is h11.SEND_BODY and answered:
            self._timer = self._timer or self.loop.call_later(REST_SEC, self.transport.close)
        else:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def protocol_with(connections: Connections) -> type[ConnectionProtocol]:
    """The protocol of one server, which counts its connections."""
    logging.getLogger("uvicorn.error").addFilter(_INVALID_REQUESTS)

    class Counted(ConnectionProtocol):
        _all = connections

    return Counted


log = logging.getLogger(__name__)

LOG_EVERY_SEC = 60.0
ACCEPT_FAILED = "socket.accept() out of system resource"
"""The message of asyncio when it cannot open a file for a new connection. It retries after a second."""


class Connection(Protocol):
    @property
    def is_trusted(self) -> bool:
        """Whether its latest request had a valid token or link."""
        ...

    @property
    def is_read(self) -> bool:
        """Whether it has had its chance: what it has sent is read, and it is decided whether its first request has a token."""
        ...

    def drop(self) -> None: ...


class Connections:
    """All connections of one server. Beyond `max_unauthenticated` without a token, the oldest of them is dropped.

    Age counts, not activity: an attacker can send a byte now and then. A new connection is never dropped in favour of an
    older one without a token, so its client has time to send one. None is dropped before what it has already sent has been read,
    unless there are more than `max_total`; so new ones must be accepted a few at a time.
    """

    def __init__(self, *, max_unauthenticated: int, max_total: int) -> None:
        self.parsing = _Parsing()
        self._max_unauthenticated = max_unauthenticated
        self._max_total = max_total
        self._all: set[Connection] = set()
        self._unauthenticated: dict[Connection, None] = {}
        """In the order in which they came, or lost their token."""
        self._log = RateLimitedLog()

    def add(self, connection: Connection) -> None:
        """Add a connection. It is dropped itself only if all others have a token."""
        self._all.add(connection)
        self._unauthenticated[connection] = None
        while (full := len(self._all) > self._max_total) or len(self._unauthenticated) > self._max_unauthenticated:
            oldest = next((each for each in self._unauthenticated if full or each.is_trusted or each.is_read), None)
            if oldest is None:
                break
            if oldest.is_trusted:
                del self._unauthenticated[oldest]
                continue
            self._log.warning("too many connections: dropping those without a token")
            self.remove(oldest)
            oldest.drop()

    def responded(self, connection: Connection) -> None:
        """A response was sent. Whether its request had a token decides how the connection counts until the next one."""
        if connection.is_trusted:
            self._unauthenticated.pop(connection, None)
        elif connection in self._all:
            self._unauthenticated[connection] = None

    def remove(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._unauthenticated.pop(connection, None)


class RateLimitedLog:
    """Logs at most one line a minute."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def warning(self, message: str, *args: object) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LOG_EVERY_SEC
            log.warning(message, *args)


class AcceptFaults:
    """An exception handler for the event loop. Logs at most once a minute that no connection can be accepted."""

    def __init__(self) -> None:
        self._log = RateLimitedLog()

    def __call__(self, loop: Any, context: dict[str, Any]) -> None:
        if context.get("message") == ACCEPT_FAILED:
            self._log.warning("cannot accept connections: %s; raise the limit of open files", context["exception"])
        else:
            loop.default_exception_handler(context)
