"""Deleting finished runs, on request and by age and size, with everything that belongs to them.

That is their files, the rows of the store, and uploads that only they used. An unfinished run is never deleted.

A run is marked for deletion first and unmarked last, so that a deletion that was interrupted is finished later.

`DeletedRuns` removes the files that this machine has of runs that were deleted on another one. Nothing reports a deletion, so
every program looks every few seconds which of the runs that have a folder here still exist. A folder is removed only if it
names this database, which had the run once. So neither the files of a run that is just being created are
removed, nor those of runs of another database.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from askback.background.loops import keep_trying
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.core.access import AuditEntry
from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.core.runs import Run
from askback.process.locks import FileLock
from askback.store.base import Store
from askback.store.visible import RunStore
from askback.workspace.archives import RunArchives
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

_LOOK_SEC = 10.0
_MAX_SHARE = 0.02
"""Of the time: with very many folders, a look takes longer, and is made less often."""
_LOOKUP_BATCH = 500
_DAY_SEC = 86_400.0
_UPLOAD_SEC = _DAY_SEC
_LONGEST_PAUSE_SEC = 600.0
"""A sweep reads much."""
_AUDIT_BATCH = 500
_BATCH = 20
"""Runs are removed a few at a time, so that other writers wait for one batch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """The only way in which runs are deleted: on request, and by retention."""

    store: RunStore
    workspaces: Workspaces
    uploads: Uploads
    pools: Pools

    async def delete(self, run_id: str, audit: AuditEntry | None = None) -> None:
        """Delete one run. Raises `Conflict` while it is not final."""
        run = await self.store.get(run_id)
        if not run.state.final:
            message = f"run {run.id} is {run.state}: only a run that is over can be deleted; cancel it first"
            raise Conflict(RefusalCode.RUN_NOT_FINAL, message)
        if not await self.pools.files.run(self._remove, run.id):
            message = f"the files of run {run.id} cannot be removed; the log of the server says why"
            raise Unavailable(RefusalCode.FILES_UNREMOVABLE, message)
        await self._forget([run.id], audit)

    async def delete_all(self, run_ids: Sequence[str]) -> int:
        """Delete finished runs in one transaction. Returns their number; a run whose files cannot be removed stays."""
        return await self._forget([run_id for run_id in run_ids if await self._try_to_remove(run_id)])

    async def finish(self) -> None:
        """Finish the deletions that were interrupted."""
        await self.delete_all(await asyncio.to_thread(self.workspaces.marked_for_deletion))

    async def _try_to_remove(self, run_id: str) -> bool:
        """A run whose stored files cannot be reached now is deleted another time."""
        try:
            return await self.pools.sweeping.run(self._remove, run_id, admitted=True)
        except Unavailable as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
            return False

    def _remove(self, run_id: str) -> bool:
        """Files first: until they are gone, the run can still be found, and deleted again."""
        try:
            self.workspaces.mark_for_deletion(run_id)
            # The stored files of the run name its uploads. If the store is down, nothing is removed here, either.
            self.uploads.release(run_id)
            self.workspaces.remove_stored(run_id)
            self.workspaces.remove(run_id)
        except OSError as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
            return False
        return True

    async def _forget(self, run_ids: Sequence[str], audit: AuditEntry | None = None) -> int:
        if not run_ids:
            return 0
        forgotten = await self.store.forget(run_ids, audit)
        await asyncio.to_thread(self.workspaces.unmark, run_ids)
        return len(forgotten)


