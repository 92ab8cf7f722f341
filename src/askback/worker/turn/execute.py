"""The turns of one run, for as long as a worker holds the run: prepare, execute, observe, verdict.

A resumable run gets a new process for every turn, which ends with the turn, unless it is kept warm for the next one. A
sticky run has one resident process from its first turn to its end, also while it waits. In all cases a turn is over, and
a run final, only when every process that should have ended has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

from askback.core.errors import RefusalCode, RunError, RunWarning, Unavailable
from askback.core.outcomes import TurnError, TurnOutcome
from askback.core.runs import Run, RunState, TurnKind
from askback.core.signals import ProcessLost, ProcessStarted, ProcessTreeEnded, TurnEnded, TurnLost
from askback.core.turns import ends_run
from askback.engines.base import Completed, Exit, TurnFailed
from askback.process.child import NotFrozen
from askback.store.base import move
from askback.worker.machine import REASONS
from askback.worker.run_control import RunControl, StopReason
from askback.worker.turn.context import TurnContext
from askback.worker.turn.deferring import note_deferred
from askback.worker.turn.early_saves import SETTLE_SEC
from askback.worker.turn.file_names import mask_names
from askback.worker.turn.holding import after_question, instruct
from askback.worker.turn.keeping import SessionGone, Unreachable, continue_live
from askback.worker.turn.keeping import begin as begin_files
from askback.worker.turn.keeping import keep as keep_files
from askback.worker.turn.observe import EventFeed, TurnObserver
from askback.worker.turn.prepare import Unfit, turn_name
from askback.worker.turn.process import EngineProcess, start_process
from askback.worker.turn.shortage import CannotStart, Stopped
from askback.worker.turn.stored_files import fetch_files, store_turn
from askback.worker.turn.verdict import limit_error, verdict
from askback.worker.turn.versions import record_inherited, record_versions
from askback.worker.turn.workdir import new_repositories, record_end, record_start

log = logging.getLogger(__name__)

LINGER_SEC = 5.0
"""How long the process of one turn may live after the engine's own end-of-turn event."""
_WARM_LOST = "the process that was kept for it had ended"
_UNRESPONSIVE = "the process that was kept for it did not respond"
_CALL_NOT_MADE = "the engine did not take the answer to the call that it had deferred"
_KEEPER_KILLED = "the keeper of the engine's process was killed"
_LEASE_OVER = "its program was suspended, or could not reach the database in time"

T = TypeVar("T")
S = TypeVar("S", bound=TurnEnded | ProcessTreeEnded | ProcessLost)
TurnSignal = TurnEnded | TurnLost | ProcessTreeEnded


class Prewarmed(Protocol):
    """A process that was started before the run was submitted."""

    async def take_over(self, run: Run) -> EngineProcess:
        """The process for the first turn of the run. Raises `CannotStart` or `Unfit`, and must be ended then."""

    async def end(self) -> None: ...


@asynccontextmanager
async def executing(
    context: TurnContext, control: RunControl, prewarmed: Prewarmed | None = None
) -> AsyncIterator[RunExecutor]:
    """An executor for one run. After the block, its process tree has ended."""
    async with asyncio.TaskGroup() as group:
        executor = RunExecutor(context, control, group, prewarmed)
        try:
            yield executor
        finally:
            await executor.end()


