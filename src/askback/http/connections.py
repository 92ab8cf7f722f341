"""A limit on connections. The oldest connection without a valid token is dropped first."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

log = logging.getLogger(__name__)

LOG_EVERY_SEC = 60.0
ACCEPT_FAILED = "socket.accept() out of system resource"
"""The message of asyncio when it cannot open a file for a new connection. It retries after a second."""


class Connection(Protocol):
    @property
    def is_trusted(self) -> bool:
        """Whether its latest request had a valid token or link."""
        ...

    def drop(self) -> None: ...


class Connections:
    """All connections of one server. Beyond `most_strangers` without a token, the oldest of them is dropped.

    Age counts, not activity: an attacker can send a byte now and then. A new connection is never dropped in favour of an
    older one without a token, so its client has time to send one.
    """

    def __init__(self, *, most_strangers: int, most: int) -> None:
        self._most_strangers = most_strangers
        self._most = most
        self._all: dict[Connection, int] = {}
        """Each with its number, in the order of arrival."""
        self._arrived = 0
        self._strangers: dict[Connection, None] = {}
        self._log = Rarely()

    def came(self, connection: Connection) -> None:
        """Add a connection. It is dropped itself only if all others have a token."""
        self._arrived += 1
        self._all[connection] = self._arrived
        self._strangers[connection] = None
        while self._are_too_many():
            dropped = min(self._strangers, key=self._all.__getitem__)
            if dropped.is_trusted:
                del self._strangers[dropped]
                continue
            self._log.warning("too many connections: dropping those without a token")
            self.left(dropped)
            dropped.drop()

    def answered(self, connection: Connection) -> None:
        """A response was sent: whether its request had a token decides how the connection counts until the next one."""
        if connection.is_trusted:
            self._strangers.pop(connection, None)
        elif connection in self._all:
            self._strangers[connection] = None

    def left(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        self._strangers.pop(connection, None)

    def _are_too_many(self) -> bool:
        too_many = len(self._strangers) > self._most_strangers or len(self._all) > self._most
        return too_many and bool(self._strangers)


class Rarely:
    """Logs at most one line a minute."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def warning(self, message: str, *args: object) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LOG_EVERY_SEC
            log.warning(message, *args)


class AcceptFaults:
    """An exception handler for the event loop that rarely logs that no connection can be accepted."""

    def __init__(self) -> None:
        self._log = Rarely()

    def __call__(self, loop: Any, context: dict[str, Any]) -> None:
        if context.get("message") == ACCEPT_FAILED:
            self._log.warning("cannot accept connections: %s; raise the limit of open files", context["exception"])
        else:
            loop.default_exception_handler(context)
