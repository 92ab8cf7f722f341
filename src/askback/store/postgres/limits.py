"""How long calls may take, and the thread that cuts a connection whose server does not answer.

A server that is alive keeps to the limits of its sessions. One that is suspended or unreachable does not, and on a local
socket no timer of the system notices it: only the client can end such a call.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from askback.background.loops import start_thread

log = logging.getLogger(__name__)

_LONGEST_TICK_SEC = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All in seconds."""

    patience_sec: float = 30.0
    """How long calls wait for a server that cannot be reached. Once it is away for longer, they fail at once."""
    answer_sec: float = 25.0
    """How long one transaction or read may take. Then the connection is cut."""
    least_sec: float = 5.0
    """How long it may always take, even if the patience of the call is over sooner, or the store is being closed."""
    statement_sec: float = 20.0
    """After this, the server ends a statement. 0: never."""
    idle_sec: float = 10.0
    """After this, the server ends a transaction whose client says nothing: nobody else waits for its locks."""

    @property
    def session(self) -> str:
        """Statements that set the limits of a session."""
        return (
            f"SET statement_timeout TO {round(1000 * self.statement_sec)};"
            f" SET idle_in_transaction_session_timeout TO {round(1000 * self.idle_sec)};"
        )


DEFAULT = Limits()


class Cuttable(Protocol):
    def cut(self) -> None:
        """End a call that another thread makes."""


class Watchdog:
    """Cuts connections whose call takes too long. Its thread sleeps while there are no calls."""

    def __init__(self, limits: Limits) -> None:
        self._tick_sec = min(limits.answer_sec / 10, _LONGEST_TICK_SEC)
        self._least_sec = limits.least_sec
        self._changed = threading.Condition()
        self._calls: dict[Cuttable, float] = {}
        self._thread: threading.Thread | None = None
        self._closing = False

    @contextmanager
    def limit(self, connection: Cuttable, seconds: float) -> Iterator[None]:
        """Cut the connection unless the block ends within this time."""
        with self._changed:
            if self._thread is None:
                self._thread = start_thread(self._run, name="askback-store-watchdog")
            self._calls[connection] = time.monotonic() + (min(seconds, self._least_sec) if self._closing else seconds)
            if len(self._calls) == 1:
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._calls.pop(connection, None)

    def close(self) -> None:
        """From now on, calls have only the least time. The thread ends with the last of them."""
        with self._changed:
            self._closing = True
            latest = time.monotonic() + self._least_sec
            self._calls = {connection: min(due, latest) for connection, due in self._calls.items()}
            self._changed.notify()

    def _run(self) -> None:
        while (late := self._next_late()) is not None:
            for connection in late:
                try:
                    connection.cut()
                except Exception:  # no error may end this thread: no other connection would be cut
                    log.exception("a connection to the database cannot be cut")

    def _next_late(self) -> list[Cuttable] | None:
        """The connections that are due, perhaps none; None if this is closed and nothing is left to watch."""
        with self._changed:
            if not self._calls and self._closing:
                self._thread = None
                return None
            self._changed.wait(self._tick_sec if self._calls else None)
            now = time.monotonic()
            late = [connection for connection, due in self._calls.items() if now >= due]
            for connection in late:
                del self._calls[connection]
            return late
