"""One turn in a process of its own: start the engine, read it, end it, and say how the turn ended.

It is over only when nothing of the engine lives any more, also when it was stopped.
"""

from __future__ import annotations

import asyncio

from askback.core.runs import Run
from askback.core.signals import ProcessStarted, TreeGone, TurnEnded, TurnLost
from askback.engines.base import Broke, Completed, Exit
from askback.process.child import Child
from askback.process.locks import FileLock
from askback.store.base import move
from askback.work.bench import Bench, CannotStart, Prepared, prepare, turn_name
from askback.work.feed import EventFeed
from askback.work.reading import Reading
from askback.work.starting import end_surely, start_engine, take_back_sign_in, take_lock
from askback.work.stopping import StopReason, StopRequest
from askback.work.verdict import verdict

KEEPER_KILLED = "the process that kept the engine was killed"
LINGER_SEC = 5.0
"""How long an engine may live on after its own end-of-turn event."""

TurnSignal = TurnEnded | TurnLost | TreeGone


async def execute(bench: Bench, run: Run, stop: StopRequest) -> TurnSignal:
    """Carry out the run's next turn and say how it ended."""
    lock = await take_lock(run, bench.workspaces.of(run.id))
    try:
        prepared = await prepare(bench, run)
        return await _LiveTurn(bench, run, prepared, stop, lock).carry_out()
    except CannotStart as refusal:
        return TurnEnded(epoch=run.epoch, outcome=refusal.outcome, at=bench.clock())
    finally:
        lock.release()


class _LiveTurn:
    """A turn while its engine runs."""

    def __init__(self, bench: Bench, run: Run, prepared: Prepared, stop: StopRequest, lock: FileLock) -> None:
        self._bench = bench
        self._run = run
        self._prepared = prepared
        self._stop = stop
        self._lock = lock
        self._feed = EventFeed(bench.store, run.id, run.epoch)
        self._parser = prepared.engine.parser(prepared.turn)
        self._reading = Reading(
            run=run,
            engine=prepared.engine,
            read=self._parser.feed,
            store=bench.store,
            feed=self._feed,
            redactor=prepared.redactor,
            clock=bench.clock,
        )

    async def carry_out(self) -> TurnSignal:
        name = turn_name(self._run)
        with self._reading.keeping_raw(self._prepared.workspace, name):
            prompt = self._prepared.workspace.prompt_path(name)
            child = await start_engine(self._bench, self._run, self._prepared, self._lock, prompt)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._feed.run())
                    result = await self._read_end(await self._follow(child))
                    self._feed.close()
            finally:
                await end_surely(child, self._run, self._lock)
                child.close()
                await take_back_sign_in(self._run, self._prepared)
                if self._prepared.answers:
                    # The engine read it from there, so not earlier.
                    mask = self._reading.redactor.text
                    await asyncio.to_thread(self._prepared.workspace.mask_prompts, mask)
        return self._signal(result)

    async def _read_end(self, ended: Exit | None) -> Completed | Broke | None:
        """What the parser makes of the whole turn; what it says only now is told like the rest."""
        if ended is None:
            return None
        result = self._parser.finish(ended)
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

    def _signal(self, result: Completed | Broke | None) -> TurnSignal:
        epoch, at = self._run.epoch, self._bench.clock()
        if self._stop.reason is StopReason.CANCEL:
            return TreeGone(epoch=epoch, at=at)
        if result is None:
            # Not counted when we are asked to stop. When its keeper was killed, the engine may have done that itself.
            return TurnLost(epoch=epoch, at=at, counted=self._stop.reason is None, why=KEEPER_KILLED)
        outcome = verdict(self._run, self._prepared.package, self._reading, result)
        return TurnEnded(
            epoch=epoch, outcome=outcome, at=at, usage=self._reading.usage, warnings=self._reading.warnings
        )
