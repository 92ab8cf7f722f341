"""Removes the files that this machine has of runs that were deleted on another one.

Nothing reports a deletion, so every program looks every few seconds which of the runs that have a folder here still exist.
A folder is removed only if it is marked: the mark says that the same database had the run once. So neither the files of a
run that is just being created are removed, nor those of runs of another database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.process.locks import FileLock
from askback.store.base import Store
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

_LOOK_SEC = 10.0
_MAX_SHARE = 0.02
"""Of the time: with very many folders, a look takes longer, and is made less often."""
_BATCH = 500


class DeletedRuns:
    def __init__(self, *, store: Store, workspaces: Workspaces, uploads: Uploads, pools: Pools) -> None:
        self._store = store
        self._workspaces = workspaces
        self._uploads = uploads
        self._pool = pools.sweeping
        self._marked: set[str] = set()
        """Folders that are known to have the mark."""

    async def run(self) -> None:
        await keep_trying(self._look, log, "files of deleted runs cannot be removed")

    async def _look(self) -> None:
        began = time.monotonic()
        await self.sweep()
        await asyncio.sleep(max(_LOOK_SEC, (time.monotonic() - began) / _MAX_SHARE))

    async def sweep(self) -> None:
        """Remove what is left of deleted runs."""
        found = await self._pool.run(self._found, admitted=True)
        self._marked.intersection_update(found)
        for start in range(0, len(found), _BATCH):
            batch = found[start : start + _BATCH]
            # After the folders were listed: a run that is missing now was deleted, if it was there before.
            existing = await self._store.existing(batch)
            await self._pool.run(self._mark, existing - self._marked, admitted=True)
            await self._pool.run(self._remove_all, set(batch) - existing, admitted=True)

    def _found(self) -> list[str]:
        return sorted({*self._workspaces.run_ids(), *self._workspaces.marked_for_deletion()})

    def _mark(self, run_ids: Collection[str]) -> None:
        for run_id in run_ids:
            self._workspaces.of(run_id).mark_stored()
        self._marked.update(run_ids)

    def _remove_all(self, run_ids: Collection[str]) -> None:
        interrupted = set(self._workspaces.marked_for_deletion())
        for run_id in run_ids:
            if run_id in interrupted or self._workspaces.of(run_id).is_marked:
                self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        """Remove the files of a deleted run, unless a process of it is alive."""
        lock = FileLock.take(self._workspaces.of(run_id).lock_path)
        if lock is None:
            return
        try:
            # If this is interrupted, the folder may have lost its mark.
            self._workspaces.mark_for_deletion(run_id)
            self._uploads.release_here(run_id)
            self._workspaces.remove(run_id)
            self._workspaces.unmark([run_id])
            log.info("the files of a deleted run were removed", extra={"run": run_id})
        except OSError as error:
            OUTAGES.failed(log, "the files of a deleted run cannot be removed", error, run=run_id)
        finally:
            lock.release()
