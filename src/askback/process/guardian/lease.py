"""Until when engines may live without another word from Askback, on the clock that also counts while a machine sleeps.

Used by both sides of the guardian's socket: standard library only.
"""

from __future__ import annotations

import time

CHECK_SEC = 0.5
"""A wait does not count the time that the machine sleeps, so the clock is read this often."""
_NEVER = float("inf")


def boottime() -> float:
    """Seconds since the machine was started."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """It never ends unless a deadline was set."""

    def __init__(self) -> None:
        self._deadline = _NEVER

    @property
    def deadline(self) -> float | None:
        return None if self._deadline == _NEVER else self._deadline

    def extend(self, deadline: float) -> None:
        self._deadline = deadline

    @property
    def is_over(self) -> bool:
        return self._deadline != _NEVER and boottime() >= self._deadline

    @property
    def wait_sec(self) -> float | None:
        """How long to wait before the next look; None if it never ends."""
        return None if self._deadline == _NEVER else min(max(self._deadline - boottime(), 0.0), CHECK_SEC)