class RunExecutor:
    def __init__(
        self,
        context: TurnContext,
        control: RunControl,
        group: asyncio.TaskGroup,
        prewarmed: Prewarmed | None = None,
    ) -> None:
        self._context = context
        self._prewarmed = prewarmed
        """A process that the first turn takes over."""
        self._control = control
        self._group = group
        self._process: EngineProcess | None = None

    async def end(self) -> None:
        """End the process, if there is one."""
        if self._prewarmed is not None:
            await self._prewarmed.end()
            self._prewarmed = None
        if self._process is not None:
            self._process.hurried |= self._control.reason is StopReason.LEASE_LOST
            await self._process.end()
            self._process = None

    # A turn.

    async def turn(self, run: Run) -> TurnSignal:
        """Execute the run's next turn and return how it ended. If this fails, the process has been ended."""
        try:
            return await self._turn(run)
        except BaseException:
            # An error of the reader is raised again by the task group.
            with suppress(Exception):
                await self.end()
            raise

    async def _turn(self, run: Run) -> TurnSignal:
        epoch, clock = run.epoch, self._context.clock
        if run.cancel_requested:
            await self.end()
            return ProcessTreeEnded(epoch=epoch, at=clock())
        if self._process is None:
            if run.sticky and run.next_turn.kind is not TurnKind.START:
                return TurnLost(epoch=epoch, at=clock())
            try:
                await self._begin_files(run)
                await record_inherited(self._context, run)
                await record_start(self._context, run)
                self._process = await self._new_process(run)
            except Unfit as reason:
                log.info("a prewarmed process is not used: %s", reason, extra={"run": run.id})
                return await self._not_warm(run)
            except CannotStart as refusal:
                await self.end()
                kept = None if isinstance(refusal, SessionGone) else run.kept
                return TurnEnded(epoch=epoch, outcome=refusal.outcome, at=clock(), kept=kept)
            except Unreachable:
                return self._put_back(run)
            except Stopped:
                return self._stopped(run)
        elif not run.sticky and (not self._process.keepable or self._process.child.is_stopped):
            return await self._not_warm(run)
        elif self._process.child.has_exited:
            error = _limit_error(run, self._process)
            await self.end()
            if error is not None:
                return TurnEnded(epoch=epoch, outcome=TurnError(error=error), at=clock(), kept=run.kept)
            return TurnLost(epoch=epoch, at=clock())
        else:
            try:
                await continue_live(self._context, run)
                await fetch_files(self._context, run, self._control)
            except (Stopped, Unreachable):
                await self.end()
                return self._put_back(run)
        return await self._execute(run, self._process)

    async def _begin_files(self, run: Run) -> None:
        if self._prewarmed is None:
            await begin_files(self._context, run, self._control)
        else:
            await continue_live(self._context, run)
        # Beside what the last turn left, there may be new files: an answer can have some.
        await fetch_files(self._context, run, self._control)

    def _put_back(self, run: Run) -> TurnSignal:
        """The turn is executed again: nothing of it has happened, or what it left is not stored."""
        at = self._context.clock()
        if self._control.reason is StopReason.CANCEL:
            return ProcessTreeEnded(epoch=run.epoch, at=at)
        if self._control.reason is None:
            self._context.machine.files_failed("the file store cannot be used")
        return TurnLost(epoch=run.epoch, at=at, counted=False, why=REASONS[RefusalCode.FILES_UNAVAILABLE])

    async def _new_process(self, run: Run) -> EngineProcess:
        if self._prewarmed is None:
            return await start_process(self._context, run, self._control)
        process = await self._prewarmed.take_over(run)
        self._prewarmed = None
        return process

    async def _not_warm(self, run: Run) -> TurnSignal:
        """The process cannot be used for this turn. Nothing of the turn has happened, and it gets a new process."""
        await self.end()
        return TurnLost(epoch=run.epoch, at=self._context.clock(), counted=False, why=_WARM_LOST)

    def _stopped(self, run: Run, why: str = _KEEPER_KILLED, *, counted: bool = True) -> TurnSignal:
        """How a stopped turn ends. A planned stop does not count as a restart. A killed keeper does: the engine may have
        killed it."""
        at, reason = self._context.clock(), self._control.reason
        if reason is StopReason.CANCEL:
            return ProcessTreeEnded(epoch=run.epoch, at=at)
        return TurnLost(epoch=run.epoch, at=at, counted=counted and reason is None, why=why)

    def _interrupted(self, run: Run, process: EngineProcess) -> TurnSignal:
        if process.desk.has_answer_left and not process.child.lost:
            return self._stopped(run, _CALL_NOT_MADE)
        if process.child.expired:
            # Not counted: this is no fault of the run. If another program has taken it over, it refuses this.
            return self._stopped(run, _LEASE_OVER, counted=False)
        if process.child.lost or not process.continued:
            return self._stopped(run)
        if process.unresponsive and self._control.reason is None:
            # Not counted: the next process is a new one, for which this cannot happen again.
            return TurnLost(epoch=run.epoch, at=self._context.clock(), counted=False, why=_UNRESPONSIVE)
        return self._stopped(run, _WARM_LOST)

    async def _execute(self, run: Run, process: EngineProcess) -> TurnSignal:
        feed = EventFeed(self._context.store, run.id, run.epoch)
        try:
            observer = await process.begin_turn(self._context, run, feed)
        except Unfit as reason:
            log.info("a process that was kept is not used: %s", reason, extra={"run": run.id})
            return await self._not_warm(run)
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            result = await self._observe(run, process, observer)
            process.desk.end_turn()
            observer.close()
            feed.close()
        signal = await self._signal(run, process, observer, result)
        if isinstance(signal, TurnLost):
            return signal
        await asyncio.to_thread(_check_folder, process)
        await asyncio.to_thread(_note_deferred, process, result)
        over = isinstance(signal, ProcessTreeEnded) or ends_run(observer.run, signal.outcome)
        saved = await self._while_frozen(run, lambda: self._save_turn(run, process, signal, over=over))
        return replace(saved, process_alive=self._process is not None) if isinstance(saved, TurnEnded) else saved

    async def _while_frozen(self, run: Run, save: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Save what the turn left. A process that stays is suspended meanwhile, or it does not stay.

        The one of a sticky run stays in any case: its run cannot continue without it.
        """
        if self._process is not None:
            try:
                if self._context.archives is not None:
                    # Some engines still tidy up for a moment after their turn.
                    await asyncio.sleep(SETTLE_SEC)
                async with self._process.child.frozen():
                    return await save()
            except NotFrozen as problem:
                log.info("a process cannot be suspended: %s", problem, extra={"run": run.id})
                if not run.sticky:
                    await self.end()
        return await save()

    async def _save_turn(
        self, run: Run, process: EngineProcess, signal: TurnEnded | ProcessTreeEnded, *, over: bool
    ) -> TurnSignal:
        """Record and store what the turn left. Can be repeated."""
        warnings = await record_end(self._context, run, process.prepared.redactor)
        await mask_names(self._context, run, process.prepared)
        await record_versions(self._context, run)
        not_stored = await self._store(run)
        if not_stored is None:
            return self._put_back(run)
        signal = replace(signal, warnings=(*signal.warnings, *warnings, *not_stored))
        return await self._keep(run, signal, over=over)

    async def _store(self, run: Run) -> Sequence[RunWarning] | None:
        """Store the artifacts and the raw output of the turn. None if the program stops before they are stored."""
        try:
            return await store_turn(self._context, run, self._control, turn_name(run))
        except (Stopped, Unreachable):
            if self._control.reason is not StopReason.CANCEL:
                await self.end()
                return None
            log.error("the files of a canceled turn are not stored", extra={"run": run.id})
            return ()

    async def _keep(self, run: Run, signal: S, *, over: bool) -> S | TurnLost:
        """Store the run's files. Those of a sticky run are needed nowhere else before it is over."""
        if run.sticky and not over:
            return signal
        return await keep_files(self._context, run, signal, self._control, over=over, end_process=self.end)

    async def _observe(self, run: Run, process: EngineProcess, observer: TurnObserver) -> Completed | TurnFailed | None:
        """Observe the process until the turn is over. None: it was stopped, or its process was lost."""
        if run.process != process.child.identity:
            signal = ProcessStarted(epoch=run.epoch, process=process.child.identity, at=self._context.clock())
            observer.run = await move(self._context.store, run.id, signal, seen=run)
        if process.life is None:
            process.life = self._group.create_task(process.live())
        ended = await self._until_over(run, process, observer, process.life)
        read: Callable[[], Completed | TurnFailed]
        if ended is not None and _repeatable(run, process) and _ended_by_itself(process, ended):
            # In a new process the turn might succeed, and that is all that a run without a warm process knows.
            return None
        if ended is not None:
            read = partial(process.reader.finish, ended)
        elif process.conversation is not None and observer.turn_over.is_set():
            read = process.conversation.outcome
        else:
            return None
        async with process.reader_lock:
            result = await self._context.parsing.run(read, observer.printed)
        if process.desk.has_answer_left:
            return None
        if isinstance(result, Completed):
            await observer.take_end(result)
        return result

    async def _until_over(
        self, run: Run, process: EngineProcess, observer: TurnObserver, life: asyncio.Task[int]
    ) -> Exit | None:
        """Wait until the turn is over. Returns an `Exit` if the process has ended, unless it was stopped or lost."""
        waits = (
            partial(_converse, run, process, observer),
            self._control.wait,
            observer.strayed.wait,
            process.child.over_limit.wait,
            partial(after_question, run, process, observer),
        )
        async with asyncio.TaskGroup() as group:
            signs = [group.create_task(wait()) for wait in waits]
            done, _ = await asyncio.wait(
                {life, *signs}, timeout=run.options.turn_timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
            for sign in signs:
                sign.cancel()
        if process.conversation is not None and observer.turn_over.is_set() and not observer.strayed.is_set():
            return None
        if life not in done:
            if not done and not observer.printed and _was_kept(run, process):
                process.unresponsive = True
            await process.kill()
        code = await life
        if process.child.lost or (self._control.reason is not None and life not in done):
            return None
        return Exit(code=code, timed_out=not done, over_limit=process.child.over_limit.is_set())

    async def _signal(
        self, run: Run, process: EngineProcess, observer: TurnObserver, result: Completed | TurnFailed | None
    ) -> TurnSignal:
        """How the turn ended. A process that the run no longer needs is ended first."""
        canceled = self._control.reason is StopReason.CANCEL
        if canceled or result is None or not await self._may_stay(run, process):
            await self.end()
        error = _limit_error(run, process)
        outcome: TurnOutcome
        if canceled or (error is None and result is None):
            return self._interrupted(run, process)
        if error is not None:
            outcome = TurnError(error=error)
        else:
            assert result is not None
            resuming = process.prepared.turn.handle is not None and not process.continued
            outcome = await verdict(
                self._context.parsing,
                run,
                process.prepared,
                observer,
                result,
                resuming=resuming,
                put=process.desk.question,
            )
        # With the handle that the turn has named. A process whose turn failed is not used again, not even for a new session.
        if isinstance(outcome, TurnError) or ends_run(observer.run, outcome):
            await self.end()
        return TurnEnded(
            epoch=run.epoch,
            outcome=outcome,
            at=self._context.clock(),
            usage=observer.usage,
            warnings=(*observer.warnings, *process.sign_in_warnings),
        )

    async def _may_stay(self, run: Run, process: EngineProcess) -> bool:
        """A renewed sign-in is merged when its process has ended. That must not wait for the answer of a user."""
        if run.sticky:
            return True
        return process.conversation is not None and process.usable and await process.sign_in_is_current()

    # A wait.

    async def hold(self, run: Run) -> Run | ProcessLost | ProcessTreeEnded:
        """Keep the process of a waiting run. Returns the run once it no longer waits, or how its process ended."""
        process = self._process
        while process is not None and process.usable:
            run = self._control.newest(run)
            if run.state is not RunState.WAITING_USER:
                return run
            if self._control.reason is not None or run.expired:
                break
            await self._change_or_exit(process)
        await self.end()
        # The process could write to the user's folder until now.
        warnings = () if process is None else await new_repositories(self._context, run, process.prepared.redactor)
        at = self._context.clock()
        signal: ProcessTreeEnded | ProcessLost
        if run.cancel_requested or run.expired:
            signal = ProcessTreeEnded(epoch=run.epoch, at=at, warnings=warnings)
        else:
            signal = ProcessLost(epoch=run.epoch, at=at, error=_limit_error(run, process), warnings=warnings)
        kept = await self._keep(run, signal, over=True)
        # The run is over in any case: without the archive, its files are on this machine.
        return signal if isinstance(kept, TurnLost) else kept

    async def _change_or_exit(self, process: EngineProcess) -> None:
        await first_of(self._control.changed, process.child.exited, process.child.over_limit.wait)

    # A warm process.

    @property
    def warm_pid(self) -> int | None:
        """The process that can be kept while its resumable run waits; None if there is none."""
        return self._process.child.identity.pid if self._process is not None and self._process.keepable else None

    async def save_home(self, run: Run) -> None:
        """Save the home now, while the run waits: its next turn then begins sooner. Raises `NotFrozen`."""
        if self._process is not None:
            async with self._process.saving(self._context):
                await self._context.pools.turns.run(self._context.workspaces.of(run.id).save_between_turns)

    async def idle(self, settled: asyncio.Event, seconds: float) -> bool:
        """Keep the process until `settled` is set. False if it was not within this time, or the process has ended."""
        process = self._process
        if process is None or not process.keepable:
            return settled.is_set()
        call_lost = [process.desk.gone] if process.paused else []
        await first_of(settled.wait, process.child.exited, process.child.over_limit.wait, *call_lost, timeout=seconds)
        return settled.is_set()

    @property
    def is_usable(self) -> bool:
        return self._process is not None and self._process.keepable


async def first_of(*waits: Callable[[], Coroutine[Any, Any, Any]], timeout: float | None = None) -> None:
    """Wait for the first of these."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait()) for wait in waits]
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


async def _converse(run: Run, process: EngineProcess, observer: TurnObserver) -> None:
    """Send instructions to a resident process, and wait for the end of the turn. Any other process then gets time to exit.

    Returns before the end of the turn if a process that was kept does not read the instructions.
    """
    if process.conversation is not None:
        instructed = await instruct(process, observer)
        if not instructed or (_was_kept(run, process) and not await process.reads()):
            process.unresponsive = True
            return
    await observer.turn_over.wait()
    if process.conversation is None:
        await asyncio.sleep(LINGER_SEC)


def _was_kept(run: Run, process: EngineProcess) -> bool:
    """Whether the turn could have had a new process instead."""
    return process.continued and not run.sticky


def _repeatable(run: Run, process: EngineProcess) -> bool:
    """Whether the turn is repeated in a new process, if this one ends. A turn that has asked is not."""
    return _was_kept(run, process) and process.desk.question is None


def _ended_by_itself(process: EngineProcess, ended: Exit) -> bool:
    """Also true for a process that was ended because it did not respond."""
    in_time = process.unresponsive or not ended.timed_out
    return in_time and not ended.over_limit and process.child.breach is None


def _check_folder(process: EngineProcess) -> None:
    """A turn whose folder somebody has removed leaves neither a session nor artifacts: it must be repeated."""
    if not process.prepared.workspace.turns.is_dir():
        raise Unavailable(RefusalCode.STORE_UNUSABLE, "the folder of the run was removed while its turn was executed")


def _note_deferred(process: EngineProcess, result: Completed | TurnFailed | None) -> None:
    deferred = isinstance(result, Completed) and result.deferred and process.desk.question is not None
    note_deferred(process.prepared.workspace, deferred=deferred)


def _limit_error(run: Run, process: EngineProcess | None) -> RunError | None:
    if process is None or process.child.breach is None:
        return None
    return limit_error(run, process.prepared.setup.resources, process.child.breach)
