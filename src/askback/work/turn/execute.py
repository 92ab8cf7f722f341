"""One turn in a process of its own: start the engine, read it, end it, and say how the turn ended.

It is over only when nothing of the engine lives any more, also when it was stopped.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import datetime

from askback.core.outcomes import TurnError, TurnOutcome
from askback.core.runs import Run
from askback.core.signals import ProcessStarted, ProcessTreeEnded, TurnEnded, TurnLost
from askback.engines.base import Completed, Exit, TurnFailed
from askback.process.child import Child
from askback.process.locks import FileLock
from askback.store.base import move
from askback.work.run_control import RunControl, StopReason
from askback.work.turn.observe import EventFeed, TurnObserver
from askback.work.turn.prepare import PreparedTurn, TurnContext, prepare, turn_name
from askback.work.turn.shortage import CannotStart, Stopped
from askback.work.turn.starting import end_surely, return_sign_in, start_engine, take_lock
from askback.work.turn.verdict import limit_error, verdict

KEEPER_KILLED = "the process that kept the engine was killed"
LINGER_SEC = 5.0
"""How long an engine may live on after its own end-of-turn event."""

TurnSignal = TurnEnded | TurnLost | ProcessTreeEnded


async def execute(bench: TurnContext, run: Run, stop: RunControl) -> TurnSignal:
    """Carry out the run's next turn and say how it ended."""
    lock = await take_lock(run, bench.workspaces.of(run.id))
    try:
        prepared, delayed = await bench.shortage.outlast(lambda: prepare(bench, run), stop)
        turn = _LiveTurn(bench, run, prepared, stop, lock)
        return await turn.carry_out(delayed=delayed)
    except CannotStart as refusal:
        return TurnEnded(epoch=run.epoch, outcome=refusal.outcome, at=bench.clock())
    except Stopped:
        return stopped_early(run, stop, bench.clock())
    finally:
        lock.release()


def stopped_early(run: Run, stop: RunControl, at: datetime) -> TurnSignal:
    """A turn that was asked to stop while its engine could not be started yet."""
    if stop.reason is StopReason.CANCEL:
        return ProcessTreeEnded(epoch=run.epoch, at=at)
    return TurnLost(epoch=run.epoch, at=at, counted=False)


class _LiveTurn:
    """A turn while its engine runs."""

    def __init__(self, bench: TurnContext, run: Run, prepared: PreparedTurn, stop: RunControl, lock: FileLock) -> None:
        self._bench = bench
        self._run = run
        self._prepared = prepared
        self._stop = stop
        self._lock = lock
        self._feed = EventFeed(bench.store, run.id, run.epoch)
        self._parser = prepared.engine.parser(prepared.turn)
        self._reading = TurnObserver(
            run=run,
            engine=prepared.engine,
            read=self._parser.feed,
            store=bench.store,
            feed=self._feed,
            redactor=prepared.redactor,
            clock=bench.clock,
            parsing=bench.parsing,
            lock=asyncio.Lock(),
        )

    async def carry_out(self, *, delayed: bool) -> TurnSignal:
        try:
            result, child = await self._run_engine(delayed=delayed)
        finally:
            self._reading.warnings += await return_sign_in(self._run, self._prepared)
        return await self._signal(result, child)

    async def _run_engine(self, *, delayed: bool) -> tuple[Completed | TurnFailed | None, Child]:
        with ExitStack() as raw:
            child, again = await self._bench.shortage.outlast(lambda: self._start(raw), self._stop)
            if delayed or again:
                self._reading.warn_of_delay()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._feed.run())
                    result = await self._read_end(await self._follow(child))
                    self._feed.close()
            finally:
                await end_surely(child, self._run, self._lock)
                child.close()
        return result, child

    async def _start(self, raw: ExitStack) -> Child:
        raw.close()
        raw.enter_context(self._reading.keeping_raw(self._prepared.workspace, turn_name(self._run)))
        prompt = self._prepared.launch.stdin
        return await start_engine(self._bench, self._run, self._prepared, self._lock, prompt)

    async def _read_end(self, ended: Exit | None) -> Completed | TurnFailed | None:
        """What the parser makes of the whole turn; what it says only now is told like the rest."""
        if ended is None:
            return None
        result = await self._bench.parsing.run(lambda: self._parser.finish(ended), self._reading.printed)
        if isinstance(result, Completed):
            await self._reading.take_end(result)
        return result

    async def _follow(self, child: Child) -> Exit | None:
        """Read until the engine ends or has to be ended. None: it was stopped for a reason that is not its own."""
        signal = ProcessStarted(epoch=self._run.epoch, process=child.identity, at=self._bench.clock())
        self._reading.run = await move(self._bench.store, self._run.id, signal, seen=self._run)
        async with asyncio.TaskGroup() as group:
            lines = group.create_task(child.lines(self._reading.take))
            waits = (self._stop.wait, self._reading.strayed.wait, child.over_limit.wait, self._lingering)
            signs = [group.create_task(wait()) for wait in waits]
            done, _ = await asyncio.wait(
                {lines, *signs}, timeout=self._run.options.turn_timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
            for sign in signs:
                sign.cancel()
            if lines not in done:
                await end_surely(child, self._run, self._lock)
            code = await lines
        if child.lost or (self._stop.reason is not None and lines not in done):
            return None
        return Exit(code=code, timed_out=not done, over_limit=child.over_limit.is_set())

    async def _lingering(self) -> None:
        """Until the turn has been over for so long that the process will not end by itself."""
        await self._reading.turn_over.wait()
        await asyncio.sleep(LINGER_SEC)

    async def _signal(self, result: Completed | TurnFailed | None, child: Child) -> TurnSignal:
        epoch, at = self._run.epoch, self._bench.clock()
        if self._stop.reason is StopReason.CANCEL:
            return ProcessTreeEnded(epoch=epoch, at=at)
        if child.breach is not None:
            error = limit_error(self._run, self._prepared.setup.resources, child.breach)
            return self._ended(TurnError(error=error), at)
        if result is None:
            # Not counted when we are asked to stop. When its keeper was killed, the engine may have done that itself.
            return TurnLost(epoch=epoch, at=at, counted=self._stop.reason is None, why=KEEPER_KILLED)
        outcome = await verdict(self._bench.parsing, self._run, self._prepared.package, self._reading, result)
        return self._ended(outcome, at)

    def _ended(self, outcome: TurnOutcome, at: datetime) -> TurnEnded:
        reading = self._reading
        return TurnEnded(epoch=self._run.epoch, outcome=outcome, at=at, usage=reading.usage, warnings=reading.warnings)
