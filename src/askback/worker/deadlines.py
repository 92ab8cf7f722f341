"""Deadlines of waiting runs, and the times of parked ones: an indexed column, and one task that sleeps until the earliest.

A deadline is announced before it passes, unless it was near from the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta

from askback.background.loops import keep_trying
from askback.core.errors import Conflict, NotFound
from askback.core.runs import Run
from askback.core.signals import DeadlineNear, DeadlinePassed, ParkEnded
from askback.store.base import Store, move
from askback.store.listeners import Changes

log = logging.getLogger(__name__)

_MAX_SLEEP_SEC = 60.0
"""A sleep uses the monotonic clock and a deadline the wall clock, which may be set during the sleep."""
_ELSEWHERE_SEC = 0.25
"""Changes by other processes are looked at with this delay, many at once: few of them set a deadline."""
_BATCH = 100


class Deadlines:
    """Deadlines are announced `announce_sec` before they pass; 0: never."""

    def __init__(
        self, *, store: Store, owners: Collection[str], clock: Callable[[], datetime], announce_sec: float = 0
    ) -> None:
        self._store = store
        self._owners = owners
        self._clock = clock
        self._announced = timedelta(seconds=announce_sec)

    async def run(self) -> None:
        changes = self._store.changes()

        async def fire_and_sleep() -> None:
            await self._fire()
            await self._sleep(changes)

        try:
            await keep_trying(fire_and_sleep, log, "deadlines cannot be checked")
        finally:
            changes.close()

    async def _fire(self) -> None:
        while runs := await self._store.overdue(self._owners, self._clock(), _BATCH):
            for run in runs:
                await self._move(run, _due(run, self._clock()))
        if not self._announced:
            return
        while runs := await self._store.expiring(self._owners, self._clock(), self._announced, _BATCH):
            for run in runs:
                await self._move(run, DeadlineNear(interaction_id=_question(run), at=self._clock()))

    async def _move(self, run: Run, signal: DeadlinePassed | DeadlineNear | ParkEnded) -> None:
        # A reply came first.
        with suppress(Conflict, NotFound):
            await move(self._store, run.id, signal, seen=run)

    async def _next(self) -> datetime | None:
        """When a deadline passes, or is to be announced."""
        times = [await self._store.next_deadline(self._owners)]
        if self._announced:
            near = await self._store.next_expiring(self._owners, self._clock(), self._announced)
            times.append(None if near is None else near - self._announced)
        return min((each for each in times if each is not None), default=None)

    async def _sleep(self, changes: Changes) -> None:
        """Until something is to be done, or until a run gets a new deadline."""
        at = await self._next()
        seconds = None
        if at is not None:
            seconds = min(max((at - self._clock()).total_seconds(), 0), _MAX_SLEEP_SEC)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    changed = await changes.wait()
                    if any(run is not None and (run.wait_deadline_at or run.not_before) for run in changed.values()):
                        return
                    if any(run is None for run in changed.values()):
                        await asyncio.sleep(_ELSEWHERE_SEC)
                        return


def _due(run: Run, at: datetime) -> DeadlinePassed | ParkEnded:
    return ParkEnded(at=at) if run.not_before else DeadlinePassed(interaction_id=_question(run), at=at)


def _question(run: Run) -> str:
    assert run.pending_interaction is not None
    return run.pending_interaction.interaction_id
