"""Deadlines of waiting runs: an indexed column, and one task that sleeps until the earliest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime

from askback.core.errors import Conflict, NotFound, Unavailable
from askback.core.signals import DeadlinePassed
from askback.store.base import Changes, Store, move

log = logging.getLogger(__name__)

_MAX_SLEEP_SEC = 60.0
"""A sleep uses the monotonic clock and a deadline the wall clock, which may be set during the sleep."""
_BATCH = 100


class Deadlines:
    def __init__(self, *, store: Store, owners: Collection[str], clock: Callable[[], datetime]) -> None:
        self._store = store
        self._owners = frozenset(owners)
        self._clock = clock

    async def run(self) -> None:
        changes = self._store.changes()
        try:
            while True:
                try:
                    await self._fire()
                    await self._sleep(changes)
                except Unavailable as error:
                    log.error("deadlines cannot be checked: %s", error.message)
                    await asyncio.sleep(_MAX_SLEEP_SEC)
        finally:
            changes.close()

    async def _fire(self) -> None:
        while runs := await self._store.overdue(self._owners, self._clock(), _BATCH):
            for run in runs:
                assert run.pending_interaction is not None
                signal = DeadlinePassed(interaction_id=run.pending_interaction.interaction_id, at=self._clock())
                # A reply came first.
                with suppress(Conflict, NotFound):
                    await move(self._store, run.id, signal, seen=run)

    async def _sleep(self, changes: Changes) -> None:
        """Until the earliest deadline, or until a run gets a new one."""
        deadline = await self._store.next_deadline(self._owners)
        seconds = None
        if deadline is not None:
            seconds = min(max((deadline - self._clock()).total_seconds(), 0), _MAX_SLEEP_SEC)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    changed = await changes.wait()
                    if any(run is None or run.wait_deadline_at is not None for run in changed.values()):
                        return
