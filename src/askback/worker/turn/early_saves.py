"""Saves the home of a run that has asked, while nobody waits for it: its reply then finds the snapshot already made.

An optimization: if the home is not saved early, the next turn saves it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from askback.background.pools import Pool
from askback.core.errors import AskbackError
from askback.core.runs import Run
from askback.process.locks import FileLock
from askback.workspace.layout import Workspace

log = logging.getLogger(__name__)

SETTLE_SEC = 0.05
"""A file that was modified in the last 20 ms counts as changed, and would be copied once more."""


class EarlySaves:
    """The early saves of this program, by run id."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Event] = {}
        """Set to give up a save that has not begun."""
        self._saving: dict[str, asyncio.Task[None]] = {}

    async def save(self, run: Run, workspace: Workspace, pool: Pool) -> None:
        """Save the home of a waiting run whose processes have all ended, unless its next turn begins first."""
        given_up = self._pending[run.id] = asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SEC):
                await given_up.wait()
        if self._pending.get(run.id) is given_up:
            del self._pending[run.id]
        if given_up.is_set():
            return
        saving = self._saving[run.id] = asyncio.ensure_future(_save(run, workspace, pool))
        try:
            await asyncio.wait({saving})
        finally:
            if self._saving.get(run.id) is saving:
                del self._saving[run.id]

    async def finish(self, run_id: str) -> None:
        """The run's next turn begins: wait for a save that has begun, and give up one that has not."""
        if (pending := self._pending.pop(run_id, None)) is not None:
            pending.set()
        if (saving := self._saving.get(run_id)) is not None:
            await asyncio.wait({saving})

    def give_up(self) -> None:
        """The program stops: begin no more saves."""
        for pending in self._pending.values():
            pending.set()


async def _save(run: Run, workspace: Workspace, pool: Pool) -> None:
    lock: FileLock | None = None
    try:
        # A run that was canceled meanwhile may have been deleted: its lock would create its folder again.
        if not workspace.started:
            return
        # Another program may have begun the next turn already. With the lock, none does before the home is saved.
        lock = FileLock.take(workspace.lock_path)
        if lock is not None:
            await pool.run(workspace.save_home_early, run.attempt_number + 1)
    except (AskbackError, OSError) as error:
        log.warning("the home could not be saved early; the next turn saves it: %s", error, extra={"run": run.id})
    finally:
        if lock is not None:
            lock.release()