class DeletedRuns:
    def __init__(self, store: Store, deletion: Deletion) -> None:
        self._store = store
        self._deletion = deletion
        self._recorded: set[str] = set()
        """Runs whose folders are known to name our database."""

    async def run(self) -> None:
        async def look() -> None:
            began = time.monotonic()
            await self.sweep()
            await asyncio.sleep(max(_LOOK_SEC, (time.monotonic() - began) / _MAX_SHARE))

        await keep_trying(look, log, "files of deleted runs cannot be removed")

    async def sweep(self) -> None:
        """Remove what is left of deleted runs."""
        spaces = self._deletion.workspaces
        found = await self._deletion.pools.sweeping.run(
            lambda: sorted({*spaces.run_ids(), *spaces.marked_for_deletion()}), admitted=True
        )
        self._recorded.intersection_update(found)
        for start in range(0, len(found), _LOOKUP_BATCH):
            batch = found[start : start + _LOOKUP_BATCH]
            # After the folders were listed: a run that is missing now was deleted, if it was there before.
            existing = await self._store.existing(batch)
            await self._deletion.pools.sweeping.run(
                self._record_and_remove, existing, set(batch) - existing, admitted=True
            )

    def _record_and_remove(self, existing: Set[str], deleted: Collection[str]) -> None:
        for run_id in existing - self._recorded:
            self._deletion.workspaces.of(run_id).record_database()
        self._recorded.update(existing)
        interrupted = set(self._deletion.workspaces.marked_for_deletion())
        for run_id in deleted:
            if run_id in interrupted or self._deletion.workspaces.of(run_id).has_our_database:
                self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        """Remove the files of a deleted run, unless a process of it is alive."""
        lock = FileLock.take(self._deletion.workspaces.of(run_id).lock_path)
        if lock is None:
            return
        try:
            # If this is interrupted, the folder may no longer name the database.
            self._deletion.workspaces.mark_for_deletion(run_id)
            self._deletion.uploads.release_here(run_id)
            self._deletion.workspaces.remove(run_id)
            self._deletion.workspaces.unmark([run_id])
            log.info("the files of a deleted run were removed", extra={"run": run_id})
        except OSError as error:
            OUTAGES.failed(log, "the files of a deleted run cannot be removed", error, run=run_id)
        finally:
            lock.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long and how much is stored; None: no limit."""

    days: float | None = None
    max_bytes: int | None = None
    audit_days: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    store: Store
    deletion: Deletion
    policy: RetentionPolicy
    clock: Callable[[], datetime]
    archives: RunArchives | None = None
    _sweeping: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self) -> None:
        """Remove what is too old now, then every day. For the leader of all servers."""
        await self._daily(self._sweep_all)

    async def tidy(self) -> None:
        """Remove what is left over in the folders of this machine now, then every day."""
        await self._daily(self._sweep_folders)

    async def _daily(self, sweep: Callable[[], Awaitable[None]]) -> None:
        async def sweep_and_sleep() -> None:
            # What one of them deletes is not looked at by the other.
            async with self._sweeping:
                await sweep()
            await asyncio.sleep(_DAY_SEC)

        await keep_trying(sweep_and_sleep, log, "old runs cannot be removed", longest_pause_sec=_LONGEST_PAUSE_SEC)

    async def sweep(self) -> None:
        await self._sweep_folders()
        await self._sweep_all()

    async def _sweep_folders(self) -> None:
        await self.deletion.pools.sweeping.run(self.deletion.uploads.sweep, _UPLOAD_SEC)
        await self.deletion.finish()
        await self._sweep_strays()
        # A killed program may have left what a run needs only until it is over, such as sign-ins.
        async for runs in self._over():
            await asyncio.to_thread(self._close, runs)

    async def _sweep_all(self) -> None:
        if self.archives is not None:
            await self.archives.sweep(self.store.get, self.clock())
        if self.policy.audit_days is not None:
            before = self.clock() - timedelta(days=self.policy.audit_days)
            while await self.store.expire_audit(before, _AUDIT_BATCH) == _AUDIT_BATCH:
                pass
        removed = 0
        if self.policy.days is not None:
            removed += await self._sweep_old(self.clock() - timedelta(days=self.policy.days))
        if self.policy.max_bytes is not None:
            removed += await self._sweep_large(self.policy.max_bytes)
        if removed:
            log.info("old runs removed: %d", removed)

    async def _sweep_strays(self) -> None:
        """A crash while a run is submitted leaves files of a run that does not exist."""
        before = self.clock().timestamp() - _UPLOAD_SEC
        for run_id in await self.deletion.pools.sweeping.run(self.deletion.workspaces.never_started, before):
            try:
                await self.store.get(run_id)
            except NotFound:
                await self.deletion.pools.sweeping.run(self._remove, run_id)

    def _close(self, runs: Sequence[Run]) -> None:
        for run in runs:
            try:
                self.deletion.workspaces.of(run.id).close()
            except OSError as error:
                log.error("files that a finished run does not need cannot be removed: %s", error, extra={"run": run.id})

    async def _sweep_old(self, before: datetime) -> int:
        removed = 0
        async for runs in self._over():
            # They are ordered by creation, and no run finishes before it is created.
            removed += await self.deletion.delete_all(
                [run.id for run in runs if run.finished_at and run.finished_at < before]
            )
            if runs[-1].created_at >= before:
                break
        return removed

    async def _sweep_large(self, max_bytes: int) -> int:
        sizes = await self.deletion.pools.sweeping.run(self.deletion.workspaces.sizes)
        if self.archives is not None:
            # The file store has a copy of what is on the disk: the larger of the two counts.
            stored = await self.archives.sizes()
            sizes = {each: max(sizes.get(each, 0), stored.get(each, 0)) for each in sizes.keys() | stored.keys()}
        excess = sum(sizes.values()) - max_bytes
        removed = 0
        async for runs in self._over():
            chosen: list[str] = []
            for run in runs:
                if excess > 0 and sizes.get(run.id):
                    chosen.append(run.id)
                    excess -= sizes[run.id]
            removed += await self.deletion.delete_all(chosen)
            if excess <= 0:
                break
        return removed

    async def _over(self) -> AsyncIterator[Sequence[Run]]:
        cursor: str | None = None
        while True:
            page = await self.store.over(cursor, _BATCH)
            if page.items:
                yield page.items
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def _remove(self, run_id: str) -> None:
        try:
            self.deletion.workspaces.withdraw(run_id)
        except OSError as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
