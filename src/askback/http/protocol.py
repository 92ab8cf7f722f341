"""HTTP/1.1 on the wire, as uvicorn reads it, with what it lacks: problems for what is no HTTP, and an end to waiting."""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from askback.http.app import SAFE_HEADERS
from askback.http.connections import LOG_EVERY_SEC, Connections
from askback.http.problems import problem

HEAD_SEC = 20.0
"""How long a client may take for the head of a request. Nobody has shown a token before that."""
REST_SEC = 2.0
"""How long a client that was refused may go on sending its body. At once would be too soon: it could miss the refusal."""


class _InvalidRequests(logging.Filter):
    """Lets one line a minute pass of those that anybody can cause."""

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


class Protocol(H11Protocol):
    """One connection."""

    _patience: asyncio.TimerHandle | None = None
    _all: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.came(self)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @property
    def is_trusted(self) -> bool:
        """The gate notes in the scope whom a request is from."""
        return self.scope is not None and "grant" in self.scope

    def drop(self) -> None:
        self.transport.abort()

    def on_response_complete(self) -> None:
        self._all.answered(self)
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self._all.left(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What cannot be read never reaches the application, which would say it like this."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem(HTTPStatus.BAD_REQUEST, "this is no HTTP request, or its head is too long")
            headers = [*answer.raw_headers, *SAFE_HEADERS, (b"connection", b"close")]
            self._write(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
            self._write(h11.Data(data=bytes(answer.body)))
            self._write(h11.EndOfMessage())
        if self.cycle is not None:
            # The head may have been fine: the application has the request, and nobody to answer it to.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def _write(self, event: h11.Event) -> None:
        self.transport.write(self.conn.send(event) or b"")

    def _watch(self) -> None:
        """Start the clock when the client owes us something that may never come, and stop it when it has come."""
        answered = self.cycle is not None and self.cycle.response_complete
        if self.transport.is_closing():
            self._rest()
        elif self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None:
            self._patience = self._patience or self.loop.call_later(HEAD_SEC, self.transport.close)
        elif self.conn.their_state is h11.SEND_BODY and answered:
            self._patience = self._patience or self.loop.call_later(REST_SEC, self.transport.close)
        else:
            self._rest()

    def _rest(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def protocol_with(connections: Connections) -> type[Protocol]:
    """The protocol of one server, whose connections are counted together."""
    logging.getLogger("uvicorn.error").addFilter(_INVALID_REQUESTS)

    class Counted(Protocol):
        _all = connections

    return Counted
