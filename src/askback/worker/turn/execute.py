"""The turns of one run, for as long as a worker holds the run.

A turn takes these steps: prepare the run's files, get a process, instruct and observe it, reach a verdict, save what the turn
left, and return the signal that ends it.

A resumable run gets a new process for every turn, which ends with the turn, unless it is kept warm for the next one. Its
first process may have been started in advance. A sticky run has one process from its first turn to its end, also
while it waits. In all cases a turn is over, and a run final, only when every process that should have ended has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from askback.background.loops import first_of
from askback.background.pools import Abandoned
from askback.core.errors import RefusalCode, RunError, Unavailable
from askback.core.outcomes import TurnError, TurnOutcome
from askback.core.runs import Run, RunState
from askback.core.signals import ProcessLost, ProcessTreeEnded, TurnEnded, TurnLost
from askback.core.turns import ends_run, is_repeated
from askback.engines.base import Completed, Exit, TurnFailed
from askback.process.child import NotFrozen
from askback.worker.claimed_run import ClaimedRun, StopReason
from askback.worker.machine import REASONS
from askback.worker.turn.ask_tool import record_deferred
from askback.worker.turn.context import CannotStart, Stopped, TurnContext
from askback.worker.turn.files import (
    SessionGone,
    Unreachable,
    continue_live,
    fetch,
    restore,
    store_archive,
    store_artifacts,
)
from askback.worker.turn.instruct import after_question, converse
from askback.worker.turn.observe import EventFeed, TurnObserver
from askback.worker.turn.prepare import Unfit, turn_name
from askback.worker.turn.process import EngineProcess, start_process
from askback.worker.turn.recording import (
    mask_names,
    new_repositories,
    record_end,
    record_inherited,
    record_start,
    record_versions,
)
from askback.worker.turn.verdict import limit_error, verdict

log = logging.getLogger(__name__)

_SETTLE_SEC = 0.05
"""Some engines still tidy up for a moment after their turn."""

T = TypeVar("T")
TurnSignal = TurnEnded | TurnLost | ProcessTreeEnded
EngineResult = Completed | TurnFailed
"""What the engine's own output says of a turn."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """Why a turn has no result of its engine, and is repeated. `counted`: as a restart of the run."""

    why: str
    counted: bool = True


_STOPPED = Interruption("its program was stopped", counted=False)
_WARM_ENDED = Interruption("the process that was kept for it had ended")
_UNRESPONSIVE = Interruption("the process that was kept for it did not respond", counted=False)
"""Not counted: the next process is a new one, for which this cannot happen again."""
_CALL_NOT_MADE = Interruption("the engine did not take the answer to the call that it had deferred")
_KEEPER_KILLED = Interruption("the keeper of the engine's process was killed")
"""Counted: the engine may have killed it."""
_LEASE_OVER = Interruption("its program was suspended, or could not reach the database in time", counted=False)
"""Not counted: this is no fault of the run. If another instance has taken it over, it refuses this."""
_FILES_UNAVAILABLE = Interruption(REASONS[RefusalCode.FILES_UNAVAILABLE], counted=False)


class Prewarmed(Protocol):
    """A process that was started before the run was submitted."""

    async def take_over(self, run: Run) -> EngineProcess:
        """The process for the first turn of the run. Raises `CannotStart` or `Unfit`, and must be ended then."""

    async def end(self) -> None: ...


class StickyProcessGone(Exception):
    """The process of a sticky run has ended; `error` says why, if it exceeded a limit."""

    def __init__(self, error: RunError | None = None) -> None:
        super().__init__()
        self.error = error


@asynccontextmanager
async def executing(
    context: TurnContext, claim: ClaimedRun, prewarmed: Prewarmed | None = None
) -> AsyncIterator[RunExecutor]:
    """An executor for one run. After the block, its process tree has ended."""
    async with asyncio.TaskGroup() as group:
        executor = RunExecutor(context, claim, group, prewarmed)
        try:
            yield executor
        finally:
            await executor.end()


