"""One child process in a session of its own: its lines as they come, its exit, and its end.

The exit is watched by a pidfd, for a descendant may keep the pipes open long after the child is gone.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.lines import Line, LineFramer

_CHUNK = 1 << 16
_PIPE = 1 << 20
_DRAIN_SEC = 2.0

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


class Child:
    """A running program. Make it with `start`; whoever makes it must see it `ended`."""

    def __init__(self, process: subprocess.Popen[bytes], limits: OutputLimits) -> None:
        self._process = process
        self._limits = limits
        self._printed = 0
        self.over_limit = asyncio.Event()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.identity = tree.identity(process.pid) or ProcessIdentity(
            pid=process.pid, start_ticks=0, boot_id=tree.boot_id()
        )
        _watch_exit(process, self._exit)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdin: Path | Pipe | None,
        limits: OutputLimits,
        keep_fds: Sequence[int] = (),
    ) -> Child:
        """Start it. Where it is not kept open, its input is a file: a prompt of any length neither blocks nor is cut."""
        try:
            with open(os.devnull if stdin is None or isinstance(stdin, Pipe) else stdin, "rb") as source:
                process = subprocess.Popen(
                    argv,
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.PIPE if isinstance(stdin, Pipe) else source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                    pass_fds=keep_fds,
                )
        except (OSError, ValueError) as error:
            raise NotStarted(f"{argv[0]} cannot be started: {error}") from error
        _widen(process)
        return cls(process, limits)

    async def lines(self, on_line: OnLine) -> int:
        """Hand over every line of both streams in the order it comes; return the exit code when all is read."""
        pipes = ((self._process.stdout, STDOUT), (self._process.stderr, STDERR))
        async with asyncio.TaskGroup() as group:
            pumps = [
                group.create_task(self._pump(pipe.fileno(), name, on_line)) for pipe, name in pipes if pipe is not None
            ]
            code = await asyncio.shield(self._exit)
            _done, late = await asyncio.wait(pumps, timeout=_DRAIN_SEC)
            for pump in late:
                pump.cancel()
        return code

    def begin_turn(self) -> None:
        """What it prints counts anew."""
        self._printed = 0

    async def send(self, data: bytes) -> None:
        """Write to a standard input that was kept open. A program that is gone gets nothing: its exit tells."""
        pipe = self._process.stdin
        if pipe is None:
            raise ValueError("its standard input was not kept open")
        fd = pipe.fileno()
        os.set_blocking(fd, False)
        with suppress(BrokenPipeError):
            while data:
                try:
                    data = data[os.write(fd, data) :]
                except BlockingIOError:
                    await self._writable_or_gone(fd)

    async def _writable_or_gone(self, fd: int) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(fd, _resolve, ready)
        either: set[asyncio.Future[Any]] = {ready, self._exit}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_writer(fd)
        if self.has_exited:
            raise BrokenPipeError

    async def exited(self) -> int:
        return await asyncio.shield(self._exit)

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None = None) -> bool:
        """End it with its whole tree. True once nothing of it lives."""
        gone = await tree.Tree(mark=mark, root=self.identity, lock=lock).end(grace_sec=grace_sec)
        if gone:
            await self.exited()
        return gone

    @property
    def has_exited(self) -> bool:
        return self._exit.done()

    def group_lives(self) -> bool:
        """Whether anything is left of the child's process group."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """Let go of the pipes. Only once nothing reads them any more."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    async def _pump(self, fd: int, name: str, on_line: OnLine) -> None:
        os.set_blocking(fd, False)
        framer = LineFramer(self._limits.line_bytes)
        while chunk := await _read(fd):
            self._printed += len(chunk)
            if self._printed > self._limits.turn_bytes:
                self.over_limit.set()
                return
            for line in framer.feed(chunk):
                await on_line(name, line)
        for line in framer.finish():
            await on_line(name, line)


def _widen(process: subprocess.Popen[bytes]) -> None:
    """Programs on Node lose what does not fit into the pipe when they end; a long line then takes the last one with it.

    Only Linux can widen a pipe, and only so many of them for one user.
    """
    if process.stdout is not None:
        with suppress(OSError, AttributeError):
            fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE)


async def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            await _readable(fd)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _watch_exit(process: subprocess.Popen[bytes], done: asyncio.Future[int]) -> None:
    loop = asyncio.get_running_loop()

    def tell() -> None:
        code = process.wait()
        if not done.done():
            done.set_result(code)

    if hasattr(os, "pidfd_open"):
        pidfd = os.pidfd_open(process.pid)

        def ended() -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            tell()

        loop.add_reader(pidfd, ended)
    else:
        waiting = loop.run_in_executor(None, process.wait)
        waiting.add_done_callback(lambda _: tell())


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a short call printed. `exit_code` is None when it did not end in time."""

    exit_code: int | None
    stdout: str
    stderr: str


async def call(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout_sec: float, mark: str) -> Printed:
    """Run a short program to its end and keep what it prints; one that hangs is ended with its tree."""
    limits = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 22)
    texts: dict[str, list[str]] = {STDOUT: [], STDERR: []}

    async def keep(name: str, line: Line) -> None:
        texts[name].append(line.data.decode(errors="replace"))

    child = Child.start(argv, env={**env, tree.MARK: mark}, cwd=cwd, stdin=None, limits=limits)
    code: int | None = None
    try:
        async with asyncio.timeout(timeout_sec):
            code = await child.lines(keep)
    except TimeoutError:
        code = None
    finally:
        await child.end(mark, grace_sec=0)
        child.close()
    return Printed(exit_code=code, stdout="\n".join(texts[STDOUT]), stderr="\n".join(texts[STDERR]))
