"""After a crash: what another program left in the middle is ended for good and goes back to the queue.

A program may die at any time, and a server that runs already carries on what it kept. That is looked for again and
again: the death of a program tells nobody.
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
from askback.process.locks import FileLock, Instances
from askback.process.tree import Tree
from askback.process.workspace import Workspaces
from askback.store.base import Store, move

log = logging.getLogger(__name__)

_LOOK_SEC = 5.0
_TURN_SEC = 0.05
_MOST_SEC = 60.0
"""How long another program may be at it; to end what is left of one run takes some ten seconds at most."""


class Recovery:
    """Takes up what dead programs left. A program that lives is never interfered with."""

    def __init__(
        self, *, store: Store, programs: Instances, workspaces: Workspaces, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._programs = programs
        self._workspaces = workspaces
        self._clock = clock

    async def run(self) -> None:
        """For as long as a server runs."""
        while True:
            await asyncio.sleep(_LOOK_SEC)
            try:
                await self.restart_all()
            except (Unavailable, OSError) as error:
                log.error("what programs left behind cannot be taken up yet: %s", error)

    async def restart_all(self) -> None:
        """For a server: everything that no living program keeps is the server's from now on."""
        for owner in await self._store.owners():
            if owner != SHARED and not self._programs.is_alive(owner):
                await self._adopt_all_of(owner)
        for run in await self._store.held():
            if run.owner == SHARED:
                with suppress(NotFound):
                    await self.restart(run)
        self._programs.forget_dead()

    async def restart(self, run: Run) -> Run:
        """Put back a run whose worker is dead; one that lives or is not held stays as it is."""
        if run.worker is None or self._programs.is_alive(run.worker):
            return run
        async with self._alone():
            now = await self._store.get(run.id)
            # Somebody else may have done so since, and what lives of the run is a turn that was begun anew.
            return await self._end(now) if (now.worker, now.epoch) == (run.worker, run.epoch) else now

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Of all programs on the data folder one at a time takes up a run."""
        lock = await self._turn()
        try:
            yield
        finally:
            lock.release()

    async def _turn(self) -> FileLock:
        try:
            async with asyncio.timeout(_MOST_SEC):
                lock = self._programs.take_turn()
                while lock is None:
                    await asyncio.sleep(_TURN_SEC)
                    lock = self._programs.take_turn()
                return lock
        except TimeoutError:
            message = "another program on this data folder takes up what was left for too long; end it, and try again"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None

    async def _end(self, run: Run) -> Run:
        tree = Tree(mark=run.id, root=run.process, lock=self._workspaces.of(run.id).lock_path)
        if not await tree.end(grace_sec=0):
            log.error("what is left of a turn cannot be ended; the run is left alone", extra={"run": run.id})
            return run
        await asyncio.to_thread(self._remove_sign_ins, run)
        lost = TurnLost if run.state is RunState.RUNNING else ProcessLost
        with suppress(Conflict):
            return await move(self._store, run.id, lost(epoch=run.epoch, at=self._clock()), seen=run)
        return await self._store.get(run.id)

    def _remove_sign_ins(self, run: Run) -> None:
        """The turn did not come to it. What it renewed is lost: who wrote it last is not known."""
        try:
            self._workspaces.of(run.id).remove_sign_ins()
        except OSError as error:
            log.error("a sign-in cannot be removed from a run's home: %s", error, extra={"run": run.id})

    async def _adopt_all_of(self, owner: str) -> None:
        for run in await self._store.owned_by(owner):
            with suppress(Conflict, NotFound):
                signal = Adopted(owner=SHARED, left_by=owner, at=self._clock())
                await move(self._store, run.id, signal, seen=run)
