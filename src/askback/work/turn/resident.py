"""The one owner of resident processes: a sticky run's engine, from its first turn to the run's end.

The process keeps its slot, its lock and its place in memory while the run waits; a reply goes into that same process.
It is gone before the run is over. What is said to it, and what it says, is the engine's conversation, which is pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import replace

from askback.core.errors import RunError
from askback.core.interactions import AnsweredBy
from askback.core.lifecycle import Decision, decide
from askback.core.outcomes import TurnError, TurnOutcome
from askback.core.runs import Run, RunState, TurnKind
from askback.core.signals import ProcessLost, ProcessStarted, ProcessTreeEnded, TurnEnded, TurnLost
from askback.engines.base import Completed, Conversation, Exit, Reply, TurnFailed
from askback.process.child import Child, Pipe
from askback.process.locks import FileLock
from askback.process.streams import Line
from askback.store.base import move
from askback.work.run_control import RunControl, StopReason
from askback.work.turn.execute import KEEPER_KILLED, TurnSignal, stopped_early
from askback.work.turn.observe import EventFeed, TurnObserver
from askback.work.turn.prepare import (
    PreparedTurn,
    TurnContext,
    answered,
    prepare,
    prompt_of,
    resident,
    secret_answers,
    turn_name,
)
from askback.work.turn.shortage import CannotStart, Stopped
from askback.work.turn.starting import end_surely, return_sign_in, start_engine, take_lock
from askback.work.turn.verdict import limit_error, verdict

_MOST_UNSENT = 16_000_000
"""Bytes that wait until the program reads them."""


@asynccontextmanager
async def residing(bench: TurnContext, run: Run, stop: RunControl) -> AsyncIterator[ResidentProcess]:
    """A place for the run's process; when it is left, nothing of the process lives."""
    lock = await take_lock(run, bench.workspaces.of(run.id))
    try:
        async with asyncio.TaskGroup() as group:
            residence = ResidentProcess(bench, stop, lock, group)
            try:
                yield residence
            finally:
                await residence.end(run)
    finally:
        lock.release()


class _Resident:
    """A process that lives, and the talk with it."""

    def __init__(self, prepared: PreparedTurn, child: Child, conversation: Conversation, *, delayed: bool) -> None:
        self.delayed = delayed
        self.prepared = prepared
        self.child = child
        self.conversation = conversation
        self.reading: TurnObserver | None = None
        self.lock = asyncio.Lock()
        """Held by whoever speaks with the conversation: a long line is read beside the event loop."""
        self.raw = ExitStack()
        """The files that the lines go to: those of the last turn that began."""
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._unsent_bytes = 0

    async def take(self, stream: str, line: Line) -> None:
        if self.reading is not None:
            await self.reading.take(stream, line)

    async def send(self, data: bytes) -> None:
        """Leave it to `live`: whoever reads must not wait for a program that waits for a reader."""
        self._unsent_bytes += len(data)
        self._unsent.put_nowait(data)
        if self._unsent_bytes > _MOST_UNSENT:
            # It asks and asks, and does not read the answers.
            self.child.over_limit.set()

    async def live(self) -> int:
        """Read it and write to it until it is gone; its exit code."""
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write())
            code = await self.child.lines(self.take)
            writing.cancel()
        return code

    async def _write(self) -> None:
        while True:
            data = await self._unsent.get()
            await self.child.send(data)
            self._unsent_bytes -= len(data)


