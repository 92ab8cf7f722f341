"""After a crash: what another program left in the middle is ended for good and goes back to the queue."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from askback.core.errors import Conflict
from askback.core.runs import SHARED, Run, RunState
from askback.core.signals import Adopted, ProcessLost, TurnLost
from askback.process.locks import Programs
from askback.process.tree import Tree
from askback.process.workspace import Workspaces
from askback.store.base import Store, move

log = logging.getLogger(__name__)


class Recovery:
    """Takes up what dead programs left. A program that lives is never interfered with."""

    def __init__(
        self, *, store: Store, programs: Programs, workspaces: Workspaces, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._programs = programs
        self._workspaces = workspaces
        self._clock = clock

    async def take_up_all(self) -> None:
        """For a server's start: everything that no living program keeps is the server's from now on."""
        for keeper in await self._store.keepers():
            if keeper != SHARED and not self._programs.is_alive(keeper):
                await self._adopt_all_of(keeper)
        for run in await self._store.held():
            if run.keeper == SHARED:
                await self.take_up(run)
        self._programs.forget_dead()

    async def take_up(self, run: Run) -> Run:
        """Put back a run whose worker is dead; one that lives or is not held stays as it is."""
        if run.worker is None or self._programs.is_alive(run.worker):
            return run
        tree = Tree(mark=run.id, root=run.process, lock=self._workspaces.of(run.id).lock_path)
        if not await tree.end(grace_sec=0):
            log.error("what is left of a turn cannot be ended; the run is left alone", extra={"run": run.id})
            return run
        lost = TurnLost if run.state is RunState.RUNNING else ProcessLost
        with suppress(Conflict):
            return await move(self._store, run.id, lost(epoch=run.epoch, at=self._clock()), seen=run)
        return await self._store.get(run.id)

    async def _adopt_all_of(self, keeper: str) -> None:
        for run in await self._store.kept_by(keeper):
            with suppress(Conflict):
                await move(self._store, run.id, Adopted(keeper=SHARED, at=self._clock()), seen=run)
