"""How many connections there may be. Those that have shown no valid token are the first to go."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

log = logging.getLogger(__name__)

_LOG_EVERY_SEC = 60.0
ACCEPT_FAILED = "socket.accept() out of system resource"
"""How asyncio words that there is no file left for a new connection. It tries again after a second by itself."""


class Connection(Protocol):
    @property
    def is_idle(self) -> bool:
        """Whether no answer is being made."""
        ...

    @property
    def is_trusted(self) -> bool:
        """Whether a request on it came with a valid token or link."""
        ...

    def drop(self) -> None: ...


class Connections:
    """All connections of one server. Beyond `most_strangers` without a token the one that is idle the longest goes."""

    def __init__(self, *, most_strangers: int, most: int) -> None:
        self._most_strangers = most_strangers
        self._most = most
        self._all: set[Connection] = set()
        self._strangers: dict[Connection, None] = {}
        self._log = Rarely()

    def came(self, connection: Connection) -> None:
        """A new one. It is dropped itself where there is no other to drop."""
        self._all.add(connection)
        self._strangers[connection] = None
        while len(self._strangers) > self._most_strangers or len(self._all) > self._most:
            self._log.warning("there are too many connections: those without a token are dropped")
            dropped = next(filter(self._may_go, list(self._strangers)), connection)
            self.left(dropped)
            dropped.drop()

    def left(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._strangers.pop(connection, None)

    def _may_go(self, connection: Connection) -> bool:
        if connection.is_trusted:
            del self._strangers[connection]
            return False
        return connection.is_idle


class Rarely:
    """Logs one line a minute, however often it is asked to."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def warning(self, message: str, *args: object) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _LOG_EVERY_SEC
            log.warning(message, *args)


class AcceptFaults:
    """A handler for the loop's faults that says only now and then that no connection can be accepted."""

    def __init__(self) -> None:
        self._log = Rarely()

    def __call__(self, loop: Any, context: dict[str, Any]) -> None:
        if context.get("message") == ACCEPT_FAILED:
            self._log.warning("no connection can be accepted: %s; raise the limit of open files", context["exception"])
        else:
            loop.default_exception_handler(context)
