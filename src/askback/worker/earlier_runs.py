"""Stores the artifacts of runs that ended before the setting `files`, so that every server has them.

They are only in the folders of runs on the machine that executed them. `worker.sharing` stores the files of unfinished runs,
for which other machines wait; these here take as long as they take.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from askback.background.loops import keep_trying
from askback.background.pools import Pools
from askback.core.errors import NotFound
from askback.process.locks import FileLock
from askback.store.base import Store
from askback.worker.turn.prepare import turn_name
from askback.workspace.turn_artifacts import store_earlier
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

_RETRY_SEC = 10.0
NOTE = "earlier-runs-stored"
"""In the data folder, once nothing is left to do: later runs are stored as they end."""


class EarlierRuns:
    def __init__(self, *, store: Store, workspaces: Workspaces, pools: Pools, data_dir: Path) -> None:
        self._store = store
        self._workspaces = workspaces
        self._pools = pools
        self._note = data_dir / NOTE

    async def run(self) -> None:
        """Returns when everything is stored."""
        await keep_trying(self._attempt, log, "artifacts that only this machine has cannot be stored, trying again")

    async def _attempt(self) -> bool:
        done = await self._is_done()
        if not done:
            await asyncio.sleep(_RETRY_SEC)
        return done

    async def _is_done(self) -> bool:
        if await self._store.has_unshared_files():
            # A program has worked here without the setting.
            await asyncio.to_thread(self._note.unlink, missing_ok=True)
        elif await asyncio.to_thread(self._note.exists):
            return True
        left = [each for each in await asyncio.to_thread(self._workspaces.run_ids) if not await self._settle(each)]
        if left:
            return False
        await asyncio.to_thread(self._note.touch)
        log.info("the artifacts of all earlier runs on this machine are stored")
        return True

    async def _settle(self, run_id: str) -> bool:
        """Store the artifacts of one run, if nobody has them. False if it must be tried again."""
        try:
            run = await self._store.get(run_id)
        except NotFound:
            return True
        if not run.ended_unstored:
            return True
        workspace = self._workspaces.of(run_id)
        lock = await asyncio.to_thread(FileLock.take, workspace.lock_path)
        if lock is None:
            # Another program on this data folder is storing it, or removes it.
            return False
        try:
            await self._pools.turns.run(store_earlier, workspace, turn_name(run), admitted=True)
            await self._store.get(run_id)
        except NotFound:
            # It was deleted meanwhile.
            await asyncio.to_thread(self._workspaces.withdraw_stored, run_id)
        finally:
            lock.release()
        return True
