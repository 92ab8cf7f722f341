"""Removes finished runs by age and size, old uploads, and old entries of the audit log. Never removes an unfinished run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from askback.background.loops import keep_trying
from askback.background.pools import Pools
from askback.core.errors import NotFound
from askback.core.runs import Run
from askback.runs.deletion import Deletion
from askback.store.base import Store
from askback.workspace.archives import RunArchives
from askback.workspace.uploads import Uploads
from askback.workspace.workspaces import Workspaces

log = logging.getLogger(__name__)

_DAY_SEC = 86_400.0
_UPLOAD_SEC = _DAY_SEC
_LONGEST_PAUSE_SEC = 600.0
"""A sweep reads much."""
_AUDIT_BATCH = 500
_BATCH = 20
"""Runs are removed a few at a time, so that other writers wait for one batch at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long and how much is stored; None: no limit."""

    days: float | None = None
    max_bytes: int | None = None
    audit_days: float | None = None


class Retention:
    def __init__(
        self,
        *,
        store: Store,
        workspaces: Workspaces,
        uploads: Uploads,
        deletion: Deletion,
        policy: RetentionPolicy,
        clock: Callable[[], datetime],
        pools: Pools,
        archives: RunArchives | None = None,
    ) -> None:
        self._store = store
        self._archives = archives
        self._workspaces = workspaces
        self._uploads = uploads
        self._deletion = deletion
        self._policy = policy
        self._clock = clock
        self._pool = pools.sweeping
        self._sweeping = asyncio.Lock()

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
        await self._pool.run(self._uploads.sweep, _UPLOAD_SEC)
        await self._deletion.finish()
        await self._sweep_strays()
        # A killed program may have left what a run needs only until it is over, such as sign-ins.
        async for runs in self._over():
            await asyncio.to_thread(self._close, runs)

    async def _sweep_all(self) -> None:
        if self._archives is not None:
            await self._archives.sweep(self._store.get, self._clock())
        if self._policy.audit_days is not None:
            before = self._clock() - timedelta(days=self._policy.audit_days)
            while await self._store.expire_audit(before, _AUDIT_BATCH) == _AUDIT_BATCH:
                pass
        removed = 0
        if self._policy.days is not None:
            removed += await self._sweep_old(self._clock() - timedelta(days=self._policy.days))
        if self._policy.max_bytes is not None:
            removed += await self._sweep_large(self._policy.max_bytes)
        if removed:
            log.info("old runs removed: %d", removed)

    async def _sweep_strays(self) -> None:
        """A crash while a run is submitted leaves files of a run that does not exist."""
        before = self._clock().timestamp() - _UPLOAD_SEC
        for run_id in await self._pool.run(self._workspaces.never_started, before):
            try:
                await self._store.get(run_id)
            except NotFound:
                await self._pool.run(self._remove, run_id)

    def _close(self, runs: Sequence[Run]) -> None:
        for run in runs:
            try:
                self._workspaces.of(run.id).close()
            except OSError as error:
                log.error("files that a finished run does not need cannot be removed: %s", error, extra={"run": run.id})

    async def _sweep_old(self, before: datetime) -> int:
        removed = 0
        async for runs in self._over():
            # They are ordered by creation, and no run finishes before it is created.
            removed += await self._deletion.delete_all(
                [run for run in runs if run.finished_at and run.finished_at < before]
            )
            if runs[-1].created_at >= before:
                break
        return removed

    async def _sweep_large(self, max_bytes: int) -> int:
        sizes = await self._sizes()
        excess = sum(sizes.values()) - max_bytes
        removed = 0
        async for runs in self._over():
            chosen: list[Run] = []
            for run in runs:
                if excess > 0 and sizes.get(run.id):
                    chosen.append(run)
                    excess -= sizes[run.id]
            removed += await self._deletion.delete_all(chosen)
            if excess <= 0:
                break
        return removed

    async def _sizes(self) -> Mapping[str, int]:
        """By run id: on the disk, or in the file store if that is more. The one is a copy of the other."""
        sizes = await self._pool.run(self._workspaces.sizes)
        stored = {} if self._archives is None else await self._archives.sizes()
        return {run_id: max(sizes.get(run_id, 0), stored.get(run_id, 0)) for run_id in sizes.keys() | stored.keys()}

    async def _over(self) -> AsyncIterator[Sequence[Run]]:
        cursor: str | None = None
        while True:
            page = await self._store.over(cursor, _BATCH)
            if page.items:
                yield page.items
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    def _remove(self, run_id: str) -> None:
        try:
            self._workspaces.withdraw(run_id)
        except OSError as error:
            log.error("the files of a run cannot be removed: %s", error, extra={"run": run_id})
