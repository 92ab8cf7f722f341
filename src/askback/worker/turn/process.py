"""The process of an engine, with everything that belongs to it: its lock, its sign-in, its raw output, its input.

It executes one turn or, as a resident process, one turn after another: for a sticky run always, for a resumable run
as long as it is kept warm. After its end, its process tree is gone and nothing is held for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

from askback.background.loops import first_of
from askback.catalog.probes import EngineSetup
from askback.core.errors import ErrorCode, RunWarning, WarningCode, is_temporary
from askback.core.outcomes import engine_failure
from askback.core.permissions import GateKind
from askback.core.runs import Run
from askback.engines.base import (
    ClosingConversation,
    Conversation,
    EngineEvent,
    Launch,
    Parser,
    PausableConversation,
    Reply,
    Turn,
)
from askback.fs.walk import FileLeased
from askback.process import tree
from askback.process.ask_socket import ask_tool_files
from askback.process.child import Child, FolderRefused, NotFrozen, NotStarted, Pipe, SpawnRequest
from askback.process.locks import FileLock
from askback.process.streams import Line
from askback.worker.claimed_run import ClaimedRun
from askback.worker.turn.ask_tool import AskTool
from askback.worker.turn.context import CannotStart, TurnContext, pause
from askback.worker.turn.gate import Gate
from askback.worker.turn.observe import EventFeed, RawOutput, TurnObserver
from askback.worker.turn.prepare import PreparedTurn, Unfit, prepare, prepare_next, turn_name, unavailable
from askback.workspace.layout import Workspace
from askback.workspace.sign_ins import SignInCopies
from askback.workspace.workdirs import WorkdirUnavailable

log = logging.getLogger(__name__)

CLOSE_SEC = 5.0
"""How long an engine may take to store its session when its turn is over."""
EXIT_SEC = 2.0
"""How long it may take to exit at the end of its input, before it is ended."""
GRACE_SEC = 3.0
"""How long an engine may take to end on request before it is killed."""
READ_SEC = 10.0
"""How long a process that was kept may take to read its next prompt before it is given up."""
_POLL_SEC = 0.02
_LOCK_RETRY_SEC = 0.05
_MAX_UNSENT = 16_000_000
"""Bytes that wait until the engine reads them."""


class EngineProcess:
    def __init__(
        self,
        run: Run,
        prepared: PreparedTurn,
        reader: Parser | Conversation,
        conversation: Conversation | None,
        child: Child,
        lock: FileLock,
        raw: RawOutput,
        *,
        ask_tool: AskTool,
        delayed: bool = False,
        prewarmed: bool = False,
    ) -> None:
        self.prepared = prepared
        self.ask_tool = ask_tool
        self.reader = reader
        self.reader_lock = asyncio.Lock()
        """Held while the reader is called: long lines are parsed in another thread."""
        self.conversation = conversation
        """The reader of a resident process; None if the process executes one turn."""
        self.child = child
        self.life: asyncio.Task[int] | None = None
        """Runs `live`."""
        self.resources = AsyncExitStack()
        """Released when the process has been ended."""
        self.sign_in_warnings: tuple[RunWarning, ...] = ()
        """Known once the process has been ended."""
        self.unresponsive = False
        """Whether it was kept for a turn of which it has not taken notice."""
        self.hurried = False
        """Whether it gets no time to end on request."""
        self.turns = 0
        """How many turns have begun in it."""
        self.paused = False
        """Whether its turn waits, in a call of the ask tool, for the answer of the user."""
        self._run_id = run.id
        self._lock = lock
        self._raw = raw
        self._delayed = delayed
        self._prewarmed = prewarmed
        self._observer: TurnObserver | None = None
        self._ended = False
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._unsent_bytes = 0
        self._bytes = 0
        """All that was to be sent so far."""

    @property
    def usable(self) -> bool:
        """Whether it is alive and has not exceeded the limit on its output."""
        return not (self.child.has_exited or self.child.over_limit.is_set())

    @property
    def keepable(self) -> bool:
        """Whether a resumable run gains from it. A process whose call was lost continues without the answer."""
        return self.usable and (not self.paused or self.ask_tool.holds)

    async def begin_turn(self, context: TurnContext, run: Run, claim: ClaimedRun, feed: EventFeed) -> TurnObserver:
        """Observe what the process prints as the output of this turn. Raises `CannotStart`, `Unfit` or `Stopped`."""
        later = self._observer is not None
        if later:
            self.prepared = await self._prepare_next(context, run, claim)
        self.turns += 1
        deferred = None if later else self.prepared.deferred
        may_hold = self.prepared.resident and isinstance(self.conversation, PausableConversation)
        self.ask_tool.begin_turn(may_hold=may_hold, deferred=deferred)
        async with self.reader_lock:
            if later:
                last, self._raw = self._raw, RawOutput(self.prepared.workspace, turn_name(run))
                last.close()
                self.child.begin_turn()
            observer = self._observer = TurnObserver(
                run=run,
                engine=self.prepared.engine,
                read=self.reader.feed,
                record=lambda stream, line: self._raw.write(stream, line),
                store=context.store,
                feed=feed,
                redactor=self.prepared.redactor,
                clock=context.clock,
                parsing=context.parsing,
                lock=self.reader_lock,
                send=self.send,
                first_output=lambda: context.printed(run),
                decline=None if run.sticky else self._decline,
                gate=self.ask_tool.gate,
            )
        if self._delayed and not later:
            observer.warn_of_delay()
        return observer

    async def _prepare_next(self, context: TurnContext, run: Run, claim: ClaimedRun) -> PreparedTurn:
        """Prepare the next turn of this process. The home is saved first, unless the run is sticky."""
        if run.sticky:
            return await prepare_next(context, run, claim, self.prepared)
        try:
            async with self.saving(context):
                return await prepare_next(context, run, claim, self.prepared)
        except NotFrozen as problem:
            raise Unfit(str(problem)) from problem

    @asynccontextmanager
    async def saving(self, context: TurnContext) -> AsyncIterator[None]:
        """Suspend the process while the block saves its home. Raises `NotFrozen`; then nothing is saved."""
        try:
            async with self.child.frozen():
                yield
        except (NotFrozen, FileLeased) as problem:
            await context.pools.turns.run(self.prepared.workspace.discard_snapshot)
            if isinstance(problem, NotFrozen):
                raise
            raise NotFrozen(f"one of its files cannot be read: {problem.strerror}") from problem

    def _decline(self) -> tuple[EngineEvent, ...]:
        """Let the engine decide by itself: its own question would end with its process."""
        assert self.conversation is not None
        return tuple(self.conversation.say("", Reply(response=None, answered=False)))

    @property
    def continued(self) -> bool:
        """Whether the process is older than its turn."""
        return self.turns > 1 or self._prewarmed

    def was_ready_for(self, run: Run) -> bool:
        """Whether the turn could have had a new process instead."""
        return self.continued and not run.sticky

    async def sign_in_is_current(self) -> bool:
        """Whether the sign-in of the process is still the user's, and was not renewed by it."""
        copies = self.prepared.sign_in_copies
        return copies is None or await asyncio.to_thread(copies.current)

    async def gate_failed(self) -> None:
        """Wait until the engine has used a tool, or its model has spoken, without asking the gate."""
        gate = self.ask_tool.gate
        await (asyncio.Event() if gate is None else gate.failed).wait()

    async def live(self) -> int:
        """Read the process and write to it until it has exited; return its exit code."""
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._write())
            code = await self.child.lines(self._take)
            writing.cancel()
        return code

    async def _take(self, stream: str, line: Line) -> None:
        assert self._observer is not None
        await self._observer.take(stream, line)

    async def send(self, data: bytes) -> None:
        """Queue the data. Writing here could deadlock: the engine may be blocked until its output is read."""
        self._bytes += len(data)
        self._unsent_bytes += len(data)
        self._unsent.put_nowait(data)
        if self._unsent_bytes > _MAX_UNSENT:
            # It keeps asking and does not read the responses.
            self.child.over_limit.set()

    async def reads(self) -> bool:
        """Wait until it has read everything that was sent up to now. False if it takes longer than `READ_SEC`."""
        sent = self._bytes
        for _ in range(max(1, round(READ_SEC / _POLL_SEC))):
            if self._bytes - self._unsent_bytes - self.child.unread >= sent:
                return True
            await asyncio.sleep(_POLL_SEC)
        return False

    async def _write(self) -> None:
        while True:
            data = await self._unsent.get()
            if not data:
                self.child.end_input()
                return
            await self.child.send(data)
            self._unsent_bytes -= len(data)

    async def part(self) -> None:
        """Let the program of a single turn store its session and exit by itself. `end` kills what is left."""
        if self.prepared.resident or not isinstance(self.conversation, ClosingConversation):
            return
        async with self.reader_lock:
            said = tuple(self.conversation.close())
        for each in said:
            await self.send(each.data)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SEC):
                while True:
                    if self.conversation.is_closed or self.child.has_exited:
                        break
                    await asyncio.sleep(_POLL_SEC)
        self._unsent.put_nowait(b"")
        await first_of(self.child.exited, timeout=EXIT_SEC)

    async def kill(self) -> None:
        """Kill the whole process tree. A child that exited by itself may have left descendants."""
        if self.child.gone and not self._lock.held_by_descendant():
            return
        # A suspended process is resumed by its end. Without grace it cannot read the prompt even then.
        grace_sec = 0 if self.unresponsive or self.hurried else GRACE_SEC
        while not await self.child.end(self._run_id, grace_sec=grace_sec, lock=self._lock.path):
            log.error("an engine's processes cannot be ended, trying again", extra={"run": self._run_id})

    async def end(self) -> None:
        """Kill what is left of it and release everything. Harmless when called again."""
        if self._ended:
            return
        await self.kill()
        self._ended = True
        # Everything is released even if the reader failed.
        async with self.resources:
            if self.life is not None:
                await asyncio.wait({self.life})
        # The observer refers back to this process. Without the cycle, a large prompt is freed at once.
        self._observer = None

    def own(self, resources: AsyncExitStack) -> None:
        """Release `resources` when the process ends, after its raw output, its sign-in and its pipes."""
        resources.callback(lambda: self._raw.close())
        resources.push_async_callback(self._merge_sign_in)
        resources.callback(self.child.close)
        self.resources = resources

    async def _merge_sign_in(self) -> None:
        self.sign_in_warnings = await merge_sign_in(self._run_id, self.prepared.sign_in_copies)


