"""Deleting finished runs with everything that belongs to them: files, rows of the store, and uploads that only they used.

A mark is written first and removed last, so that a deletion that was interrupted is finished later.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Sequence
from typing import Self

from askback.background.pools import Pools
from askback.core.access import AuditEntry
from askback.core.errors import Conflict, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.store.base import RunStore
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
