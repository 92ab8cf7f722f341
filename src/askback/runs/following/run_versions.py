"""Waiting for a change of one run. One listener serves everybody who waits; the store is read for foreign changes alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from askback.core.runs import Run
from askback.runs.following.shared_reader import SharedReader
from askback.store.base import UNKNOWN_RUN, Changes, RunStore


@dataclass(slots=True, eq=False)
class _Waiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    run: Run | None = None
    """The new version, if this process made the change."""


class RunVersions:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._waiters: dict[str, set[_Waiter]] = {}
        self._reader = SharedReader(store.changes, self._read)

    async def wait(self, run_id: str, until: Callable[[Run], bool]) -> Run:
        """The first version of the run that satisfies `until`, which every final run must."""
        waiter = _Waiter()
        self._waiters.setdefault(run_id, set()).add(waiter)
        try:
            with self._reader.followed() as news:
                run = await self._store.get(run_id)
                while not until(run):
                    if self._reader.ended:
                        await news()
                    await waiter.woken.wait()
                    waiter.woken.clear()
                    known, waiter.run = waiter.run, None
                    run = known or await self._store.get(run_id)
                return run
        finally:
            waiters = self._waiters[run_id]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[run_id]

    async def _read(self, changes: Changes) -> None:
        try:
            while True:
                changed = await changes.wait()
                known = self._waiters if UNKNOWN_RUN in changed else self._waiters.keys() & changed.keys()
                for run_id in list(known):
                    self._wake(run_id, changed.get(run_id))
        finally:
            for run_id in list(self._waiters):
                self._wake(run_id, None)

    def _wake(self, run_id: str, run: Run | None) -> None:
        for waiter in self._waiters[run_id]:
            waiter.run = run
            waiter.woken.set()