async def start_process(context: TurnContext, run: Run, claim: ClaimedRun) -> EngineProcess:
    """Prepare the run's turn and start its engine. Raises `CannotStart` or `Stopped`."""
    async with AsyncExitStack() as resources:
        lock = await take_lock(run, context.workspaces.of(run.id), claim)
        resources.callback(lock.release)
        prepared, delayed = await context.shortage.retry(lambda: prepare(context, run, claim), claim)
        async with AsyncExitStack() as unless_started:
            unless_started.push_async_callback(merge_sign_in, run.id, prepared.sign_in_copies)
            conversation = conversation_of(prepared)
            reader = conversation or prepared.engine.parser(prepared.turn)
            ask_tool = await open_ask_tool(prepared.turn, prepared.workspace, _gate(context, run, prepared))
            resources.callback(ask_tool.close)
            (child, raw), again = await context.shortage.retry(lambda: _spawn(context, run, prepared, lock), claim)
            unless_started.pop_all()
        process = EngineProcess(
            run, prepared, reader, conversation, child, lock, raw, ask_tool=ask_tool, delayed=delayed or again
        )
        if prepared.sign_in_copies is not None and prepared.resident and not run.sticky:
            await asyncio.to_thread(context.workspaces.record_sign_in, run.id)
            resources.callback(context.workspaces.forget_sign_in, run.id)
        process.own(resources.pop_all())
    return process


async def open_ask_tool(turn: Turn, workspace: Workspace, gate: Gate | None = None) -> AskTool:
    """Open before the process starts, if the process has an ask tool or a gate. Raises `CannotStart`."""
    ask_tool = AskTool(gate)
    if turn.ask_tool or gate is not None:
        try:
            await ask_tool.open(workspace)
        except OSError as error:
            message = f"the gate of the run's permissions cannot be opened: {error}"
            raise CannotStart(engine_failure(ErrorCode.PERMISSION_GATE_FAILED, message)) from error
    return ask_tool


def _gate(context: TurnContext, run: Run, prepared: PreparedTurn) -> Gate | None:
    """The gate of a run with permissions. Raises `CannotStart`."""
    if run.permissions is None:
        return None
    kind = prepared.engine.gate(prepared.turn.probe)
    if kind is GateKind.NONE:
        # The program may be another version than the one for which the run was accepted.
        message = f"engine '{run.engine}' has no gate for calls of tools in the version that is installed here"
        raise CannotStart(engine_failure(ErrorCode.PERMISSION_GATE_FAILED, message))
    root = prepared.workspace.engine_cwd(run.workdir)
    return Gate(run, prepared.engine, store=context.store, clock=context.clock, root=root, parks=kind is GateKind.PARK)


def conversation_of(prepared: PreparedTurn) -> Conversation | None:
    if prepared.conversing and prepared.engine.can_stay:
        return prepared.engine.conversation(prepared.turn)
    return None


async def take_lock(run: Run, workspace: Workspace, claim: ClaimedRun) -> FileLock:
    """Take the run's lock; end what is left of an earlier turn, which still holds it.

    Raises `Stopped` if the turn is stopped first: there are processes that cannot be ended.
    """
    logged = False
    while (lock := FileLock.take(workspace.lock_path)) is None:
        if not logged:
            log.warning("ending what is left of an earlier turn", extra={"run": run.id})
        logged = True
        await tree.Tree(mark=run.id, root=run.process, lock=workspace.lock_path).end(grace_sec=0)
        await pause(claim, _LOCK_RETRY_SEC)
    return lock


async def _spawn(context: TurnContext, run: Run, prepared: PreparedTurn, lock: FileLock) -> tuple[Child, RawOutput]:
    raw = RawOutput(prepared.workspace, turn_name(run))
    try:
        return await context.spawner.start(spawn_request(context, run, prepared, lock)), raw
    except BaseException as error:
        raw.close()
        if isinstance(error, FolderRefused):
            raise unavailable(WorkdirUnavailable(str(error))) from None
        if isinstance(error, NotStarted) and not is_temporary(error):
            raise CannotStart(engine_failure(ErrorCode.ENGINE_NOT_FOUND, str(error))) from error
        raise


def spawn_request(context: TurnContext, run: Run, prepared: PreparedTurn, lock: FileLock) -> SpawnRequest:
    request = private_request(context, prepared.workspace, prepared.setup, prepared.turn, prepared.launch, lock)
    if not prepared.conversing:
        request = replace(request, stdin=prepared.launch.stdin)
    if run.workdir is None:
        return request
    cwd = prepared.workspace.engine_cwd(run.workdir)
    return replace(request, cwd=cwd, workdir=cwd, env={**request.env, "PWD": str(cwd)})


def private_request(
    context: TurnContext, workspace: Workspace, setup: EngineSetup, turn: Turn, launch: Launch, lock: FileLock
) -> SpawnRequest:
    """A resident process in the folders of a run."""
    private = {
        "HOME": str(workspace.home),
        "TMPDIR": str(workspace.tmp),
        "PWD": str(workspace.cwd),
        tree.MARK: workspace.root.name,
    }
    return SpawnRequest(
        argv=launch.argv,
        env={**turn.env, **private, **launch.env},
        cwd=workspace.cwd,
        stdin=Pipe.OPEN,
        limits=context.limits,
        pass_fds=(lock.fd,),
        writable=(workspace.cwd, workspace.home, workspace.tmp),
        readable=(*setup.files, *(ask_tool_files() if turn.ask_tool or turn.gate else ())),
        resources=setup.resources,
        network=setup.network,
    )


async def merge_sign_in(run_id: str, copies: SignInCopies | None) -> tuple[RunWarning, ...]:
    """Merge a renewed sign-in into the user's, and remove the copy.

    If that fails, for example because the user's is read-only, the result of the turn is still valid.
    """
    if copies is None:
        return ()
    try:
        merged = await asyncio.to_thread(copies.end)
    except OSError as error:
        log.error("a renewed sign-in cannot be saved; sign in again if the engine asks for it: %s", error)
        return ()
    if merged.renewed:
        log.info("a renewed sign-in was saved: %s", ", ".join(merged.renewed), extra={"run": run_id})
    if merged.refused is None:
        return ()
    log.warning("a change to a sign-in was refused: %s", merged.refused, extra={"run": run_id})
    message = f"the engine changed its sign-in in a way that is not accepted; nothing was saved ({merged.refused})"
    return (RunWarning(code=WarningCode.SIGN_IN_CHANGE_REFUSED, message=message),)
