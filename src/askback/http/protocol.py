"""HTTP/1.1 connections: uvicorn's, with problem details for invalid requests, timeouts, and a limit on connections."""

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
"""How long a client may take to send the head of a request, which includes its token."""
REST_SEC = 2.0
"""How long a refused client may continue to send its body. Closing at once could hide the response from it."""


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


class Protocol(H11Protocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
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
        """Authentication stores the grant in the scope."""
        return self.scope is not None and "grant" in self.scope

    def drop(self) -> None:
        self.transport.abort()

    def on_response_complete(self) -> None:
        self._all.answered(self)
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._all.left(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """An invalid request never reaches the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problem(HTTPStatus.BAD_REQUEST, "not a valid HTTP request, or its head is too long")
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


def protocol_with(connections: Connections) -> type[Protocol]:
    """The protocol of one server, which counts its connections."""
    logging.getLogger("uvicorn.error").addFilter(_INVALID_REQUESTS)

    class Counted(Protocol):
        _all = connections

    return Counted
