"""The guardian as a spawner: it starts programs for us, and ends them when we are gone, however that comes.

Owns the socket to `program.py`, which says what is spoken there, and one control socket for each child.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.child import Child, NotStarted, SpawnRequest, starting
from askback.process.guardian.delegation import Delegation
from askback.process.isolation import Isolation, IsolationLevel
from askback.process.limits import Breach, Enforcement, Resource, by_watchdog
from askback.process.streams import Streams, writable

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("program.py")
_START_SEC = 20.0
_KILL_SEC = 5.0
_LATE_SEC = 1.0
"""A timer that fires this late says that our own loop was held up, not that the other side is slow."""
_TRIES = 3
_PACKET = 1 << 16
KILLED = -signal.SIGKILL
"""The exit code of a program whose keeper could not tell it."""


def available() -> bool:
    """Whether this system has what a guardian needs: adoption of orphans, and a table of processes."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and Path("/proc/self/stat").exists()


class _Lost(Exception):
    """The keeper was gone before it could say that it had started anything."""


class Guardian:
    """Started with the first program, and again when it was killed."""

    def __init__(self, groups: Delegation | None = None) -> None:
        self._groups = groups or Delegation(why_not="control groups were not asked for")
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._held: dict[str, _Held] = {}
        self._boot_id = tree.boot_id()

    @property
    def pid(self) -> int | None:
        """The guardian's own process, while there is one."""
        return None if self._process is None or self._line is None else self._process.pid

    async def start(self, order: SpawnRequest, *, wrapped: bool = False) -> Child:
        """Start it. `wrapped`: its first processes make a sandbox, and are killed but never asked to end. A word
        `\\0` with a number then means the file at that place of `keep_fds`."""
        for _ in range(_TRIES):
            try:
                return await self._start(order, wrapped=wrapped)
            except _Lost:
                await tree.Tree(mark=order.env.get(tree.MARK, "")).end(grace_sec=0)
        raise NotStarted(f"{order.argv[0]} cannot be started: the process that was to keep it was killed each time")

    async def _start(self, order: SpawnRequest, *, wrapped: bool) -> Child:
        with starting(order) as streams:
            held = await self._start_with(order, streams, wrapped=wrapped)
        return Child(held, streams, order.limits)

    async def _start_with(self, order: SpawnRequest, streams: Streams, *, wrapped: bool) -> _Held:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        held = _Held(str(next(self._numbers)), ours, self)
        self._held[held.name] = held
        try:
            with theirs, _written(order, wrapped=wrapped) as request:
                fds = (request, theirs.fileno(), *streams.theirs, *order.keep_fds)
                held.line = await self._send(f"spawn {held.name}", fds)
                theirs.close()
                pid, ticks = await self._answer(held.started)
        except BaseException:
            held.close()
            raise
        held.identity = ProcessIdentity(pid=pid, start_ticks=ticks, boot_id=self._boot_id)
        return held

    async def _answer(self, started: asyncio.Future[tuple[int, int]]) -> tuple[int, int]:
        while not await _done_in_time(started, _START_SEC):
            pass
        if started.done():
            return started.result()
        # Stopped, it seems. Its keepers end what they have.
        if self._process is not None:
            self._process.kill()
        raise _Lost

    async def kill_keeper(self, name: str, line: socket.socket | None) -> bool:
        """For a keeper that does not answer: the guardian ends what is left, and says so. False: it is gone too."""
        if line is None or line is not self._line:
            return False
        with suppress(OSError):
            await self._send(f"kill {name}", ())
        return True

    def forget(self, name: str) -> None:
        self._held.pop(name, None)

    def guards(self, line: socket.socket | None) -> bool:
        """Whether the guardian that was spoken to over this line is still there."""
        return line is not None and line is self._line

    async def confinement(self) -> Isolation:
        why = "the setting 'sandbox' is 'off'"
        return Isolation(in_force=IsolationLevel.GUARDIAN, why_not_more=why, advice="set it to 'auto'")

    async def enforcement(self) -> Enforcement:
        return by_watchdog(groups=self._groups.usable, why_not_more=self._groups.why_not)

    async def close(self) -> None:
        """Let go; everything that still lives is ended. Returns when it is."""
        held = tuple(self._held.values())
        for each in held:
            each.close()
        self._let_go()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_outwait, process)
        for each in held:
            each.settled()
        self._groups.release()

    async def _send(self, text: str, fds: Sequence[int]) -> socket.socket:
        async with self._sending:
            while True:
                line = self._line or self._begin()
                try:
                    socket.send_fds(line, [text.encode()], fds)
                except BlockingIOError:
                    await writable(line.fileno())
                except ConnectionError:
                    self._let_go()
                else:
                    return line

    def _begin(self) -> socket.socket:
        if self._process is not None:
            _outwait(self._process)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_PROGRAM), str(theirs.fileno()), *self._groups.paths],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        self._line = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear, ours)
        return ours

    def _hear(self, line: socket.socket) -> None:
        packet = _receive(line)
        if packet is None:
            return
        if not packet:
            log.warning("the guardian was killed; what it kept is ended, and the next program gets a new one")
            self._let_go()
            return
        word, name = packet.decode().split()
        if (held := self._held.get(name)) is None:
            return
        if word == "refused":
            held.refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        else:
            held.settled()

    def _let_go(self) -> None:
        if self._line is None:
            return
        asyncio.get_running_loop().remove_reader(self._line.fileno())
        self._line.close()
        self._line = None
        for held in self._held.values():
            held.unguarded()


