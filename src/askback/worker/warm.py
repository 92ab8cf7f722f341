"""What a worker does for a resumable run between two turns: it keeps the process warm, or at least saves the home early.

The run is stored as if it had no process: it waits, without a worker. The task of its last turn keeps the process until
the run is claimed again by the same worker, or the pool drops it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress

from askback.background.pools import Abandoned, Checkpoint, Pool
from askback.core.errors import AskbackError
from askback.core.runs import Run, RunState, TurnKind
from askback.process.locks import FileLock
from askback.process.warm import DropReason, Parked
from askback.worker.claimed_run import ClaimedRun
from askback.worker.turn.context import TurnContext
from askback.worker.turn.execute import RunExecutor
from askback.workspace.layout import Workspace

log = logging.getLogger(__name__)

_SETTLING_SEC = 0.1
_EARLY_SEC = 0.05
"""A file that was modified in the last 20 ms counts as changed, and would be copied once more."""


class WarmWaits:
    """The pool, with the claimed run of each parked process."""

    def __init__(self, context: TurnContext, *, name: Callable[[], str], owners: Collection[str]) -> None:
        """`name` returns the name of this instance."""
        self.pool = context.warm
        self._context = context
        self._name = name
        self._owners = owners
        self._claims: dict[Parked, ClaimedRun] = {}

    def claim_of(self, parked: Parked) -> ClaimedRun | None:
        """The run as its task knows it; None for a prewarmed process, which has had no run yet."""
        return self._claims.get(parked)

    async def prepare(self, run: Run) -> None:
        """Before a turn in a new process: what is left of a warm one ends first, and there must be room."""
        is_on = self.pool.on and not run.sticky and self._context.warm_sec(run) > 0
        if run.next_turn.kind is TurnKind.REPLY and is_on:
            self.pool.misses += 1
        await self.pool.drop(run.id)
        await self.pool.make_room()

    def park(self, claim: ClaimedRun, executor: RunExecutor) -> bool:
        """Put the process of a waiting run into the pool, if it can be kept."""
        run, pid = claim.run, executor.warm_pid
        if run.state is not RunState.WAITING_USER or pid is None:
            return False
        claim.parked = self.pool.park(run.id, pid)
        if claim.parked is None:
            return False
        self._claims[claim.parked] = claim
        claim.was_warm = True
        return True

    async def wait(self, claim: ClaimedRun, executor: RunExecutor) -> bool:
        """Keep a parked process. True once its run has been claimed for another turn; False if it is to be ended."""
        parked = claim.parked
        assert parked is not None
        try:
            # Files that have just been written cannot be distinguished from files that change now: see `snapshots`.
            if not await executor.idle(parked.settled, _SETTLING_SEC):
                await executor.save_home(claim.run, parked.settled)
                await self.pool.measure(parked)
                self.pool.trim()
        except Exception as error:
            log.warning("a process is not kept: %s", error, extra={"run": claim.run.id})
            self.pool.give_up(parked, DropReason.LOST)
        if not await executor.idle(parked.settled, self._context.warm_sec(claim.run)):
            if self.pool.holds(parked):
                self.pool.give_up(parked, DropReason.LOST if executor.warm_pid is None else DropReason.EXPIRED)
            # Taken, but not claimed yet: the worker decides.
            await parked.settled.wait()
        if parked.claimed is None:
            return False
        self.pool.hits += 1
        self.leave(claim)
        return True

    def leave(self, claim: ClaimedRun) -> None:
        """The process has ended, or continues with the run as it was claimed."""
        parked, claim.parked = claim.parked, None
        if parked is None:
            return
        if parked.claimed is not None:
            claim.run, claim.has_slot = parked.claimed, True
        self._claims.pop(parked, None)
        self.pool.ended(parked)

    def notify_change(self, run: Run) -> None:
        """The run has changed, perhaps through another instance."""
        parked = self.pool.find(run.id)
        taken = run.worker is not None and run.worker != self._name()
        lost = run.state.final or taken or run.owner not in self._owners
        if parked is not None and lost:
            self.pool.give_up(parked, DropReason.RUN)


class EarlySaves:
    """Saves the home of a run that has asked, while nobody waits for it: its reply then finds the snapshot already made.

    An optimization: if the home is not saved early, the next turn saves it.
    """

    def __init__(self) -> None:
        self._saves: dict[str, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        """By run id. A save ends early once its event is set."""

    @property
    def run_ids(self) -> Collection[str]:
        return self._saves.keys()

    async def save(self, run: Run, workspace: Workspace, pool: Pool) -> None:
        """Save the home of a waiting run whose processes have all ended, unless it stops waiting first."""
        needless = asyncio.Event()
        saving = asyncio.ensure_future(_save(run, workspace, pool, needless))
        self._saves[run.id] = needless, saving
        try:
            await asyncio.wait({saving})
        finally:
            needless.set()
            if self._saves.get(run.id) == (needless, saving):
                del self._saves[run.id]

    def notify_change(self, run: Run) -> None:
        """The run has changed. One that was answered or canceled does not need its save any more."""
        if run.id in self._saves and run.state is not RunState.WAITING_USER:
            self._saves[run.id][0].set()

    async def end(self, run_id: str) -> None:
        """The run's next turn begins: give up its save, and wait until nothing writes to the snapshot."""
        if run_id in self._saves:
            needless, saving = self._saves[run_id]
            needless.set()
            await asyncio.wait({saving})

    def give_up(self) -> None:
        """The instance stops."""
        for needless, _ in self._saves.values():
            needless.set()


async def _save(run: Run, workspace: Workspace, pool: Pool, needless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_EARLY_SEC):
            await needless.wait()
            return
    try:
        await pool.run_unless(needless.wait, lambda checkpoint: _save_now(run, workspace, checkpoint))
    except Abandoned:
        return
    except (AskbackError, OSError) as error:
        log.warning("the home could not be saved early; the next turn saves it: %s", error, extra={"run": run.id})


def _save_now(run: Run, workspace: Workspace, checkpoint: Checkpoint) -> None:
    # A run that was canceled meanwhile may have been deleted: its lock would create its folder again.
    if not workspace.started:
        return
    # Another instance may have begun the next turn already. With the lock, none does before the home is saved.
    lock = FileLock.take(workspace.lock_path)
    if lock is None:
        return
    try:
        workspace.save_home_early(run.attempt_number + 1, checkpoint)
    finally:
        lock.release()
