"""What is logged while the database or the file store cannot be used.

Every loop of an instance meets the same outage, again and again. One line says that it began, one a minute that it lasts, and
one that it is over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from askback.core.errors import AskbackError, RefusalCode
from askback.text.formatting import count

_REMINDER_SEC = 60.0
_DATABASE = frozenset({RefusalCode.STORE_UNUSABLE, RefusalCode.STORE_READ_ONLY})


@dataclass(slots=True)
class _Outage:
    logged_at: float
    silent: int = 0
    """Failures since the last line."""
    shown: bool = True
    """Whether a line says that it began."""
    over: bool = False


class Outages:
    """The outages of one instance. Can be used from any thread."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[str, _Outage] = {}
        self._changing = threading.Lock()

    def forget(self) -> None:
        """Forget all outages. Called before an instance starts in a process that had another one."""
        with self._changing:
            self._known.clear()

    def failed(
        self, log: logging.Logger, what: str, error: Exception, *, run: str | None = None, is_bug: bool = False
    ) -> None:
        """Log that something failed, unless the same outage has just been logged. `is_bug`: with the traceback."""
        other = f"{type(error).__name__} {getattr(error, 'errno', '')}"
        with self._changing:
            silent = self._record(_key(error.code) if isinstance(error, AskbackError) else other)
        if silent is None:
            return
        more = f"; {count(silent, 'more failure')} since the last line" if silent else ""
        trace = error if is_bug else None
        log.error("%s: %s%s", what, error, more, extra=None if run is None else {"run": run}, exc_info=trace)

    def _record(self, cause: str) -> int | None:
        """Count a failure. Returns how many were not logged since the last line; None if this one is not logged either."""
        outage = self._known.get(cause)
        if outage is None or self._now() - outage.logged_at >= _REMINDER_SEC:
            silent = 0 if outage is None or outage.over else outage.silent
            self._known[cause] = _Outage(logged_at=self._now())
            return silent
        if outage.over:
            # It comes and goes: the line that says so is at most a minute old.
            outage.over, outage.shown = False, False
        outage.silent += 1
        return None

    def begun(self, log: logging.Logger, code: RefusalCode, message: str, error: str = "") -> None:
        """Log that an outage has begun, before anything fails for it."""
        with self._changing:
            is_new = self._record(_key(code)) == 0
        if is_new:
            log.warning(message, extra={"error": error})

    def over(self, log: logging.Logger, code: RefusalCode, message: str) -> None:
        """Log the end of an outage, if its beginning was logged."""
        with self._changing:
            outage = self._known.get(_key(code))
            if outage is None or outage.over:
                return
            shown, outage.over = outage.shown, True
            failures, outage.silent = outage.silent, 0
        if shown:
            log.warning("%s%s", message, f"; not logged: {count(failures, 'more failure')}" if failures else "")


def _key(code: RefusalCode) -> str:
    return RefusalCode.STORE_UNUSABLE if code in _DATABASE else code


OUTAGES = Outages()
"""Those of this instance."""
