"""Deleting finished runs with everything that belongs to them: files, rows of the store, and uploads that only they used.

A mark is written first and removed last, so that a deletion that was interrupted is finished later.

`DeletedRuns` removes the files that this machine has of runs that were deleted on another one. Nothing reports a deletion, so
every program looks every few seconds which of the runs that have a folder here still exist. A folder is removed only if it is
marked: the mark says that the same database had the run once. So neither the files of a run that is just being created are
removed, nor those of runs of another database.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Collection, Sequence, Set
from typing import Self

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.core.access import AuditEntry
from askback.core.errors import Conflict, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.process.locks import FileLock
from askback.store.base import Store
from askback.store.visible import RunStore
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)


class Deletion:
    """The only way in which runs are deleted: on request, and by retention."""

    def __init__(self, *, store: RunStore, workspaces: Workspaces, uploads: Uploads, pools: Pools) -> None:
        self._store = store
        self._workspaces = workspaces
        self._uploads = uploads
        self._pools = pools

    def reading(self, store: RunStore) -> Self:
        """The same on another view of the store."""
        made = copy.copy(self)
        made._store = store
        return made

    async def delete(self, run_id: str, audit: AuditEntry | None = None) -> None:
        """Delete one run. Raises `Conflict` while it is not final."""
        run = await self._store.get(run_id)
        if not run.state.final:
            message = f"run {run.id} is {run.state}: only a run that is over can be deleted; cancel it first"
            raise Conflict(RefusalCode.RUN_NOT_FINAL, message)
        if not await self._pools.files.run(self._remove, run.id):
            message = f"the files of run {run.id} cannot be removed; the log of the server says why"
            raise Unavailable(RefusalCode.FILES_UNREMOVABLE, message)
        await self._forget([run.id], audit)

    async def delete_all(self, runs: Sequence[Run]) -> int:
        """Delete finished runs in one transaction. Returns their number; a run whose files cannot be removed is kept."""
        return await self._delete([run.id for run in runs])

    async def finish(self) -> None:
        """Finish the deletions that were interrupted."""
        await self._delete(await asyncio.to_thread(self._workspaces.marked_for_deletion))

    async def _delete(self, run_ids: Sequence[str]) -> int:
        return await self._forget([run_id for run_id in run_ids if await self._try_to_remove(run_id)])

    async def _try_to_remove(self, run_id: str) -> bool:
        """A run whose stored files cannot be reached now is deleted another time."""
        try:
            return await self._pools.sweeping.run(self._remove, run_id, admitted=True)
        except Unavailable as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
            return False

    def _remove(self, run_id: str) -> bool:
        """Files first: until they are gone, the run can still be found, and deleted again."""
        try:
            self._workspaces.mark_for_deletion(run_id)
            # The stored files of the run name its uploads. If the store is down, nothing is removed here, either.
            self._uploads.release(run_id)
            self._workspaces.remove_stored(run_id)
            self._workspaces.remove(run_id)
        except OSError as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
            return False
        return True

    async def _forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> int:
        if not run_ids:
            return 0
        forgotten = await self._store.forget(run_ids, audit)
        await asyncio.to_thread(self._workspaces.unmark, run_ids)
        return len(forgotten)


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
        found = await self._pool.run(self._run_ids, admitted=True)
        self._marked.intersection_update(found)
        for start in range(0, len(found), _BATCH):
            batch = found[start : start + _BATCH]
            # After the folders were listed: a run that is missing now was deleted, if it was there before.
            existing = await self._store.existing(batch)
            await self._pool.run(self._mark_and_remove, existing, set(batch) - existing, admitted=True)

    def _run_ids(self) -> list[str]:
        return sorted({*self._workspaces.run_ids(), *self._workspaces.marked_for_deletion()})

    def _mark_and_remove(self, existing: Set[str], deleted: Collection[str]) -> None:
        for run_id in existing - self._marked:
            self._workspaces.of(run_id).mark_stored()
        self._marked.update(existing)
        interrupted = set(self._workspaces.marked_for_deletion())
        for run_id in deleted:
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
