"""Time that passes when a test says so: for the clock on the program's wall, and for whoever sleeps in its loop."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from askback.app import opening


class PassingTime:
    """Of every program that is opened after this, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = timedelta()
        monkeypatch.setattr(opening, "wall_clock", self.now)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def passes(self, seconds: float) -> None:
        """Nobody waits: what was to be done in these seconds is due, also the end of a test's own patience."""
        self._ahead += timedelta(seconds=seconds)
        loop = asyncio.get_running_loop()
        before = loop.time
        loop.time = lambda: before() + seconds  # type: ignore[method-assign]
