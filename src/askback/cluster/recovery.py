"""Runs whose instance has died: what is left of their processes is ended, and they are restarted or failed.

Nothing reports the death of an instance, so a server looks for it every few seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from askback.background.loops import keep_trying
from askback.cluster.instances import Instances
from askback.core.errors import Conflict, NotFound
from askback.core.runs import SHARED, Run, RunState
from askback.core.signals import Adopted, ProcessLost, TurnLost
from askback.process.tree import Tree, boot_id
from askback.store.base import Store, move
from askback.workspace.workspaces import FreshFolders, Workspaces

log = logging.getLogger(__name__)

_CHECK_SEC = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Restarts what dead instances left behind. Never touches the runs of a living instance."""

    store: Store
    instances: Instances
    workspaces: Workspaces
    fresh_folders: FreshFolders
    clock: Callable[[], datetime]
    check_sec: float | None = None
    """How often the leader looks for runs of dead instances."""

    async def run(self) -> None:
        """Recover every few seconds while this instance is the leader of all servers."""
        await self._repeat(self._restart_lost, self.check_sec or _CHECK_SEC)

    async def tidy(self) -> None:
        """Every few seconds, for every server: remove what killed instances of this machine left in its folders."""
        await self._repeat(self._remove_leftovers, _CHECK_SEC)

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause_sec: float) -> None:
        async def wait_and_work() -> None:
            await asyncio.sleep(pause_sec)
            await work()

        await keep_trying(wait_and_work, log, "runs of dead programs cannot be restarted yet")

    async def restart_all(self) -> None:
        """For a server: adopt the runs of dead instances, and restart those that were being executed."""
        await self._remove_leftovers()
        await self._restart_lost()

    async def _remove_leftovers(self) -> None:
        await asyncio.to_thread(self.workspaces.remove_left_sign_ins)
        await self._remove_fresh_folders()
        await self.instances.forget_dead()

    async def _restart_lost(self) -> None:
        owners = set(await self.store.owners()) - {SHARED}
        for owner in owners - await self.instances.alive(owners):
            await self._adopt_all_of(owner, SHARED)
        workers = set(await self.store.workers())
        dead = workers - await self.instances.alive(workers) if workers else workers
        for run in await self.store.held(dead) if dead else ():
            if run.owner == SHARED:
                with suppress(NotFound):
                    await self.restart(run)
        await self.store.repair_queue()

    async def _remove_fresh_folders(self) -> None:
        """Remove what prewarmed processes of killed instances left. Never the folder of a stored run."""
        noted = await asyncio.to_thread(self.fresh_folders.noted)
        alive = await self.instances.alive(set(noted.values()))
        left = [run_id for run_id, instance in noted.items() if instance not in alive]
        for run_id in await asyncio.to_thread(self.fresh_folders.unused, left):
            try:
                await self.store.get(run_id)
            except NotFound:
                await asyncio.to_thread(self.fresh_folders.remove, run_id)
            else:
                self.fresh_folders.hand_over(run_id)

    async def restart(self, run: Run) -> Run:
        """Restart a run whose worker has died. Returns any other run unchanged."""
        if run.worker is None or await self.instances.alive({run.worker}):
            return run
        async with self.instances.exclusive():
            now = await self.store.get(run.id)
            # Another instance may have restarted it since; what is alive then belongs to its new turn.
            return await self._end(now) if (now.worker, now.epoch) == (run.worker, run.epoch) else now

    async def take_back(self, left_by: str) -> None:
        """Continue the runs that this instance owned under its last name, unless another instance has adopted them."""
        for run in await self._adopt_all_of(left_by, self.instances.name):
            with suppress(NotFound):
                await self.restart(run)

    async def _end(self, run: Run) -> Run:
        # On another machine, its guardian ended the turn before the lease of its instance was over.
        if run.process is None or run.process.boot_id == boot_id():
            tree = Tree(mark=run.id, root=run.process, lock=self.workspaces.of(run.id).lock_path)
            if not await tree.end(grace_sec=0):
                log.error("what is left of a turn cannot be ended; the run is not restarted", extra={"run": run.id})
                return run
        try:
            # What an interrupted turn left. Renewed tokens are discarded: it is not known who wrote them.
            await asyncio.to_thread(self.workspaces.of(run.id).remove_sign_ins)
        except OSError as error:
            log.error("a sign-in cannot be removed from a run's home: %s", error, extra={"run": run.id})
        lost = TurnLost if run.state is RunState.RUNNING else ProcessLost
        with suppress(Conflict):
            return await move(self.store, run.id, lost(epoch=run.epoch, at=self.clock()), seen=run)
        return await self.store.get(run.id)

    async def _adopt_all_of(self, owner: str, by: str) -> Sequence[Run]:
        adopted = []
        for run in await self.store.owned_by(owner):
            with suppress(Conflict, NotFound):
                signal = Adopted(owner=by, left_by=owner, at=self.clock())
                adopted.append(await move(self.store, run.id, signal, seen=run))
        return adopted
