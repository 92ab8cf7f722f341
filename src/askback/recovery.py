"""Runs whose program has died: what is left of their processes is ended, and they are restarted or failed.

Nothing reports the death of a program, so a server looks for it every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime

from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.core.runs import SHARED, Run, RunState
from askback.core.signals import Adopted, ProcessLost, TurnLost
from askback.process.fresh_folders import FreshFolders
from askback.process.locks import FileLock, Instances
from askback.process.tree import Tree
from askback.process.workspace import Workspaces
from askback.store.base import Store, move

log = logging.getLogger(__name__)

_CHECK_SEC = 5.0
_LOCK_POLL_SEC = 0.05
_LOCK_WAIT_SEC = 60.0
"""How long to wait for another program to finish its recovery; ending one run takes about ten seconds at most."""


class Recovery:
    """Restarts what dead programs left behind. Never touches the runs of a living program."""

    def __init__(
        self,
        *,
        store: Store,
        instances: Instances,
        workspaces: Workspaces,
        fresh_folders: FreshFolders,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._instances = instances
        self._workspaces = workspaces
        self._fresh_folders = fresh_folders
        self._clock = clock

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_SEC)
            try:
                await self.restart_all()
            except (Unavailable, OSError) as error:
                log.error("runs of dead programs cannot be restarted yet: %s", error)

    async def restart_all(self) -> None:
        """For a server: adopt the runs of dead programs, and restart those that were being executed."""
        await asyncio.to_thread(self._workspaces.remove_kept_sign_ins)
        await self._remove_fresh_folders()
        for owner in await self._store.owners():
            if owner != SHARED and not self._instances.is_alive(owner):
                await self._adopt_all_of(owner)
        for run in await self._store.held():
            if run.owner == SHARED:
                with suppress(NotFound):
                    await self.restart(run)
        await self._store.mend_queue()
        self._instances.forget_dead()

    async def _remove_fresh_folders(self) -> None:
        """Remove what prewarmed processes of killed programs left. Never the folder of a stored run."""
        for run_id in await asyncio.to_thread(self._fresh_folders.left_behind):
            try:
                await self._store.get(run_id)
            except NotFound:
                await asyncio.to_thread(self._fresh_folders.remove, run_id)
            else:
                self._fresh_folders.hand_over(run_id)

    async def restart(self, run: Run) -> Run:
        """Restart a run whose worker has died. Returns any other run unchanged."""
        if run.worker is None or self._instances.is_alive(run.worker):
            return run
        async with self._exclusive():
            now = await self._store.get(run.id)
            # Another program may have restarted it since; what is alive then belongs to its new turn.
            return await self._end(now) if (now.worker, now.epoch) == (run.worker, run.epoch) else now

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Only one program on the data folder restarts a run at a time."""
        lock = await self._lock()
        try:
            yield
        finally:
            lock.release()

    async def _lock(self) -> FileLock:
        try:
            async with asyncio.timeout(_LOCK_WAIT_SEC):
                lock = self._instances.take_exclusive()
                while lock is None:
                    await asyncio.sleep(_LOCK_POLL_SEC)
                    lock = self._instances.take_exclusive()
                return lock
        except TimeoutError:
            message = "another program on this data folder has been restarting runs for too long; end it and try again"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None

    async def _end(self, run: Run) -> Run:
        tree = Tree(mark=run.id, root=run.process, lock=self._workspaces.of(run.id).lock_path)
        if not await tree.end(grace_sec=0):
            log.error("what is left of a turn cannot be ended; the run is not restarted", extra={"run": run.id})
            return run
        await asyncio.to_thread(self._remove_sign_ins, run)
        lost = TurnLost if run.state is RunState.RUNNING else ProcessLost
        with suppress(Conflict):
            return await move(self._store, run.id, lost(epoch=run.epoch, at=self._clock()), seen=run)
        return await self._store.get(run.id)

    def _remove_sign_ins(self, run: Run) -> None:
        """Remove the sign-ins that an interrupted turn left. Renewed tokens are discarded: it is not known who wrote them."""
        try:
            self._workspaces.of(run.id).remove_sign_ins()
        except OSError as error:
            log.error("a sign-in cannot be removed from a run's home: %s", error, extra={"run": run.id})

    async def _adopt_all_of(self, owner: str) -> None:
        for run in await self._store.owned_by(owner):
            with suppress(Conflict, NotFound):
                signal = Adopted(owner=SHARED, left_by=owner, at=self._clock())
                await move(self._store, run.id, signal, seen=run)
