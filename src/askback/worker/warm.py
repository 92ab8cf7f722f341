"""What keeps processes warm: for the next turn of a run that waits, and for the first turn of a run to come.

The task of a run's last turn keeps its process while the run waits, until the run is claimed again by the same worker or
the pool drops the process. The run is stored as if it had no process: it waits, without a worker.

A prewarmed process is in the folder of a run id that no run has yet, and takes no slot. A run that would start the same
process gets the id when it is submitted; the worker that claims the run takes the process. What nobody takes is replaced
after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from askback.background.loops import first_of
from askback.background.pools import Abandoned, Checkpoint, Pool
from askback.core.errors import AskbackError
from askback.core.runs import Mode, Run, RunState, TurnKind
from askback.engines.base import Probe
from askback.process.child import NotStarted
from askback.process.locks import FileLock
from askback.worker.claimed_run import ClaimedRun, Parked
from askback.worker.turn.context import TurnContext
from askback.worker.turn.execute import RunExecutor
from askback.worker.turn.prewarmed import CannotPrewarm, PrewarmedProcess, start_prewarmed
from askback.worker.warm_pool import DropReason
from askback.workspace.layout import Workspace
from askback.workspace.workspaces import FreshFolders

log = logging.getLogger(__name__)

MAX_AGE_SEC = 600.0
_CHECK_SEC = 15.0
_LOOK_SEC = 1.0
"""How often to see whether there is room again."""
_REST_SEC = 1.0
"""After one was taken, before the next is started: its start must not slow down the turn."""
_PAUSE_SEC = 30.0
"""After a start that failed, or a process that was lost or dropped for room, before the next one."""
_SETTLING_SEC = 0.1
_EARLY_SEC = 0.05
"""A file that was modified in the last 20 ms counts as changed, and would be copied once more."""


class WarmWaits:
    """Keeps the processes of waiting runs in the pool, each by the task of its last turn."""

    def __init__(self, context: TurnContext, *, name: Callable[[], str], owners: Collection[str]) -> None:
        """`name` returns the name of this instance."""
        self.pool = context.warm
        self._context = context
        self._name = name
        self._owners = owners

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
        claim.parked = self.pool.park(claim, pid)
        claim.was_warm |= claim.parked is not None
        return claim.parked is not None

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
            if self.pool.holds(parked):
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
        self.pool.ended(parked)

    def notify_change(self, run: Run) -> None:
        """The run has changed, perhaps through another instance."""
        parked = self.pool.find(run.id)
        taken = run.worker is not None and run.worker != self._name()
        lost = run.state.final or taken or run.owner not in self._owners
        if parked is not None and lost:
            self.pool.give_up(parked, DropReason.RUN)


class Prewarming:
    """`wanted`: how many processes of each engine are kept ready."""

    def __init__(
        self, context: TurnContext, folders: FreshFolders, *, wanted: Mapping[str, int], new_id: Callable[[], str]
    ) -> None:
        self._folders = folders
        self.hits = 0
        self.misses = 0
        self._context = context
        self._pool = context.warm
        self._wanted = {name: count for name, count in wanted.items() if count > 0}
        self._new_id = new_id
        self._ready: dict[str, PrewarmedProcess] = {}
        self._starting: Counter[str] = Counter()
        self._paused: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def count(self) -> int:
        """Processes that no run has yet."""
        return sum(not each.reserved for each in self._pool.prewarmed)

    def obstacle(self, name: str, probe: Probe) -> str | None:
        """Why no process of this engine can be prewarmed; None if it can."""
        return self._context.warm_obstacle(name, probe)

    # Submitting a run.

    def reserve(self, run: Run) -> str | None:
        """The id for a run that is about to be stored, if a process is ready that probably suits it."""
        if run.engine not in self._wanted or not self._context.may_take_prewarmed(run):
            return None
        for parked in self._pool.prewarmed:
            process = self._ready.get(parked.run_id)
            if parked.prewarmed == run.engine and not parked.reserved and process and not process.child.has_exited:
                parked.reserved = True
                return parked.run_id
        return None

    async def release(self, run_id: str, *, untouched: bool) -> None:
        """The run was not stored after all. `untouched`: its folder is as it was."""
        parked = self._pool.find(run_id)
        if parked is not None:
            parked.reserved = False
            if untouched:
                return
        await self._pool.drop(run_id)
        # If its process had ended before, nobody has removed the folder.
        await asyncio.to_thread(self._folders.remove, run_id)

    # Executing a run.

    def take(self, parked: Parked) -> PrewarmedProcess | None:
        """The process that a claimed run has taken out of the pool. From now on it belongs to the caller."""
        process = self._ready.pop(parked.run_id, None)
        if process is not None:
            self._pause(process.engine, _REST_SEC)
        return process

    def count_new_process(self, run: Run) -> None:
        """A turn of this run gets a new process."""
        if run.engine in self._wanted and run.mode is Mode.INTERACTIVE and run.starts_session:
            self.misses += 1

    def _count_use(self) -> None:
        self.hits += 1

    # Keeping processes ready.

    def stop(self) -> None:
        """Start no more processes, and keep none that is being started."""
        self._stopping = True

    def resume(self) -> None:
        """Keep processes ready again after `stop`."""
        self._stopping = False

    async def refill(self, group: asyncio.TaskGroup) -> None:
        """Start what is missing, one at a time, until this is canceled. The processes are kept by tasks of the group."""
        while self._wanted:
            self._wake.clear()
            if not self._stopping and not self._starting.total() and (name := self._missing()) is not None:
                self._starting[name] += 1
                group.create_task(self._keep(name))
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SEC):
                    await self._wake.wait()

    def _missing(self) -> str | None:
        now = asyncio.get_running_loop().time()
        have = Counter(parked.prewarmed for parked in self._pool.prewarmed)
        missing = (name for name, count in self._wanted.items() if have[name] < count)
        due = next((name for name in missing if self._paused.get(name, 0) <= now), None)
        return due if due is not None and self._pool.has_room() else None

    async def _keep(self, name: str) -> None:
        """Start a process, and keep it until it is taken or has to go. The only place that catches every exception."""
        try:
            process = await self._start(name)
            if process is not None:
                await self._hold(process)
        except Exception:
            log.exception("a prewarmed process of %s was given up", name)
            self._pause(name)
        finally:
            self._wake.set()

    async def _start(self, name: str) -> PrewarmedProcess | None:
        try:
            process = await start_prewarmed(self._context, self._folders, name, self._new_id(), on_use=self._count_use)
        except (CannotPrewarm, NotStarted, OSError, AskbackError) as error:
            if self._told.get(name) != str(error):
                log.warning("no process of %s can be prewarmed: %s", name, error)
            self._told[name] = str(error)
            self._pause(name)
            return None
        finally:
            self._starting[name] -= 1
        self._told.pop(name, None)
        return process

    async def _hold(self, process: PrewarmedProcess) -> None:
        pid = process.child.identity.pid
        parked = None if self._stopping else self._pool.park_prewarmed(process.run_id, pid, process.engine)
        try:
            if parked is not None:
                self._ready[process.run_id] = process
                self._wake.set()
                await self._pool.measure(parked)
                self._pool.trim()
                await self._settled(parked, process)
        finally:
            if parked is None or parked.claimed is None:
                self._ready.pop(process.run_id, None)
                await process.end(unused=parked is None or not parked.reserved)
            if parked is not None:
                self._pool.ended(parked)

    async def _settled(self, parked: Parked, process: PrewarmedProcess) -> None:
        """Wait until the process is taken or dropped; drop it when it is of no use any more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_AGE_SEC
        while not parked.settled.is_set():
            left = max(0.0, min(_CHECK_SEC, until - loop.time()))
            await first_of(parked.settled.wait, process.child.exited, timeout=left)
            if parked.settled.is_set() or (reason := await self._why_to_drop(process, until)) is None:
                continue
            if self._pool.holds(parked):
                self._pool.give_up(parked, reason)
                if reason is DropReason.LOST:
                    self._pause(process.engine)
            # Taken, but not claimed yet: the worker decides.
            await parked.settled.wait()
        if parked.claimed is None and not self._pool.has_room():
            self._pause(process.engine)

    async def _why_to_drop(self, process: PrewarmedProcess, until: float) -> DropReason | None:
        if process.child.has_exited:
            return DropReason.LOST
        old = asyncio.get_running_loop().time() >= until
        with suppress(OSError):
            return DropReason.EXPIRED if old or not await asyncio.to_thread(process.is_current) else None
        return DropReason.EXPIRED

    def _pause(self, name: str, seconds: float | None = None) -> None:
        until = asyncio.get_running_loop().time() + (_PAUSE_SEC if seconds is None else seconds)
        self._paused[name] = max(until, self._paused.get(name, 0))


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