async def _done_in_time(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for it. False where the loop itself was late: then nothing can be concluded from the time that has passed."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    await asyncio.wait({future}, timeout=seconds)
    return future.done() or loop.time() - give_up_at < _LATE_SEC


def _outwait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(2 * _KILL_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _written(order: SpawnRequest, *, wrapped: bool) -> Iterator[int]:
    """The order as a file without a name: an environment of any size fits."""
    argv = [os.fsencode(word) for word in order.argv]
    env = {os.fsencode(name): os.fsencode(value) for name, value in order.env.items()}
    folders = [os.fsencode(folder.absolute()) for folder in order.writable]
    resources = (order.resources.as_figures(), folders)
    file = os.memfd_create("askback-order")
    try:
        os.pwrite(file, marshal.dumps((argv, env, os.fsencode(order.cwd.absolute()), wrapped, *resources)), 0)
        yield file
    finally:
        os.close(file)


def _receive(line: socket.socket) -> bytes | None:
    """A packet; empty when the other side is gone, None when there is none yet."""
    try:
        return line.recv(_PACKET)
    except BlockingIOError:
        return None
    except ConnectionError:
        return b""


class _Held:
    """One program with its keeper."""

    identity: ProcessIdentity

    def __init__(self, name: str, control: socket.socket, guardian: Guardian) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self._guardian = guardian
        self._control: socket.socket | None = control
        self.line: socket.socket | None = None
        self.started: asyncio.Future[tuple[int, int]] = loop.create_future()
        self.exit: asyncio.Future[int] = loop.create_future()
        self._gone = asyncio.Event()
        self.lost = False
        self.breach: Breach | None = None
        control.setblocking(False)
        loop.add_reader(control.fileno(), self._hear, control)

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None) -> bool:
        """By its keeper; where that does not answer, by the guardian; where that fails too, by what can be found."""
        if self._control is not None and not self.gone:
            with suppress(OSError):
                self._control.send(f"end {grace_sec}".encode())
            await self._is_gone(grace_sec + _KILL_SEC)
        if self.gone or (await self._guardian.kill_keeper(self.name, self.line) and await self._is_gone(_KILL_SEC)):
            return True
        if not await tree.Tree(mark=mark, root=self.identity, lock=lock).end(grace_sec=0):
            return False
        self.settled()
        return True

    async def _is_gone(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        return self.gone

    def settled(self) -> None:
        """Nothing of it lives; whatever was not told yet is known now."""
        if not self.started.done():
            self.started.set_exception(_Lost())
        self._end_as_lost()
        self._gone.set()

    def refused(self, error: OSError) -> None:
        """It was not started."""
        if not self.started.done():
            self.started.set_exception(error)

    def close(self) -> None:
        """Whatever still lives of it is killed at once."""
        self._guardian.forget(self.name)
        self._hang_up()

    def _hear(self, control: socket.socket) -> None:
        while (packet := _receive(control)) is not None:
            if not packet:
                self._broken_off()
                return
            for line in packet.decode(errors="replace").splitlines():
                self._take(*line.split(" ", 1))

    def _take(self, word: str, rest: str = "") -> None:
        match word:
            case "started":
                pid, ticks = rest.split()
                if not self.started.done():
                    self.started.set_result((int(pid), int(ticks)))
            case "failed":
                number, _, why = rest.partition(" ")
                self.refused(OSError(int(number), why) if int(number) else OSError(why))
            case "limit":
                resource, figure = rest.split()
                self.breach = Breach(resource=Resource(resource), figure=int(figure))
            case "exit":
                if not self.exit.done():
                    self.exit.set_result(int(rest))
            case "lost":
                self.lost = not self.exit.done()
            case "gone":
                self._gone.set()

    def _broken_off(self) -> None:
        """The keeper is gone. If it could not say that the tree is, the guardian will, if there is one."""
        self._hang_up()
        if not self._guardian.guards(self.line):
            self.unguarded()

    def unguarded(self) -> None:
        """There is no guardian any more. A keeper that lives says the rest; without one, nobody does."""
        if self._control is not None or self.gone:
            return
        if not self.started.done():
            self.started.set_exception(_Lost())
        self._end_as_lost()

    def _end_as_lost(self) -> None:
        if not self.exit.done():
            self.lost = True
            self.exit.set_result(KILLED)

    def _hang_up(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