class RunExecutor:
    def __init__(
        self, context: TurnContext, claim: ClaimedRun, group: asyncio.TaskGroup, prewarmed: Prewarmed | None = None
    ) -> None:
        self._context = context
        self._claim = claim
        self._group = group
        self._prewarmed = prewarmed
        """A process that the first turn takes over."""
        self._process: EngineProcess | None = None
        """The process of the current turn, or the one that stays for the next."""

    async def end(self) -> None:
        """End the process, if there is one."""
        if self._prewarmed is not None:
            await self._prewarmed.end()
            self._prewarmed = None
        if self._process is not None:
            self._process.hurried |= self._claim.stop_reason is StopReason.LEASE_LOST
            await self._process.end()
            self._process = None

    # A turn.

    async def turn(self, run: Run) -> TurnSignal:
        """Execute the run's next turn and return how it ended. If this fails, the process has been ended."""
        try:
            return await self._turn(run)
        except BaseException:
            # If the process cannot be ended cleanly, the error that is raised here says more.
            with suppress(Exception):
                await self.end()
            raise

    async def _turn(self, run: Run) -> TurnSignal:
        if run.cancel_requested:
            await self.end()
            return ProcessTreeEnded(epoch=run.epoch, at=self._context.clock())
        feed = EventFeed(self._context.store, run.id, run.epoch)
        try:
            process = await self._get_process(run)
            observer = await process.begin_turn(self._context, run, self._claim, feed)
        except (CannotStart, StickyProcessGone, Stopped, Unfit, Unreachable) as reason:
            await self.end()
            return self._not_begun(run, reason)
        result = await self._instruct_and_observe(run, process, observer, feed)
        signal = await self._conclude(run, process, observer, result)
        if isinstance(signal, TurnLost):
            return signal
        if isinstance(signal, TurnEnded) and is_repeated(observer.run, signal):
            # What the turn left is not used. Its files before it are stored.
            return replace(signal, archive_key=run.kept)
        return await self._save(run, process, observer, result, signal)

    # Preparing files, and getting a process.

    async def _get_process(self, run: Run) -> EngineProcess:
        """Prepare the run's files and return the process for its turn: the one that has stayed, the prewarmed one, or a new one.

        Raises `CannotStart`, `Unfit`, `StickyProcessGone`, `Stopped` or `Unreachable` if the turn cannot begin.
        """
        if self._process is not None:
            child = self._process.child
            if run.sticky and child.has_exited:
                raise StickyProcessGone(_limit_error(run, self._process))
            if not run.sticky and (not self._process.keepable or child.is_stopped):
                raise Unfit("it has ended or is suspended")
        elif run.bound_to_process:
            raise StickyProcessGone
        if self._process is None and self._prewarmed is None:
            await restore(self._context, run, self._claim)
        else:
            await continue_live(self._context, run)
        # Beside what the last turn left, there may be new files: an answer can have some.
        await fetch(self._context, run, self._claim)
        if self._process is None:
            await record_inherited(self._context, run)
            await record_start(self._context, run)
            self._process = await self._start(run)
        return self._process

    async def _start(self, run: Run) -> EngineProcess:
        if self._prewarmed is None:
            return await start_process(self._context, run, self._claim)
        process = await self._prewarmed.take_over(run)
        self._prewarmed = None
        return process

    def _not_begun(
        self, run: Run, reason: CannotStart | StickyProcessGone | Stopped | Unfit | Unreachable
    ) -> TurnSignal:
        """How a turn ends of which nothing has happened: the run fails, or the turn goes back to the queue."""
        epoch, at = run.epoch, self._context.clock()
        match reason:
            case CannotStart(outcome=outcome):
                key = None if isinstance(reason, SessionGone) else run.kept
                return TurnEnded(epoch=epoch, outcome=outcome, at=at, archive_key=key)
            case StickyProcessGone(error=RunError() as error):
                return TurnEnded(epoch=epoch, outcome=TurnError(error=error), at=at, archive_key=run.kept)
            case StickyProcessGone():
                return TurnLost(epoch=epoch, at=at)
            case Unfit():
                log.info("a process that was ready is not used: %s", reason, extra={"run": run.id})
                return TurnLost(epoch=epoch, at=at, counted=False, why=_WARM_ENDED.why)
            case Unreachable():
                return self._put_back(run)
            case Stopped():
                return self._lost(run, _STOPPED)

    # Instructing and observing it.

    async def _instruct_and_observe(
        self, run: Run, process: EngineProcess, observer: TurnObserver, feed: EventFeed
    ) -> EngineResult | Interruption:
        """Have the process execute the turn, and store its events."""
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            recording = group.create_task(self._record_process(run, process, observer))
            if run.sticky:
                await asyncio.wait({recording})
            result = await self._result(run, process, observer)
            recording.cancel()
            process.ask_tool.end_turn()
            observer.close()
            feed.close()
        return result

    async def _record_process(self, run: Run, process: EngineProcess, observer: TurnObserver) -> None:
        """Only a sticky run has its process from the turn before."""
        if run.process != process.child.identity:
            self._context.spawned(run)
            await observer.record_process(process.child.identity)

    async def _result(self, run: Run, process: EngineProcess, observer: TurnObserver) -> EngineResult | Interruption:
        if process.life is None:
            process.life = self._group.create_task(process.live())
        read = await self._until_over(run, process, observer, process.life)
        if isinstance(read, Interruption):
            return read
        async with process.reader_lock:
            result = await self._context.parsing.run(read, observer.printed)
        if process.ask_tool.has_answer_left:
            return _CALL_NOT_MADE
        if isinstance(result, Completed):
            await observer.take_end(result)
        return result

    async def _until_over(
        self, run: Run, process: EngineProcess, observer: TurnObserver, life: asyncio.Task[int]
    ) -> Callable[[], EngineResult] | Interruption:
        """Wait until the turn is over. Returns what reads its result from the engine's output."""
        waits = (
            partial(converse, run, process, observer),
            self._claim.wait_stopped,
            observer.strayed.wait,
            process.child.over_limit.wait,
            partial(after_question, run, process, observer),
            process.gate_failed,
        )
        async with asyncio.TaskGroup() as group:
            signs = [group.create_task(wait()) for wait in waits]
            done, _ = await asyncio.wait(
                {life, *signs}, timeout=run.options.turn_timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
            for sign in signs:
                sign.cancel()
        conversation = process.conversation
        if conversation is not None and observer.turn_over.is_set() and not observer.strayed.is_set():
            return conversation.outcome
        if life not in done:
            if not done and not observer.printed and process.was_ready_for(run):
                process.unresponsive = True
            await process.kill()
        code = await life
        stopped = self._claim.stop_reason is not None and life not in done
        if process.child.keeper_lost or stopped:
            if conversation is not None and observer.turn_over.is_set():
                return conversation.outcome
            if not process.child.keeper_lost:
                return _STOPPED
            return _LEASE_OVER if process.child.expired else _KEEPER_KILLED
        ended = Exit(code=code, timed_out=not done, over_limit=process.child.over_limit.is_set())
        if process.was_ready_for(run) and process.ask_tool.question is None and _ended_by_itself(process, ended):
            # The turn is repeated in a new process, as if this one had never been kept warm.
            return _UNRESPONSIVE if process.unresponsive else _WARM_ENDED
        return partial(process.reader.finish, ended)

    # The verdict.

    async def _conclude(
        self, run: Run, process: EngineProcess, observer: TurnObserver, result: EngineResult | Interruption
    ) -> TurnSignal:
        """How the turn ended. A process that the run no longer needs is ended first."""
        if isinstance(result, Completed) and not self._claim.canceled:
            await process.part()
        if self._claim.canceled or isinstance(result, Interruption) or not await self._may_stay(run, process):
            await self.end()
        if self._claim.canceled:
            return ProcessTreeEnded(epoch=run.epoch, at=self._context.clock())
        outcome: TurnOutcome
        gate = process.ask_tool.gate
        if (error := _limit_error(run, process)) is not None:
            outcome = TurnError(error=error)
        elif gate is not None and (gate.failed.is_set() or (isinstance(result, Completed) and not gate.is_alive)):
            outcome = TurnError(error=gate.error)
        elif isinstance(result, Interruption):
            return self._lost(run, result)
        else:
            outcome = await verdict(
                self._context.parsing,
                run,
                process.prepared,
                observer,
                result,
                at=self._context.clock(),
                resuming=process.prepared.turn.handle is not None and not process.continued,
                put=process.ask_tool.question,
            )
        signal = TurnEnded(
            epoch=run.epoch,
            outcome=outcome,
            at=self._context.clock(),
            usage=observer.usage,
            warnings=observer.warnings,
            used_tools=observer.used_tools,
        )
        # `observer.run` has the handle that this turn named. A process whose turn failed is never used again.
        if isinstance(outcome, TurnError) or ends_run(observer.run, signal):
            await self.end()
        of_gate = () if gate is None else gate.warnings
        return replace(signal, warnings=(*observer.warnings, *process.sign_in_warnings, *of_gate))

    async def _may_stay(self, run: Run, process: EngineProcess) -> bool:
        """A renewed sign-in is merged when its process has ended. That must not wait for the answer of a user."""
        if run.sticky:
            return True
        return process.prepared.resident and process.usable and await process.sign_in_is_current()

    def _lost(self, run: Run, interruption: Interruption) -> TurnSignal:
        """The turn is repeated, unless the run was canceled. A planned stop never counts as a restart."""
        at = self._context.clock()
        if self._claim.canceled:
            return ProcessTreeEnded(epoch=run.epoch, at=at)
        counted = interruption.counted and self._claim.stop_reason is None
        return TurnLost(epoch=run.epoch, at=at, counted=counted, why=interruption.why)

    def _put_back(self, run: Run) -> TurnSignal:
        """The turn is executed again: the file store could not be used before it, or to store what it left."""
        if self._claim.stop_reason is None:
            self._context.machine.files_failed("the file store cannot be used")
        return self._lost(run, _FILES_UNAVAILABLE)

    # Saving what the turn left.

    async def _save(
        self,
        run: Run,
        process: EngineProcess,
        observer: TurnObserver,
        result: EngineResult | Interruption,
        signal: TurnEnded | ProcessTreeEnded,
    ) -> TurnSignal:
        deferred = isinstance(result, Completed) and result.deferred and process.ask_tool.question is not None
        await self._context.pools.turns.run(partial(_record_call, process, deferred=deferred))
        over = isinstance(signal, ProcessTreeEnded) or ends_run(observer.run, signal)
        saved = await self._while_frozen(run, lambda: self._store_files(run, process, signal, over=over))
        return replace(saved, process_alive=self._process is not None) if isinstance(saved, TurnEnded) else saved

    async def _while_frozen(self, run: Run, save: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Save what the turn left. A process that stays is suspended meanwhile, or it does not stay.

        The one of a sticky run stays in any case: its run cannot continue without it.
        """
        if self._process is not None:
            try:
                if self._context.archives is not None:
                    await asyncio.sleep(_SETTLE_SEC)
                async with self._process.child.frozen():
                    return await save()
            except NotFrozen as problem:
                log.info("a process cannot be suspended: %s", problem, extra={"run": run.id})
                if not run.sticky:
                    await self.end()
        return await save()

    async def _store_files(
        self, run: Run, process: EngineProcess, signal: TurnEnded | ProcessTreeEnded, *, over: bool
    ) -> TurnSignal:
        """Record and store what the turn left. Can be repeated."""
        warnings = await record_end(self._context, run, process.prepared.redactor)
        await mask_names(self._context, run, process.prepared)
        await record_versions(self._context, run)
        try:
            try:
                warnings += tuple(await store_artifacts(self._context, run, self._claim, turn_name(run)))
            except (Stopped, Unreachable):
                if not self._claim.canceled:
                    raise
                log.error("the files of a canceled turn are not stored", extra={"run": run.id})
            signal = replace(signal, warnings=(*signal.warnings, *warnings))
            if run.sticky and not over:
                # No other machine needs the files of a sticky run.
                return signal
            return await store_archive(self._context, run, signal, self._claim, over=over, end_process=self.end)
        except (Stopped, Unreachable):
            await self.end()
            return self._put_back(run)

    # A wait of a sticky run.

    async def hold(self, run: Run) -> Run | ProcessLost | ProcessTreeEnded:
        """Keep the process of a waiting run. Returns the run once it no longer waits, or how its process ended."""
        process = self._process
        while process is not None and process.usable:
            run = self._claim.newest
            if run.state is not RunState.WAITING_USER:
                return run
            if self._claim.stop_reason is not None or run.expired:
                break
            await first_of(self._claim.wait_changed, process.child.exited, process.child.over_limit.wait)
        await self.end()
        # The process could write to the user's folder until now.
        warnings = () if process is None else await new_repositories(self._context, run, process.prepared.redactor)
        at = self._context.clock()
        signal: ProcessTreeEnded | ProcessLost
        if run.cancel_requested or run.expired:
            signal = ProcessTreeEnded(epoch=run.epoch, at=at, warnings=warnings)
        else:
            signal = ProcessLost(epoch=run.epoch, at=at, error=_limit_error(run, process), warnings=warnings)
        # The run is over in any case: without the archive, its files are on this machine.
        with suppress(Stopped, Unreachable):
            return await store_archive(self._context, run, signal, self._claim, over=True, end_process=self.end)
        return signal

    # A wait with a warm process.

    @property
    def warm_pid(self) -> int | None:
        """The process that can be kept while its resumable run waits; None if there is none."""
        return self._process.child.identity.pid if self._process is not None and self._process.keepable else None

    async def save_home(self, run: Run, settled: asyncio.Event) -> None:
        """Save the home now, while the run waits: its next turn then begins sooner. Given up once `settled` is set.

        Raises `NotFrozen`.
        """
        if self._process is not None:
            async with self._process.saving(self._context):
                save = self._context.workspaces.of(run.id).save_between_turns
                with suppress(Abandoned):
                    await self._context.pools.saving.run_unless(settled.wait, save)

    async def idle(self, settled: asyncio.Event, seconds: float) -> bool:
        """Keep the process until `settled` is set. False if it was not within this time, or the process has ended."""
        process = self._process
        if process is None or not process.keepable:
            return settled.is_set()
        call_lost = [process.ask_tool.gone] if process.paused else []
        await first_of(settled.wait, process.child.exited, process.child.over_limit.wait, *call_lost, timeout=seconds)
        return settled.is_set()


def _ended_by_itself(process: EngineProcess, ended: Exit) -> bool:
    """Also true for a process that was ended because it did not respond."""
    in_time = process.unresponsive or not ended.timed_out
    return in_time and not ended.over_limit and process.child.breach is None


def _record_call(process: EngineProcess, *, deferred: bool) -> None:
    """A turn whose folder somebody has removed leaves neither a session nor artifacts: it must be repeated."""
    workspace = process.prepared.workspace
    if not workspace.turns.is_dir():
        raise Unavailable(RefusalCode.STORE_UNUSABLE, "the folder of the run was removed while its turn was executed")
    record_deferred(workspace, deferred=deferred)


def _limit_error(run: Run, process: EngineProcess | None) -> RunError | None:
    if process is None or process.child.breach is None:
        return None
    return limit_error(run, process.prepared.setup.resources, process.child.breach)