class ResidentProcess:
    def __init__(self, bench: TurnContext, stop: RunControl, lock: FileLock, group: asyncio.TaskGroup) -> None:
        self._bench = bench
        self._stop = stop
        self._lock = lock
        self._group = group
        self._resident: _Resident | None = None
        self._life: asyncio.Task[int] | None = None

    # A turn.

    async def turn(self, run: Run) -> TurnSignal:
        """Say the run's next turn to its process, which is started for the first one. A fault ends the process first."""
        try:
            return await self._turn(run)
        except BaseException:
            # What goes wrong with its end besides is told by whoever reads it, in the group.
            with suppress(Exception):
                await self.end(run)
            raise

    async def _turn(self, run: Run) -> TurnSignal:
        epoch, clock = run.epoch, self._bench.clock
        if run.cancel_requested:
            await self.end(run)
            return ProcessTreeEnded(epoch=epoch, at=clock())
        if self._resident is None:
            if run.next_turn.kind is not TurnKind.START:
                return TurnLost(epoch=epoch, at=clock())
            try:
                return await self._one_turn(run, await self._move_in(run))
            except CannotStart as refusal:
                return TurnEnded(epoch=epoch, outcome=refusal.outcome, at=clock())
            except Stopped:
                return stopped_early(run, self._stop, clock())
        if self._resident.child.has_exited:
            error = _limit_error(run, self._resident)
            await self.end(run)
            if error is not None:
                return TurnEnded(epoch=epoch, outcome=TurnError(error=error), at=clock())
            return TurnLost(epoch=epoch, at=clock())
        return await self._one_turn(run, self._resident)

    async def _move_in(self, run: Run) -> _Resident:
        """Start the process; its lines are read until it is gone."""
        shortage = self._bench.shortage
        prepared, delayed = await shortage.outlast(lambda: prepare(self._bench, run), self._stop)
        try:
            conversation = resident(prepared.engine).conversation(prepared.turn)
            child, again = await shortage.outlast(
                lambda: start_engine(self._bench, run, prepared, self._lock, Pipe.KEPT), self._stop
            )
        except BaseException:
            await return_sign_in(run, prepared)
            raise
        self._resident = _Resident(prepared, child, conversation, delayed=delayed or again)
        return self._resident

    async def _one_turn(self, run: Run, here: _Resident) -> TurnSignal:
        feed = EventFeed(self._bench.store, run.id, run.epoch)
        here.prepared = replace(here.prepared, answers=await secret_answers(self._bench.store, run))
        reading = self._open_reading(run, here, feed)
        if here.delayed:
            here.delayed = False
            reading.warn_of_delay()
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.run())
            result = await self._talk(run, here, reading)
            reading.close()
            feed.close()
        return await self._signal(reading, here, result)

    def _open_reading(self, run: Run, here: _Resident, feed: EventFeed) -> TurnObserver:
        here.raw.close()
        here.reading = TurnObserver(
            run=run,
            engine=here.prepared.engine,
            read=here.conversation.feed,
            store=self._bench.store,
            feed=feed,
            redactor=here.prepared.redactor,
            clock=self._bench.clock,
            parsing=self._bench.parsing,
            lock=here.lock,
            send=here.send,
        )
        here.raw.enter_context(here.reading.keeping_raw(here.prepared.workspace, turn_name(run)))
        here.child.begin_turn()
        return here.reading

    async def _talk(self, run: Run, here: _Resident, reading: TurnObserver) -> Completed | TurnFailed | None:
        """Say what is to be said and listen until the turn is over. None: it was stopped for a reason not its own."""
        if self._life is None:
            signal = ProcessStarted(epoch=run.epoch, process=here.child.identity, at=self._bench.clock())
            reading.run = await move(self._bench.store, run.id, signal, seen=run)
            self._life = self._group.create_task(here.live())
        prompt, reply = await self._words(run, here)
        workspace, record = here.prepared.workspace, reading.redactor.text(prompt)
        await asyncio.to_thread(workspace.write_prompt, turn_name(run), record.encode("utf-8", "replace"))
        ended = await self._until_over(run, here, reading, prompt, reply, self._life)
        if ended is not None:
            async with here.lock:
                return await self._bench.parsing.run(lambda: here.conversation.finish(ended), reading.printed)
        if not reading.turn_over.is_set():
            return None
        async with here.lock:
            result = await self._bench.parsing.run(here.conversation.outcome, reading.printed)
        if isinstance(result, Completed):
            await reading.take_end(result)
        return result

    async def _words(self, run: Run, here: _Resident) -> tuple[str, Reply | None]:
        prompt = await prompt_of(self._bench.store, run, here.prepared.package)
        if run.next_turn.kind is not TurnKind.REPLY:
            return prompt, None
        closed = await answered(self._bench.store, run)
        return prompt, Reply(response=closed.response, decided=closed.answered_by is AnsweredBy.USER)

    async def _until_over(
        self,
        run: Run,
        here: _Resident,
        reading: TurnObserver,
        prompt: str,
        reply: Reply | None,
        life: asyncio.Task[int],
    ) -> Exit | None:
        """Until the engine ends its turn, or its process is gone by itself or by us; the latter has an `Exit`."""

        async def say() -> None:
            async with here.lock:
                said = tuple(here.conversation.say(prompt, reply))
            await reading.tell(said)
            await reading.turn_over.wait()

        waits = (say, self._stop.wait, reading.strayed.wait, here.child.over_limit.wait)
        async with asyncio.TaskGroup() as group:
            signs = [group.create_task(wait()) for wait in waits]
            done, _ = await asyncio.wait(
                {life, *signs}, timeout=run.options.turn_timeout_sec, return_when=asyncio.FIRST_COMPLETED
            )
            for sign in signs:
                sign.cancel()
        if reading.turn_over.is_set() and not reading.strayed.is_set():
            return None
        if life not in done:
            await self._end_process(run, here)
        if here.child.lost or (self._stop.reason is not None and life not in done):
            return None
        return Exit(code=await life, timed_out=not done, over_limit=here.child.over_limit.is_set())

    async def _signal(
        self, reading: TurnObserver, here: _Resident, result: Completed | TurnFailed | None
    ) -> TurnSignal:
        run, at = reading.run, self._bench.clock()
        if self._stop.reason is StopReason.CANCEL:
            await self.end(run)
            return ProcessTreeEnded(epoch=run.epoch, at=at)
        if (error := _limit_error(run, here)) is not None:
            outcome: TurnOutcome = TurnError(error=error)
        elif result is None:
            await self.end(run)
            return TurnLost(epoch=run.epoch, at=at, counted=self._stop.reason is None, why=KEEPER_KILLED)
        else:
            outcome = await verdict(self._bench.parsing, run, here.prepared.package, reading, result)
        signal = TurnEnded(epoch=run.epoch, outcome=outcome, at=at, usage=reading.usage, warnings=reading.warnings)
        # No process outlives its run: one that is over with this is told so only when nothing of it lives.
        decision = decide(run, signal)
        if isinstance(decision, Decision) and decision.run.state.final:
            await self.end(run)
        return replace(signal, warnings=reading.warnings)

    # A wait.

    async def hold(self, run: Run) -> ProcessLost | ProcessTreeEnded | None:
        """Keep the process until the run is moved (None), or until it is gone, by itself or by us."""
        if self._resident is None:
            return ProcessLost(epoch=run.epoch, at=self._bench.clock())
        here = self._resident
        child = here.child
        # One that floods us while nobody asked it anything is no more to be talked to than one that is gone.
        while not (child.has_exited or child.over_limit.is_set()):
            run = await self._bench.store.get(run.id)
            if run.state is not RunState.WAITING_USER:
                return None
            if self._stop.reason is not None or run.expired:
                break
            await self._news_or_exit(child)
        await self.end(run)
        if run.cancel_requested or run.expired:
            return ProcessTreeEnded(epoch=run.epoch, at=self._bench.clock())
        return ProcessLost(epoch=run.epoch, at=self._bench.clock(), error=_limit_error(run, here))

    async def _news_or_exit(self, child: Child) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(wait()) for wait in (self._stop.news, child.exited, child.over_limit.wait)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    # The end.

    async def end(self, run: Run) -> None:
        """Leave nothing of the process; done again it does nothing."""
        here, self._resident = self._resident, None
        if here is None:
            return
        await self._end_process(run, here)
        # Whoever read it may have failed; the rest is done all the same.
        async with AsyncExitStack() as rest:
            rest.callback(here.raw.close)
            rest.push_async_callback(self._return_sign_in, run, here)
            rest.callback(here.child.close)
            if self._life is not None:
                await self._life

    async def _return_sign_in(self, run: Run, here: _Resident) -> None:
        """What is to be said of it is said of the last turn, where the process ends with one."""
        warnings = await return_sign_in(run, here.prepared)
        if here.reading is not None:
            here.reading.warnings += warnings

    async def _end_process(self, run: Run, here: _Resident) -> None:
        await end_surely(here.child, run, self._lock)


def _limit_error(run: Run, here: _Resident) -> RunError | None:
    breach = here.child.breach
    return None if breach is None else limit_error(run, here.prepared.setup.resources, breach)
