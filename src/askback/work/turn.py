"""One turn of one run: start the engine, read it, end it, and say how the turn ended.

It is over only when nothing of the engine lives any more, also when it was stopped.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum

from askback.core.errors import ErrorCode
from askback.core.outcomes import TurnOutcome, conclude, engine_failure
from askback.core.runs import Mode, Run
from askback.core.secrets import Redactor
from askback.core.signals import ProcessStarted, TreeGone, TurnEnded, TurnLost
from askback.engines.answers import read_answer
from askback.engines.base import Broke, Completed, Exit
from askback.process import tree
from askback.process.child import Child, NotStarted
from askback.process.locks import FileLock
from askback.process.workspace import Workspace
from askback.skills.schemas import output_check
from askback.store.base import move
from askback.work.bench import Bench, CannotStart, Prepared, prepare
from askback.work.feed import EventFeed
from askback.work.reading import Reading

log = logging.getLogger(__name__)

GRACE_SEC = 3.0
"""How long an engine that is asked to end may take before it is killed."""


LINGER_SEC = 5.0
"""How long an engine may live on after its own end-of-turn event."""


class StopReason(StrEnum):
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"


class StopRequest:
    """How a turn in progress is told to stop. A cancel outranks a shutdown."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self._asked = asyncio.Event()

    def ask(self, reason: StopReason) -> None:
        if self.reason is not StopReason.CANCEL:
            self.reason = reason
        self._asked.set()

    async def wait(self) -> None:
        await self._asked.wait()


TurnSignal = TurnEnded | TurnLost | TreeGone


async def execute(bench: Bench, run: Run, stop: StopRequest) -> TurnSignal:
    """Carry out the run's next turn and say how it ended."""
    lock = await _lock(run, bench.workspaces.of(run.id))
    try:
        prepared = await prepare(bench, run)
        return await _LiveTurn(bench, run, prepared, stop, lock).carry_out()
    except CannotStart as refusal:
        return TurnEnded(epoch=run.epoch, outcome=refusal.outcome, at=bench.clock())
    finally:
        lock.release()


async def _lock(run: Run, workspace: Workspace) -> FileLock:
    """Nothing of an earlier try may live when a turn starts; what does is ended."""
    while (lock := FileLock.take(workspace.lock_path)) is None:
        log.warning("ending what is left of an earlier turn", extra={"run": run.id})
        await tree.Tree(mark=run.id, root=run.process, lock=workspace.lock_path).end(grace_sec=0)
        await asyncio.sleep(0.05)
    return lock


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
            parser=self._parser,
            store=bench.store,
            feed=self._feed,
            redactor=Redactor(prepared.setup.secrets),
            clock=bench.clock,
        )

    async def carry_out(self) -> TurnSignal:
        name = f"{self._run.attempt_number:03d}-{self._run.epoch:03d}"
        with self._reading.keeping_raw(self._prepared.workspace, name):
            await asyncio.to_thread(self._write_files, name)
            child = self._start(name)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._feed.run())
                    result = await self._read_end(await self._follow(child))
                    self._feed.close()
            finally:
                await self._end_surely(child)
                child.close()
                await self._take_back_sign_in()
        return self._signal(result)

    async def _read_end(self, ended: Exit | None) -> Completed | Broke | None:
        """What the parser makes of the whole turn; what it says only now is told like the rest."""
        if ended is None:
            return None
        result = self._parser.finish(ended)
        if isinstance(result, Completed):
            await self._reading.take_end(result)
        return result

    def _write_files(self, name: str) -> None:
        workspace, launch = self._prepared.workspace, self._prepared.launch
        workspace.write_home(launch.files)
        workspace.write_work(launch.work_files)
        workspace.write_prompt(name, launch.stdin)

    def _start(self, name: str) -> Child:
        workspace, launch = self._prepared.workspace, self._prepared.launch
        private = {
            "HOME": str(workspace.home),
            "TMPDIR": str(workspace.tmp),
            "PWD": str(workspace.cwd),
            tree.MARK: self._run.id,
        }
        try:
            return Child.start(
                launch.argv,
                env={**self._prepared.setup.env, **private, **launch.env},
                cwd=workspace.cwd,
                stdin=workspace.prompt_path(name),
                limits=self._bench.limits,
                keep_fds=(self._lock.fd,),
            )
        except NotStarted as error:
            raise CannotStart(engine_failure(ErrorCode.ENGINE_NOT_FOUND, str(error))) from error

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
                await self._end_surely(child)
            code = await lines
        if self._stop.reason is not None and lines not in done:
            return None
        return Exit(code=code, timed_out=not done, over_limit=child.over_limit.is_set())

    async def _lingering(self) -> None:
        """Until the turn has been over for so long that the process will not end by itself."""
        await self._reading.turn_over.wait()
        await asyncio.sleep(LINGER_SEC)

    async def _end_surely(self, child: Child) -> None:
        """Leave nothing of the tree alive. A child that ended by itself is only looked after if something is left."""
        if child.has_exited and not child.group_lives() and not self._lock.outlived():
            return
        while not await child.end(self._run.id, grace_sec=GRACE_SEC, lock=self._lock.path):
            log.error("an engine's processes cannot be ended, trying again", extra={"run": self._run.id})

    async def _take_back_sign_in(self) -> None:
        loan = self._prepared.loan
        if loan is not None and (renewed := await asyncio.to_thread(loan.end)):
            log.info("a renewed sign-in was taken back: %s", ", ".join(renewed), extra={"run": self._run.id})

    def _signal(self, result: Completed | Broke | None) -> TurnSignal:
        epoch, at = self._run.epoch, self._bench.clock()
        if self._stop.reason is StopReason.CANCEL:
            return TreeGone(epoch=epoch, at=at)
        if result is None:
            return TurnLost(epoch=epoch, at=at, counted=False)
        outcome = self._outcome(result)
        return TurnEnded(
            epoch=epoch, outcome=outcome, at=at, usage=self._reading.usage, warnings=self._reading.warnings
        )

    def _outcome(self, result: Completed | Broke) -> TurnOutcome:
        resuming, confirmed = self._run.handle is not None, self._reading.confirmed
        if self._reading.strayed.is_set():
            message = "the engine went on in another session than the one it was asked to resume"
            return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message, detail=self._reading.session)
        if isinstance(result, Broke):
            return engine_failure(
                result.code, result.message, detail=result.detail, resuming=resuming, confirmed=confirmed
            )
        if resuming and not confirmed:
            message = "the engine did not say which session it went on with"
            return engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)
        check = output_check(self._prepared.package)
        answer = read_answer(result.messages, check, whole_turn=self._run.mode is Mode.AUTO)
        return conclude(
            answer,
            mode=self._run.mode,
            validation=self._run.options.ask_user_validation,
            has_schema=check is not None,
        )
