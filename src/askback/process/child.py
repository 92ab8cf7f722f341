"""One child process in a session of its own: its lines as they come, its exit, and its end.

Who starts it, and who keeps it, is a `Spawner`'s matter: the guardian, or this process itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.isolation import Isolation, Network
from askback.process.limits import UNLIMITED, Breach, Enforcement, ResourceLimits
from askback.process.streams import Line, LineFramer, Streams, chunks, writable

_DRAIN_SEC = 2.0
_LINES_AT_ONCE = 64
"""After so many, others get their turn: a chunk of short lines holds tens of thousands."""
_TRIES = 3

STDOUT = "stdout"
STDERR = "stderr"


class Pipe(Enum):
    """For a program that stays: its standard input is kept open, and written by `send`."""

    KEPT = "kept"


OnLine = Callable[[str, Line], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    line_bytes: int
    turn_bytes: int


class NotStarted(Exception):
    """The program could not be started; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnRequest:
    """A program to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    limits: OutputLimits
    stdin: bytes | Pipe | None = None
    """What it reads from its standard input; it cannot change that."""
    keep_fds: Sequence[int] = ()
    """Open files that it gets besides its three streams."""
    writable: Sequence[Path] = ()
    """The folders that it needs to write to; in a sandbox there are no others."""
    readable: Sequence[Path] = ()
    """What it needs to read, also where a sandbox would hide it."""
    resources: ResourceLimits = UNLIMITED
    """What it may use, with everything that it starts; its disk is what it may write to."""
    network: Network = Network.HOST
    """What it can connect to; anything but the host's network needs a sandbox."""


class Spawner(Protocol):
    async def start(self, order: SpawnRequest) -> Child:
        """The running program; `NotStarted` says why there is none."""

    async def confinement(self) -> Isolation:
        """How the programs it starts are kept in."""

    async def enforcement(self) -> Enforcement:
        """How far limits of programs are enforced here."""

    async def close(self) -> None:
        """End whatever still lives of what it started."""


@contextmanager
def starting(order: SpawnRequest) -> Iterator[Streams]:
    """The streams of a program that the block starts; when it cannot, they are closed and it is told why."""
    streams: Streams | None = None
    try:
        streams = Streams.open(None if isinstance(order.stdin, Pipe) else order.stdin or b"")
        yield streams
    except BaseException as error:
        if streams is not None:
            streams.close()
        if isinstance(error, OSError | ValueError):
            raise NotStarted(f"{order.argv[0]} cannot be started: {error}") from error
        raise
    finally:
        if streams is not None:
            streams.hand_over()


class ProcessHandle(Protocol):
    """A spawner's hold on one program and all that descends from it."""

    identity: ProcessIdentity
    exit: asyncio.Future[int]

    @property
    def gone(self) -> bool:
        """Whether nothing of the tree lives any more, as far as the spawner can know."""

    @property
    def lost(self) -> bool:
        """Whether the hold broke, and the program was ended for that and not by its own doing."""

    @property
    def breach(self) -> Breach | None:
        """The limit for which it was killed."""

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None) -> bool: ...

    def close(self) -> None: ...


class Child:
    """A running program, made by a spawner; whoever starts it must see it `end`ed."""

    def __init__(self, hold: ProcessHandle, streams: Streams, limits: OutputLimits) -> None:
        self._hold = hold
        self._streams = streams
        self._limits = limits
        self._printed = 0
        self._enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.over_limit = asyncio.Event()

    @property
    def identity(self) -> ProcessIdentity:
        return self._hold.identity

    async def lines(self, on_line: OnLine) -> int:
        """Hand over every line of both streams in the order it comes; return the exit code when all is read."""
        pipes = ((self._streams.stdout, STDOUT), (self._streams.stderr, STDERR))
        async with asyncio.TaskGroup() as group:
            pumps = [group.create_task(self._pump(pipe, name, on_line)) for pipe, name in pipes]
            code = await self.exited()
            # Who still has the pipes open may never close them; who is held up in handing over gets to the end.
            await asyncio.wait(pumps, timeout=_DRAIN_SEC)
            self._enough.set_result(None)
        return code

    def begin_turn(self) -> None:
        """What it prints counts anew."""
        self._printed = 0

    async def send(self, data: bytes) -> None:
        """Write to a standard input that was kept open. A program that is gone gets nothing: its exit tells."""
        pipe = self._streams.stdin
        if pipe is None:
            raise ValueError("its standard input was not kept open")
        with suppress(BrokenPipeError):
            while data:
                try:
                    data = data[os.write(pipe, data) :]
                except BlockingIOError:
                    await self._writable_or_gone(pipe)

    async def _writable_or_gone(self, pipe: int) -> None:
        ready = asyncio.ensure_future(writable(pipe))
        either: set[asyncio.Future[Any]] = {ready, self._hold.exit}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)
        if self.has_exited:
            raise BrokenPipeError

    async def exited(self) -> int:
        return await asyncio.shield(self._hold.exit)

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None = None) -> bool:
        """End it with its whole tree. True once nothing of it lives."""
        return await self._hold.end(mark, grace_sec=grace_sec, lock=lock)

    @property
    def has_exited(self) -> bool:
        return self._hold.exit.done()

    @property
    def gone(self) -> bool:
        """Whether it has ended with everything that descends from it, as far as is known without looking further."""
        return self._hold.gone

    @property
    def lost(self) -> bool:
        """Whether it ended because whoever kept it was killed: neither its own doing nor ours."""
        return self._hold.lost

    @property
    def breach(self) -> Breach | None:
        """The limit that it exceeded while it ran, for which it was killed with everything that descends from it."""
        return self._hold.breach

    def close(self) -> None:
        """Let go of it and of the pipes. Only once nothing reads them any more."""
        self._hold.close()
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
    """What a short call printed. `exit_code` is None when it did not end in time."""

    exit_code: int | None
    stdout: str
    stderr: str


async def call(
    spawner: Spawner,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    timeout_sec: float,
    mark: str,
    readable: Sequence[Path] = (),
    network: Network = Network.HOST,
) -> Printed:
    """Run a short program to its end and keep what it prints; one that hangs is ended with its tree.

    One whose keeper was killed is run again: it only tells something, and did nothing wrong.
    """
    limits = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 22)
    env = {**env, tree.MARK: mark}
    order = SpawnRequest(
        argv=argv, env=env, cwd=cwd, limits=limits, writable=(cwd,), readable=readable, network=network
    )
    for _ in range(_TRIES):
        if (printed := await _call(spawner, order, timeout_sec, mark)) is not None:
            return printed
    return Printed(exit_code=None, stdout="", stderr="")


async def _call(spawner: Spawner, order: SpawnRequest, timeout_sec: float, mark: str) -> Printed | None:
    texts: dict[str, list[str]] = {STDOUT: [], STDERR: []}

    async def keep(name: str, line: Line) -> None:
        texts[name].append(line.data.decode(errors="replace"))

    child = await spawner.start(order)
    code: int | None = None
    try:
        async with asyncio.timeout(timeout_sec):
            code = await child.lines(keep)
    except TimeoutError:
        code = None
    finally:
        await child.end(mark, grace_sec=0)
        child.close()
    if child.lost:
        return None
    return Printed(exit_code=code, stdout="\n".join(texts[STDOUT]), stderr="\n".join(texts[STDERR]))
