"""The worker: takes queued runs from the queue while it has slots, claims them, and executes their turns.

The task that executed a turn may keep its process warm while the run waits (`worker.warm`). Its slot is free then. The next
claim of the run hands it to that task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from askback.background.loops import retry
from askback.background.outages import OUTAGES
from askback.cluster.slots import Slots
from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.core.parking import would_avoid
from askback.core.runs import Run, RunState
from askback.core.signals import (
    LimitKnown,
    ProcessLost,
    ProcessTreeEnded,
    Signal,
    SlotAcquired,
    TurnProcess,
)
from askback.store.base import move
from askback.store.pages import UNKNOWN_RUN, StaleWrite
from askback.store.turns import Room, Ticket
from askback.worker.claimed_run import ClaimedRun, Parked, StopReason
from askback.worker.machine import MachineHealth
from askback.worker.turn.context import TurnContext
from askback.worker.turn.execute import RunExecutor, executing
from askback.worker.turn.prewarmed import PrewarmedProcess
from askback.worker.warm import EarlySaves, Prewarming, WarmWaits
from askback.worker.warm_pool import DropReason

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SEC = 2.0
"""How long to wait before the store is tried again."""


class Worker:
    """Executes the runs of `owners`, under the name of its instance."""

    def __init__(
        self,
        *,
        name: Callable[[], str],
        owners: Collection[str],
        slots: Slots,
        context: TurnContext,
        prewarming: Prewarming,
        machine: MachineHealth,
    ) -> None:
        self._name = name
        self._owners = owners
        self._slots = slots
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._warm = WarmWaits(context, name=name, owners=self._owners)
        self._prewarming = prewarming
        self._machine = machine
        self._early_saves = EarlySaves()
        self._active: dict[str, ClaimedRun] = {}
        self._executing: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._queue = self._store.turns(self._owners)
        self._stopping = False
        self._suspended = False
        self._draining = False
        self.ended = asyncio.Event()
        """The last turn has ended after `drain` or `stop`."""

    @property
    def draining(self) -> bool:
        """Whether no more runs are claimed."""
        return self._draining or self._stopping

    @property
    def problem(self) -> RefusalCode | None:
        """Why no runs are claimed for now."""
        return self._machine.problem

    @property
    def active(self) -> frozenset[str]:
        """The runs that it executes, or whose resident process it keeps."""
        return frozenset(self._active)

    def look_again(self) -> None:
        """Look at the whole queue: turns that were left may be taken now."""
        self._queue.notify({UNKNOWN_RUN: None})
        self._wake.set()

    def drain(self) -> None:
        """Claim no more runs, and end when the last turn has ended. Processes that only wait for a run are ended."""
        self._draining = True
        for claim in self._active.values():
            claim.draining = True
        self._prewarming.stop()
        self._warm.pool.drop_all(DropReason.STOP)
        self._wake.set()

    def stop(self) -> None:
        """Claim no more runs; turns in progress are ended and go back to the queue."""
        self._stopping = True
        for claim in self._active.values():
            claim.stop(StopReason.SHUTDOWN)
        self._early_saves.give_up()
        self._prewarming.stop()
        self._warm.pool.drop_all(DropReason.STOP)
        self._wake.set()

    async def suspend(self) -> None:
        """Stop at once, whatever the turns wait for, and store nothing more for their runs. Claim none until `resume`.

        Returns when no process is alive, also none that is kept warm.
        """
        self._suspended = True
        for claim in self._active.values():
            claim.stop(StopReason.LEASE_LOST)
        self._early_saves.give_up()
        self._prewarming.stop()
        self._warm.pool.drop_all(DropReason.STOP)
        executing = list(self._executing)
        for task in executing:
            task.cancel()
        if executing:
            await asyncio.wait(executing)
        await self._warm.pool.emptied()

    def resume(self) -> None:
        """Claim runs again, under the new name of this instance."""
        self._suspended = False
        if not self.draining:
            self._prewarming.resume()
        self.look_again()

    async def run(self) -> None:
        """Work until `stop` or `drain` is called; returns when the last turn has ended."""
        changes = self._store.changes()
        try:
            async with asyncio.TaskGroup() as group:
                services = (
                    self._listen(changes.wait),
                    self._look_again_when_well(),
                    self._queue.tend(self._wake.set),
                    self._warm.pool.watch(),
                    self._prewarming.refill(group),
                )
                background = [group.create_task(each) for each in services]
                while not self._stopping and (self._active or not self._draining):
                    self._wake.clear()
                    await self._claim(group)
                    await self._wake.wait()
                for task in background:
                    task.cancel()
        finally:
            changes.close()
            await self._queue.close()
            self.ended.set()

    async def _look_again_when_well(self) -> None:
        while True:
            await self._machine.recovered()
            self.look_again()

    async def _listen(self, wait: Callable[[], Awaitable[Mapping[str, Run | None]]]) -> None:
        while True:
            changed = await wait()
            for run_id in self._active.keys() & changed.keys() if UNKNOWN_RUN not in changed else list(self._active):
                await self._notify_change(run_id, changed.get(run_id))
            await self._notify_warm(changed)
            if self._queue.notify(changed):
                self._wake.set()

    async def _notify_change(self, run_id: str, run: Run | None) -> None:
        """Pass a change on to the run's executor, and stop it if the run is to be canceled."""
        if run is None:
            try:
                run = await self._retrying("reading a changed run", run_id, lambda: self._store.get(run_id))
            except (NotFound, Unavailable):
                return
        claim = self._active.get(run_id)
        if claim is None:
            return
        if run.cancel_requested:
            claim.stop(StopReason.CANCEL)
        claim.notify_change(run)

    async def _notify_warm(self, changed: Mapping[str, Run | None]) -> None:
        """Drop the warm processes of runs that are over, or that another instance executes from now on, and needless saves."""
        known = {*self._warm.pool.run_ids, *self._early_saves.run_ids}
        for run_id in known & changed.keys() if UNKNOWN_RUN not in changed else known:
            with suppress(NotFound, Unavailable):
                run = changed.get(run_id) or await self._store.get(run_id)
                self._warm.notify_change(run)
                self._early_saves.notify_change(run)

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        """Claim runs while there are slots. Each is tried once: another worker may be faster."""
        tried: set[tuple[str, int]] = set()
        try:
            while self._claims and self._slots.free > 0:
                engines = {engine: self._slots.free_of(engine) for engine in self._context.setups}
                room = Room(total=self._slots.free, engines=engines, shares=self._slots.shares)
                tickets = await self._queue.take(room)
                names = {(ticket.run.id, ticket.run.epoch) for ticket in tickets}
                if not self._claims or names <= tried:
                    for ticket in tickets:
                        self._queue.put_back(ticket)
                    return
                tried |= names
                await self._claim_all(tickets, group)
        except Unavailable as error:
            OUTAGES.failed(log, "no runs can be claimed", error)
            asyncio.get_running_loop().call_later(_RETRY_SEC, self._wake.set)

    @property
    def _claims(self) -> bool:
        return not (self.draining or self._suspended or self._machine.problem)

    async def _claim_all(self, tickets: Sequence[Ticket], group: asyncio.TaskGroup) -> None:
        """A claimed run is executed even if the claim of another one failed."""
        claims = await asyncio.gather(*(self._claim_one(ticket) for ticket in tickets), return_exceptions=True)
        for claimed in claims:
            if isinstance(claimed, tuple):
                run, parked = claimed
                resumed = parked is not None and parked.resume(run)
                if parked is not None and not resumed:
                    self._claim_anew(run)
                if parked is None or not resumed:
                    group.create_task(self._execute(run))
                elif parked.prewarmed:
                    group.create_task(self._execute(run, self._prewarming.take(parked)))
        for failed in claims:
            if isinstance(failed, BaseException):
                raise failed

    async def _claim_one(self, ticket: Ticket) -> tuple[Run, Parked | None] | None:
        """The claimed run, and its warm process if there is one.

        None if another worker has the run, it is over already, or no slot is left for its engine.
        """
        run = ticket.run
        if would_avoid(run) and await self._avoids_limit(ticket):
            return None
        if not self._slots.take(run.engine, run.created_by):
            self._queue.put_back(ticket)
            return None
        parked = self._warm.pool.take(run.id)
        try:
            signal = SlotAcquired(worker=self._name(), at=self._clock(), process=_process_of(parked))
            claimed = await move(self._store, run.id, signal, seen=run, shares=self._slots.shares)
        except BaseException as error:
            self._slots.release(run.engine, run.created_by)
            if parked is not None:
                self._warm.pool.give_up(parked, DropReason.RUN)
            if not isinstance(error, Conflict | NotFound):
                self._queue.put_back(ticket)
                raise
            if error.code is RefusalCode.QUOTA_EXCEEDED:
                # Not yet: its token has as many slots as it may have.
                self._queue.put_back(ticket)
            else:
                self._queue.done(ticket)
            return None
        self._queue.claimed(ticket)
        known = None if parked is None else parked.claim
        self._active[run.id] = known or ClaimedRun(claimed)
        return claimed, parked

    async def _avoids_limit(self, ticket: Ticket) -> bool:
        """Park the run instead of claiming it if its turn would only meet a limit that is known."""
        run, at = ticket.run, self._clock()
        parked = await self._store.parked(run.engine, at)
        known = [each.parking for each in parked if each.parking is not None and not each.env_names]
        longest = max(known, key=lambda each: each.until, default=None)
        if longest is None or longest.until <= at:
            return False
        signal = LimitKnown(limit=longest.limit, until=longest.until, at=at)
        with suppress(Conflict, NotFound):
            run = await move(self._store, run.id, signal, seen=run)
            if run.in_queue:
                return False
        self._queue.done(ticket)
        return True

    def _claim_anew(self, run: Run) -> None:
        """The warm process of the run was given up while the run was claimed: its claim ends with it, and has no slot."""
        before = self._active[run.id]
        self._active[run.id] = ClaimedRun(run)
        if before.stop_reason is not None:
            self._active[run.id].stop(before.stop_reason)

    async def _execute(self, run: Run, prewarmed: PrewarmedProcess | None = None) -> None:
        """Execute turns until the run ends, is queued again or waits without a process. The only place that catches every exception."""
        claim = self._active[run.id]
        self._pass_on_stop(claim)
        task = asyncio.current_task()
        assert task is not None
        self._executing.add(task)
        try:
            if prewarmed is None:
                self._prewarming.count_new_process(run)
                await self._early_saves.end(run.id)
                await self._warm.prepare(run)
            async with executing(self._context, claim, prewarmed) as executor:
                await self._turns(claim, executor)
                while not self.draining and self._warm.park(claim, executor):
                    self._let_go(claim)
                    if not await self._warm.wait(claim, executor):
                        break
                    self._pass_on_stop(claim)
                    await self._turns(claim, executor)
            if claim.run.state.final and (claim.run.env_names or claim.run.workdir):
                await asyncio.to_thread(self._close, claim.run)
        except (Exception, asyncio.CancelledError) as fault:
            await self._fail(claim, _innermost(fault))
        finally:
            self._executing.discard(task)
            self._warm.leave(claim)
            self._let_go(claim)
        waits = claim.run.state is RunState.WAITING_USER and not claim.run.sticky
        if waits and not claim.was_warm and not self._stopping:
            workspace = self._context.workspaces.of(run.id)
            await self._early_saves.save(claim.run, workspace, self._context.pools.saving)

    def _pass_on_stop(self, claim: ClaimedRun) -> None:
        """`drain`, `stop` or `suspend` may have gone through the runs in progress while the claim of this one was being stored."""
        claim.draining |= self._draining
        if self._stopping:
            claim.stop(StopReason.SHUTDOWN)
        if self._suspended or claim.run.worker != self._name():
            claim.stop(StopReason.LEASE_LOST)

    async def _turns(self, claim: ClaimedRun, executor: RunExecutor) -> None:
        while claim.run.state is RunState.RUNNING or (claim.run.sticky and claim.run.state is RunState.WAITING_USER):
            claim.check_lease()
            step = self._one_turn if claim.run.state is RunState.RUNNING else self._one_wait
            claim.run = await step(claim, executor)

    def _let_go(self, claim: ClaimedRun) -> None:
        """Release the run's slot."""
        if not claim.has_slot:
            return
        claim.has_slot = False
        # A run that was queued again may have been claimed again by now.
        if self._active.get(claim.run.id) is claim:
            del self._active[claim.run.id]
        self._slots.release(claim.run.engine, claim.run.created_by)
        self._wake.set()

    async def _fail(self, claim: ClaimedRun, fault: BaseException) -> None:
        """A fault while the process was only kept warm ends the process, and no more."""
        self._warm.leave(claim)
        if claim.stop_reason is StopReason.LEASE_LOST:
            log.warning("a run is left to other programs: the lease of this one is lost", extra={"run": claim.run.id})
            return
        if isinstance(fault, asyncio.CancelledError):
            raise fault
        if claim.has_slot:
            await self._give_up(claim.run, fault)
        else:
            log.error("a warm process was given up: %s", fault, extra={"run": claim.run.id})

    def _close(self, run: Run) -> None:
        """Remove at once what could contain the run's secret variables. What fails is left to the next sweep."""
        try:
            self._context.workspaces.of(run.id).close()
        except OSError as error:
            log.error("files that a finished run does not need cannot be removed: %s", error, extra={"run": run.id})

    async def _one_wait(self, claim: ClaimedRun, executor: RunExecutor) -> Run:
        """Keep the resident process of a sticky run that waits."""
        run = claim.run

        async def hold() -> Run:
            held = await executor.hold(run)
            claim.check_lease()
            if isinstance(held, Run):
                return held
            try:
                ended = await move(self._store, run.id, held)
            except Conflict:
                # A reply came first: its turn finds that the process has ended.
                return await self._store.get(run.id)
            await self._drop_archive(run, ended)
            return ended

        return await self._retrying("keeping a resident process", run.id, hold)

    async def _one_turn(self, claim: ClaimedRun, executor: RunExecutor) -> Run:
        run = claim.run
        try:
            signal: Signal = await self._machine.classify_result(run, await executor.turn(run))
        except* (StaleWrite, Conflict) as lost:
            raise RuntimeError(f"this worker no longer holds run {run.id}") from lost
        except* Exception as fault:
            signal = await self._machine.classify_exception(run, _innermost(fault))

        async def store_end() -> Run:
            claim.check_lease()
            # The last known state of the run is most likely current.
            return await move(self._store, run.id, signal, seen=claim.newest)

        # The end of a turn is not lost because the disk is full: it is stored as soon as possible.
        ended = await self._retrying("storing the end of a turn", run.id, store_end)
        await self._drop_archive(run, ended)
        return ended

    async def _drop_archive(self, before: Run, now: Run) -> None:
        """Remove what is no longer needed of the run from the file store. What fails is left to the next sweep."""
        if self._context.archives is not None:
            await self._context.archives.delete(before.kept, now)
            if now.state.final:
                await self._context.archives.delete_pad(now)

    async def _give_up(self, run: Run, fault: BaseException) -> None:
        """Release a run that we cannot execute: nobody else restarts it while we hold it."""
        if self._stopping and isinstance(fault, Unavailable):
            log.error("a run is left to the next program: %s", fault.message, extra={"run": run.id})
            return
        log.error("a run was given up: %s", fault, extra={"run": run.id})
        try:
            await self._retrying("releasing a run", run.id, lambda: self._release(run, fault))
        except (Conflict, NotFound):
            return
        except Exception:
            log.exception("a run is left to the next program", extra={"run": run.id})

    async def _release(self, given_up: Run, fault: BaseException) -> None:
        run = await self._store.get(given_up.id)
        if run.worker == self._name() and run.epoch == given_up.epoch:
            await move(self._store, run.id, await self._loss(run, fault), seen=run)

    async def _retrying(self, what: str, run_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry while the store is unavailable, until the worker is stopped."""
        failed: RefusalCode | None = None

        def retries(error: Exception) -> bool:
            nonlocal failed
            if not isinstance(error, Unavailable) or self._stopping:
                return False
            failed = error.code
            OUTAGES.failed(log, f"{what} failed, trying again", error, run=run_id)
            return True

        result = await retry(attempt, retries=retries, pause=lambda: asyncio.sleep(_RETRY_SEC))
        if failed is not None:
            OUTAGES.over(log, failed, f"{what} works again")
        return result

    async def _loss(self, run: Run, fault: BaseException) -> Signal:
        if run.cancel_requested or run.expired:
            return ProcessTreeEnded(epoch=run.epoch, at=self._clock())
        if run.state is RunState.RUNNING:
            return await self._machine.classify_exception(run, fault)
        return ProcessLost(epoch=run.epoch, at=self._clock())


def _process_of(parked: Parked | None) -> TurnProcess:
    if parked is None:
        return TurnProcess.NEW
    return TurnProcess.PREWARMED if parked.prewarmed else TurnProcess.WARM


def _innermost(fault: BaseException) -> BaseException:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault
