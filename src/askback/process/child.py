"""One child process in its own session: its lines of output, its exit, and the end of its process tree.

A `Spawner` starts it: the guardian, a sandbox around it, or this process itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.isolation import UNLIMITED, Breach, Enforcement, Isolation, Network, ResourceLimits
from askback.process.streams import Line, LineFramer, Streams, chunks, unread, writable

_DRAIN_SEC = 2.0
_LINES_AT_ONCE = 64
"""After this many lines, let other tasks run: a chunk can have tens of thousands of short lines."""
_TRIES = 3

STDOUT = "stdout"
STDERR = "stderr"


class Pipe(Enum):
    """For a resident process: its standard input stays open, and `send` writes to it."""

    OPEN = "open"


OnLine = Callable[[str, Line], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    line_bytes: int
    turn_bytes: int


class NotStarted(Exception):
    """The program could not be started; the text says why."""


class NotFrozen(Exception):
    """Processes could not be suspended, or did not stay suspended; the text says which."""


class FolderRefused(NotStarted):
    """The folder of the user cannot be given to the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A program to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    limits: OutputLimits
    stdin: bytes | Pipe | None = None
    """The content of its standard input, which it cannot change."""
    pass_fds: Sequence[int] = ()
    """Open files that it gets besides its three streams."""
    writable: Sequence[Path] = ()
    """The folders that it needs to write to; in a sandbox there are no others."""
    workdir: Path | None = None
    """A folder of the user to work in: writable as well, but not part of its disk usage."""
    readable: Sequence[Path] = ()
    """Files and folders that it needs to read, even if a sandbox would hide them."""
    resources: ResourceLimits = UNLIMITED
    """Limits for it and everything that it starts. Its disk usage is that of the `writable` folders."""
    network: Network = Network.HOST
    """Anything but the host's network needs a sandbox."""


class Starter(Protocol):
    async def start(self, request: SpawnRequest) -> Child:
        """Start a program. Raises `NotStarted`."""


class Spawner(Starter, Protocol):
    async def isolation(self) -> Isolation:
        """How the programs that it starts are isolated."""

    async def enforcement(self) -> Enforcement:
        """How the limits of programs are enforced on this machine."""

    def extend_lease(self, deadline: float) -> None:
        """Let programs live until this time (CLOCK_BOOTTIME, in seconds), unless it is extended again.

        After it, every program is ended with its whole tree, even if this process is suspended, and none can be started.
        If this is never called, there is no such limit.
        """

    async def close(self) -> None:
        """End everything that it started and that is still alive."""


@contextmanager
def starting(request: SpawnRequest) -> Iterator[Streams]:
    """The streams of a program that the block starts. On failure they are closed, and `NotStarted` is raised."""
    streams: Streams | None = None
    try:
        streams = Streams.open(None if isinstance(request.stdin, Pipe) else request.stdin or b"")
        yield streams
    except BaseException as error:
        if streams is not None:
            streams.close()
        if isinstance(error, OSError | ValueError):
            raise NotStarted(f"{request.argv[0]} cannot be started: {error}") from error
        raise
    finally:
        if streams is not None:
            streams.hand_over()


class ProcessHandle:
    """A spawner's handle on one program and its descendants."""

    identity: ProcessIdentity
    keeper_lost = False
    """Whether the program was ended because its keeper was killed or the lease was over, not by itself or by us."""
    expired = False
    """Whether it was lost because the lease was over."""
    breach: Breach | None = None
    """The limit for which it was killed with all its descendants."""

    def __init__(self) -> None:
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        """Whether the whole tree has ended, as far as the spawner knows."""
        raise NotImplementedError

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None) -> bool:
        """End the whole tree. True if all of it has ended."""
        raise NotImplementedError

    async def freeze(self) -> bool:
        """Suspend the whole tree. False if that is not possible; then nothing is suspended."""
        return False

    async def thaw(self) -> bool:
        """Continue the tree. True if it was suspended all the time since `freeze`."""
        return False

    def close(self) -> None:
        pass


class Child:
    """A running program. The caller who started it must `end` it."""

    def __init__(self, handle: ProcessHandle, streams: Streams, limits: OutputLimits) -> None:
        self._handle = handle
        self._streams = streams
        self._limits = limits
        self._printed = 0
        self._enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over_limit = asyncio.Event()

    @property
    def identity(self) -> ProcessIdentity:
        return self._handle.identity

    async def lines(self, on_line: OnLine) -> int:
        """Pass every line of both streams to `on_line` as it arrives. Returns the exit code when all is read."""
        pipes = ((self._streams.stdout, STDOUT), (self._streams.stderr, STDERR))
        async with asyncio.TaskGroup() as group:
            pumps = [group.create_task(self._pump(pipe, name, on_line)) for pipe, name in pipes]
            code = await self.exited()
            # A descendant may keep the pipes open forever. A pump that waits for `on_line` gets to the end.
            await asyncio.wait(pumps, timeout=_DRAIN_SEC)
            self._enough.set_result(None)
        return code

    def begin_turn(self) -> None:
        """Reset the count of printed bytes."""
        self._printed = 0

    async def send(self, data: bytes) -> None:
        """Write to a standard input of `Pipe.OPEN`. Does nothing once the program has exited."""
        pipe = self._streams.stdin
        if pipe is None:
            raise ValueError("the standard input was not kept open")
        with suppress(BrokenPipeError):
            while data:
                try:
                    data = data[os.write(pipe, data) :]
                except BlockingIOError:
                    await self._writable_or_gone(pipe)

    def end_input(self) -> None:
        """Close its standard input. Nothing may be sent after this."""
        self._streams.close_input()

    @property
    def unread(self) -> int:
        """Bytes in its standard input that it has not read yet."""
        return 0 if self._streams.stdin is None else unread(self._streams.stdin)

    async def _writable_or_gone(self, pipe: int) -> None:
        ready = asyncio.ensure_future(writable(pipe))
        either: set[asyncio.Future[Any]] = {ready, self._handle.exit}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
        if self.has_exited:
            raise BrokenPipeError

    async def exited(self) -> int:
        return await asyncio.shield(self._handle.exit)

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None = None) -> bool:
        """End it with its whole tree. True if all of it has ended."""
        return await self._handle.end(mark, grace_sec=grace_sec, lock=lock)

    @asynccontextmanager
    async def frozen(self) -> AsyncIterator[None]:
        """Suspend the whole tree during the block, so that it changes no file. It may be ended meanwhile.

        Raises `NotFrozen` before the block if that is not possible, and after it if a process has run nevertheless.
        """
        try:
            if not await self._handle.freeze():
                raise NotFrozen("its processes cannot be suspended")
            yield
        finally:
            stayed = await self._handle.thaw()
        if not stayed and not self.gone:
            raise NotFrozen("one of its processes ran although it was suspended")

    @property
    def has_exited(self) -> bool:
        return self._handle.exit.done()

    @property
    def is_stopped(self) -> bool:
        """Whether a signal has suspended it."""
        return tree.is_stopped(self.identity.pid)

    # The following are those of `ProcessHandle`.

    @property
    def gone(self) -> bool:
        return self._handle.gone

    @property
    def keeper_lost(self) -> bool:
        return self._handle.keeper_lost

    @property
    def expired(self) -> bool:
        return self._handle.expired

    @property
    def breach(self) -> Breach | None:
        return self._handle.breach

    def close(self) -> None:
        """Close the pipes and the handle. Nothing may read the pipes after this."""
        self._handle.close()
        self._streams.close()

    async def _pump(self, pipe: int, name: str, on_line: OnLine) -> None:
        framer = LineFramer(self._limits.line_bytes)
        async for chunk in chunks(pipe, self._enough):
            self._printed += len(chunk)
            if self._printed > self._limits.turn_bytes:
                self.over_limit.set()
                return
            for number, line in enumerate(framer.feed(chunk), 1):
                await on_line(name, line)
                if number % _LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        for line in framer.finish():
            await on_line(name, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """The output of a short call. `exit_code` is None if it did not end in time."""

    exit_code: int | None
    stdout: str
    stderr: str


async def call(
    spawner: Starter,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_sec: float,
    mark: str,
    readable: Sequence[Path] = (),
    workdir: Path | None = None,
    resources: ResourceLimits = UNLIMITED,
    network: Network = Network.HOST,
    question: bytes = b"",
    answers: Callable[[bytes], bool] = lambda line: False,
) -> Printed:
    """Run a short program to its end and return its output. If it hangs, its tree is ended.

    One that gets a `question` as its input is ended, as if it had ended by itself, with the first line of stdout that
    `answers` it. If its keeper was killed a program is run again, so it must have no side effects.
    """
    limits = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 22)
    env = {**env, tree.MARK: mark}
    request = SpawnRequest(
        argv=argv,
        env=env,
        cwd=cwd,
        limits=limits,
        writable=(cwd,),
        workdir=workdir,
        readable=readable,
        resources=resources,
        network=network,
        stdin=Pipe.OPEN if question else None,
    )
    for _ in range(_TRIES):
        if (printed := await _call(spawner, request, timeout_sec, mark, question, answers)) is not None:
            return printed
    return Printed(exit_code=None, stdout="", stderr="")


async def _call(
    spawner: Starter,
    request: SpawnRequest,
    timeout_sec: float,
    mark: str,
    question: bytes,
    answers: Callable[[bytes], bool],
) -> Printed | None:
    texts: dict[str, list[str]] = {STDOUT: [], STDERR: []}
    answered = asyncio.Event()

    async def collect(name: str, line: Line) -> None:
        texts[name].append(line.data.decode(errors="replace"))
        if name == STDOUT and answers(line.data):
            answered.set()

    child = await spawner.start(request)
    code: int | None = None
    try:
        async with asyncio.timeout(timeout_sec), asyncio.TaskGroup() as group:
            if question:
                await child.send(question)
            running, waiting = group.create_task(child.lines(collect)), group.create_task(answered.wait())
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            code = running.result() if running.done() else 0
            running.cancel()
            waiting.cancel()
    except TimeoutError:
        code = None
    finally:
        await child.end(mark, grace_sec=0)
        child.close()
    if child.keeper_lost:
        return None
    return Printed(exit_code=code, stdout="\n".join(texts[STDOUT]), stderr="\n".join(texts[STDERR]))
