"""The clock of a database, read by a machine whose own clock may be wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def boottime() -> float:
    """Seconds since the machine was started, in which it may have slept. Nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_clock() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    """Keeps its estimate as long as measurements confirm it: it does not jump with the delays of the network."""

    def __init__(self, elapsed: Callable[[], float] = boottime) -> None:
        self._elapsed = elapsed
        self._origin: datetime | None = None
        """The time of the database when `elapsed` was 0."""

    def measure(self, reported: datetime, began: float, ended: float) -> None:
        """The database has reported its time, as it was at some moment between two readings of `elapsed`."""
        latest = reported - timedelta(seconds=began)
        earliest = reported - timedelta(seconds=ended)
        if self._origin is None or not earliest <= self._origin <= latest:
            self._origin = earliest + (latest - earliest) / 2

    def error(self) -> timedelta:
        """What must be added to the clock of this machine."""
        if self._origin is None:
            return timedelta()
        return self._origin + timedelta(seconds=self._elapsed()) - wall_clock()
