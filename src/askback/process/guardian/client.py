"""The guardian as a spawner: it starts programs for us, and ends them when this process ends, for whatever reason.

Owns the socket to `program.py`, which documents the protocol, and a control socket for each child.
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
from askback.process.child import Child, NotStarted, ProcessHandle, SpawnRequest, starting
from askback.process.guardian.delegation import Delegation
from askback.process.guardian.descendants import FREEZE_SEC
from askback.process.guardian.messages import Lease, receive_packet
from askback.process.isolation import Breach, Enforcement, Isolation, IsolationLevel, Resource, by_watchdog
from askback.process.streams import Streams, writable

log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("program.py")
_START_SEC = 20.0
_KILL_SEC = 5.0
_LATE_SEC = 1.0
"""If a timer fires this late, our own event loop was blocked, and the other side may not be slow."""
_TRIES = 3
KILLED = -signal.SIGKILL
"""The exit code of a program whose keeper could not report it."""


def available() -> bool:
    """Whether this system has what a guardian needs: adoption of orphans, and a process table."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and Path("/proc/self/stat").exists()


class _Lost(Exception):
    """The keeper ended before it reported a start."""


class Guardian:
    """The guardian process starts with the first program, and again after it was killed."""

    def __init__(self, groups: Delegation | None = None) -> None:
        self._groups = groups or Delegation(why_not="control groups were not asked for")
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._sending = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._handles: dict[str, _GuardedProcess] = {}
        self._boot_id = tree.boot_id()
        self._lease = Lease()

    @property
    def pid(self) -> int | None:
        """The process id of the guardian, or None."""
        return None if self._process is None or self._socket is None else self._process.pid

    async def start(self, request: SpawnRequest, *, wrapped: bool = False) -> Child:
        """Start a program.

        `wrapped`: its first processes create a sandbox, and get no SIGTERM. An argument `\\0` with a number then
        stands for the file with that index in `pass_fds`.
        """
        for _ in range(_TRIES):
            try:
                with starting(request) as streams:
                    if self._lease.is_over:
                        raise _lease_over()
                    handle = await self._start(request, streams, wrapped=wrapped)
                return Child(handle, streams, request.limits)
            except _Lost:
                await tree.Tree(mark=request.env.get(tree.MARK, "")).end(grace_sec=0)
        raise NotStarted(f"{request.argv[0]} cannot be started: its keeper was killed each time")

    async def _start(self, request: SpawnRequest, streams: Streams, *, wrapped: bool) -> _GuardedProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handle = _GuardedProcess(str(next(self._numbers)), ours, self)
        self._handles[handle.name] = handle
        try:
            with theirs, _request_file(request, wrapped=wrapped) as file:
                fds = (file, theirs.fileno(), *streams.theirs, *request.pass_fds)
                limits = int(request.resources.as_figures()["disk"])
                handle.guardian_socket = await self._send(f"spawn {handle.name} {limits}", fds)
                theirs.close()
                pid, ticks = await self._started(handle.started)
        except BaseException:
            handle.close()
            raise
        handle.identity = ProcessIdentity(pid=pid, start_ticks=ticks, boot_id=self._boot_id)
        return handle

    async def _started(self, started: asyncio.Future[tuple[int, int]]) -> tuple[int, int]:
        while not await _done_in_time(started, _START_SEC):
            pass
        if started.done():
            return started.result()
        # The guardian seems to be stopped. When it is killed, its keepers end their trees.
        if self._process is not None:
            self._process.kill()
        raise _Lost

    async def kill_keeper(self, name: str, guardian_socket: socket.socket | None) -> bool:
        """For a keeper that does not answer. The guardian ends its tree and reports it. False: it has ended too."""
        if not self.is_connected(guardian_socket):
            return False
        with suppress(OSError):
            await self._send(f"kill {name}", ())
        return True

    def forget(self, name: str) -> None:
        self._handles.pop(name, None)

    def is_connected(self, guardian_socket: socket.socket | None) -> bool:
        """Whether the guardian at the other end of this socket is still there."""
        return guardian_socket is not None and guardian_socket is self._socket

    def extend_lease(self, deadline: float) -> None:
        self._lease.extend(deadline)
        if self._socket is not None:
            self._send_lease(self._socket)

    def _send_lease(self, connected: socket.socket) -> None:
        """A guardian that has ended has ended its engines, and the next one learns the lease when it starts. One that does
        not read has not noticed the end of the lease either, and reads the next extension."""
        if self._lease.deadline is not None:
            with suppress(BlockingIOError, ConnectionError):
                connected.send(f"lease {self._lease.deadline!r}".encode())

    async def isolation(self) -> Isolation:
        why = "the setting 'sandbox' is 'off'"
        return Isolation(level=IsolationLevel.GUARDIAN, why_not_more=why, advice="set it to 'auto'")

    async def enforcement(self) -> Enforcement:
        return by_watchdog(groups=self._groups.usable, why_not_more=self._groups.why_not)

    async def close(self) -> None:
        """End everything that is still alive, and wait for it."""
        handles = tuple(self._handles.values())
        for handle in handles:
            handle.close()
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_wait_or_kill, process)
        for handle in handles:
            handle.tree_ended()
        self._groups.release()

    async def _send(self, text: str, fds: Sequence[int]) -> socket.socket:
        async with self._sending:
            while True:
                connected = self._socket or self._start_guardian()
                try:
                    socket.send_fds(connected, [text.encode()], fds)
                except BlockingIOError:
                    await writable(connected.fileno())
                except ConnectionError:
                    # It has ended. What it reported before is read first.
                    self._on_packet(connected)
                else:
                    return connected

    def _start_guardian(self) -> socket.socket:
        if self._process is not None:
            _wait_or_kill(self._process)
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
        self._socket = ours
        self._send_lease(ours)
        asyncio.get_running_loop().add_reader(ours.fileno(), self._on_packet, ours)
        return ours

    def _on_packet(self, connected: socket.socket) -> None:
        while (packet := receive_packet(connected)) is not None:
            if not packet:
                log.warning("the guardian was killed; its keepers end their programs, and a new one starts on demand")
                self._disconnect()
                return
            self._on_report(*packet.decode().split())

    def _on_report(self, word: str, name: str) -> None:
        if (handle := self._handles.get(name)) is None:
            return
        if word == "expired":
            handle.refused(_lease_over())
        elif word == "refused":
            handle.refused(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        else:
            handle.tree_ended()

    def _disconnect(self) -> None:
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        for handle in self._handles.values():
            handle.guardian_lost()


def _lease_over() -> OSError:
    """A temporary failure: the program either renews its lease or gives up what it holds."""
    return OSError(errno.EAGAIN, "this program cannot reach its database, and may not run engines until it can")


async def _done_in_time(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for the future. False if the loop itself was late: then the elapsed time proves nothing."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    await asyncio.wait({future}, timeout=seconds)
    return future.done() or loop.time() - give_up_at < _LATE_SEC


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(2 * _KILL_SEC)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _request_file(request: SpawnRequest, *, wrapped: bool) -> Iterator[int]:
    """The request as a file without a name: an environment of any size fits."""
    argv = [os.fsencode(word) for word in request.argv]
    env = {os.fsencode(name): os.fsencode(value) for name, value in request.env.items()}
    folders = [os.fsencode(folder.absolute()) for folder in request.writable]
    resources = (request.resources.as_figures(), folders)
    file = os.memfd_create("askback-request")
    try:
        os.pwrite(file, marshal.dumps((argv, env, os.fsencode(request.cwd.absolute()), wrapped, *resources)), 0)
        yield file
    finally:
        os.close(file)


class _GuardedProcess(ProcessHandle):
    """One program with its keeper."""

    def __init__(self, name: str, control: socket.socket, guardian: Guardian) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self.name = name
        self._guardian = guardian
        self._control: socket.socket | None = control
        self.guardian_socket: socket.socket | None = None
        self.started: asyncio.Future[tuple[int, int]] = loop.create_future()
        self._gone = asyncio.Event()
        self._answers: dict[str, asyncio.Future[bool]] = {}
        """By the word that the keeper answers with."""
        control.setblocking(False)
        loop.add_reader(control.fileno(), self._on_packet, control)

    @property
    def gone(self) -> bool:
        return self._gone.is_set()

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None) -> bool:
        """Ask the keeper; if it does not answer, the guardian; if that fails too, search for the processes."""
        if self._control is not None and not self.gone:
            with suppress(OSError):
                self._control.send(f"end {grace_sec}".encode())
            await self._wait_gone(grace_sec + _KILL_SEC)
        if self.gone:
            return True
        if await self._guardian.kill_keeper(self.name, self.guardian_socket) and await self._wait_gone(_KILL_SEC):
            return True
        if not await tree.Tree(mark=mark, root=self.identity, lock=lock).end(grace_sec=0):
            return False
        self.tree_ended()
        return True

    async def freeze(self) -> bool:
        return await self._ask("freeze", "frozen")

    async def thaw(self) -> bool:
        return await self._ask("thaw", "thawed")

    async def _ask(self, request: str, word: str) -> bool:
        """False if the keeper does not say yes, or does not answer, now or the last time."""
        if self._control is None:
            return False
        late = word in self._answers
        answer = self._answers[word] = asyncio.get_running_loop().create_future()
        with suppress(OSError):
            self._control.send(request.encode())
        await asyncio.wait({answer}, timeout=0 if late else FREEZE_SEC + _KILL_SEC)
        return not late and answer.done() and answer.result()

    async def _wait_gone(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        return self.gone

    def tree_ended(self) -> None:
        """The whole tree has ended. Settle everything that the keeper did not report."""
        if not self.started.done():
            self.started.set_exception(_Lost())
        self._end_as_lost()
        self._gone.set()

    def refused(self, error: OSError) -> None:
        """The guardian did not start it."""
        if not self.started.done():
            self.started.set_exception(error)

    def close(self) -> None:
        """The keeper sees the socket close, and kills what is still alive."""
        self._guardian.forget(self.name)
        self._close_control()

    def _on_packet(self, control: socket.socket) -> None:
        while (packet := receive_packet(control)) is not None:
            if not packet:
                # If the keeper did not report the end of the tree, the guardian will, unless that has ended too.
                self._close_control()
                if not self._guardian.is_connected(self.guardian_socket):
                    self.guardian_lost()
                return
            for line in packet.decode(errors="replace").splitlines():
                self._on_line(*line.split(" ", 1))

    def _on_line(self, word: str, rest: str = "") -> None:
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
            case "lost" | "expired":
                self.keeper_lost = not self.exit.done()
                self.expired = self.keeper_lost and word == "expired"
            case "gone":
                self._gone.set()
            case "frozen" | "thawed":
                self._answer(word, yes=rest == "1")

    def _answer(self, word: str, *, yes: bool) -> None:
        if (answer := self._answers.pop(word, None)) is not None and not answer.done():
            answer.set_result(yes)

    def guardian_lost(self) -> None:
        """A keeper that is alive still reports. Without one there are no further reports."""
        if self._control is not None or self.gone:
            return
        if not self.started.done():
            self.started.set_exception(_Lost())
        self._end_as_lost()

    def _end_as_lost(self) -> None:
        if not self.exit.done():
            self.keeper_lost = True
            self.exit.set_result(KILLED)

    def _close_control(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
            for word in list(self._answers):
                self._answer(word, yes=False)
