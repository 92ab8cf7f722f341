"""How many connections there may be. Those that have shown no valid token are the first to go, the oldest before all."""

from __future__ import annotations

import logging
import time
from typing import Any, Protocol

log = logging.getLogger(__name__)

LOG_EVERY_SEC = 60.0
ACCEPT_FAILED = "socket.accept() out of system resource"
"""How asyncio words that there is no file left for a new connection. It tries again after a second by itself."""


class Connection(Protocol):
    @property
    def is_trusted(self) -> bool:
        """Whether its latest request came with a valid token or link."""
        ...

    def drop(self) -> None: ...


class Connections:
    """All connections of one server. Beyond `most_strangers` without a token the oldest of those is dropped.

    Age counts, not activity: sending a byte now and then costs a stranger nothing. A new connection is never dropped for
    an older one without a token, so its client has the time to show one.
    """

    def __init__(self, *, most_strangers: int, most: int) -> None:
        self._most_strangers = most_strangers
        self._most = most
        self._all: dict[Connection, int] = {}
        """Each with its number in the order of arrival."""
        self._arrived = 0
        self._strangers: dict[Connection, None] = {}
        self._log = Rarely()

    def came(self, connection: Connection) -> None:
        """A new one. It is dropped itself only where all others have shown a token."""
        self._arrived += 1
        self._all[connection] = self._arrived
        self._strangers[connection] = None
        while self._are_too_many():
            dropped = min(self._strangers, key=self._all.__getitem__)
            if dropped.is_trusted:
                del self._strangers[dropped]
                continue
            self._log.warning("there are too many connections: those without a token are dropped")
            self.left(dropped)
            dropped.drop()

    def answered(self, connection: Connection) -> None:
        """A request was answered: whether it had a token decides what the connection counts as until the next one."""
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
    """Logs one line a minute, however often it is asked to."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def warning(self, message: str, *args: object) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + LOG_EVERY_SEC
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
