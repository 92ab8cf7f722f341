"""The guardian: a separate program that starts every engine, and ends all its processes.

It has one end of a socket pair, and Askback the other: when the socket closes, Askback has ended. For every engine it
forks a keeper. Guardian and keepers adopt the orphans of their descendants. So a keeper without children knows that
all processes of its engine have ended, without trusting the process table.

Stand-alone on purpose: it imports only the standard library and the modules of this package except `client` and
`delegation`, so that it starts fast and forks cheaply. Linux only. The protocol, with `client.py` on the other side:

    Askback → guardian   "spawn <name>"    with files: request, control, stdin, stdout, stderr, and those to keep
                         "kill <name>"     the keeper no longer answers
    guardian → Askback   "lost <name>"     the keeper was killed, and the rest of its tree has ended
                         "refused <name>"  there are too many open files to receive those of the request
    Askback → keeper     "end <seconds>"   on the control socket; closing it kills the tree at once
    keeper → Askback     lines: "started <pid> <start ticks>" or "failed <errno> <why>", then "exit <code>", then "gone";
                         "lost" before these if the guardian was killed, which makes the keeper end the tree;
                         "limit <which> <figure>" before "exit" if the tree exceeded a limit and was killed
"""

# Without pathlib, which would double the start-up time.
# ruff: noqa: PTH118
from __future__ import annotations

import array
import ctypes
import gc
import marshal
import os
import select
import signal
import socket
import sys
import time

# Started by its path and without site-packages, so the package is found from there.
sys.path.append(__file__.rpartition("/askback/")[0])

from askback.process.guardian.control_group import ControlGroup, remove_all
from askback.process.guardian.descendants import descendants, freeze_and_kill, is_inside, signal_all, stat
from askback.process.guardian.watchdog import Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

_SET_CHILD_SUBREAPER = 36
_SET_NAME = 15
_RETRY_SEC = 0.05
_PATIENCE_SEC = 5.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_NEVER = float("inf")


class Guardian:
    """Starts keepers until Askback ends, then waits until no process is left."""

    def __init__(self, askback: socket.socket, groups: tuple[str, str] | None) -> None:
        self._askback = askback
        self._groups = groups
        self._keepers: dict[int, str] = {}
        self._lost: list[str] = []
        # The keepers read one end. The kernel closes the other one when this process ends, for whatever reason.
        self._lifeline, self._held_end = os.pipe()
        self._child_watcher = ChildWatcher()

    def run(self) -> None:
        while self._listen():
            self._reap()
        self._askback.close()
        kill_at = time.monotonic() + _PATIENCE_SEC
        while not self._reap():
            if time.monotonic() > kill_at:
                for keeper in self._keepers:
                    os.kill(keeper, signal.SIGKILL)
            self._child_watcher.wait((), _RETRY_SEC)
        if self._groups is not None:
            remove_all(self._groups[0])

    def _listen(self) -> bool:
        """Wait for a packet and handle it. False once Askback has ended."""
        ready = self._child_watcher.wait((self._askback.fileno(),), _RETRY_SEC if self._lost else None)
        if not ready:
            return True
        try:
            packet, files, complete = receive(self._askback)
        except ConnectionError:
            return False
        if packet:
            word, name = packet.decode().split()
            if word == "spawn" and complete:
                self._spawn(name, files)
            elif word == "spawn":
                for file in files:
                    os.close(file)
                send(self._askback.fileno(), f"refused {name}")
            else:
                self._kill(name)
        return bool(packet)

    def _spawn(self, name: str, files: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            send(files[1], failed(error))
        else:
            if pid == 0:
                self._become_keeper(files)
            self._keepers[pid] = name
        for file in files:
            os.close(file)

    def _become_keeper(self, files: list[int]) -> NoReturn:
        code = 1
        try:
            os.close(self._held_end)
            self._askback.close()
            self._child_watcher.close()
            prctl(_SET_CHILD_SUBREAPER, 1)
            prctl(_SET_NAME, b"askback-keeper")
            request, control, *streams = files
            try:
                keeper = Keeper(control, self._lifeline, self._groups)
            except OSError as error:
                send(control, failed(error))
            else:
                keeper.run(request, streams)
            code = 0
        finally:
            os._exit(code)

    def _kill(self, name: str) -> None:
        for pid in [pid for pid, kept in self._keepers.items() if kept == name]:
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> bool:
        """Reap children, and end the orphans of killed keepers. True once there are no children."""
        childless = False
        while not childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                childless = True
                continue
            if pid == 0:
                break
            if (name := self._keepers.pop(pid, None)) is not None and status != 0:
                self._lost.append(name)
        if self._lost:
            self._end_orphans()
        return childless

    def _end_orphans(self) -> None:
        """A child that is not a keeper has lost its keeper."""
        if freeze_and_kill(lambda: descendants(os.getpid(), exclude=self._keepers)):
            return
        for name in self._lost:
            send(self._askback.fileno(), f"lost {name}")
        self._lost.clear()


class Keeper:
    """Starts one engine and ends it with all its descendants."""

    def __init__(self, control: int, guardian: int, groups: tuple[str, str] | None) -> None:
        self._control = control
        self._groups = groups
        self._watchdog: Watchdog
        self._watched = {control, guardian}
        self._child_watcher = ChildWatcher()
        self._engine = 0
        self._wrapped = False
        self._kill_at = _NEVER
        self._limit: str | None = None
        self._reports: list[str] = []

    def run(self, request: int, streams: list[int]) -> None:
        try:
            ticks = self._start(request, streams)
        except (OSError, ValueError) as error:
            self._report(failed(error))
            if self._engine:
                # Started, but we cannot watch it. Exit like a keeper that was killed, so that the guardian ends it.
                raise
            return
        self._report(f"started {self._engine} {ticks}")
        while not self._reap():
            self._wait()
        self._watchdog.end()
        # The turn's lock is among them: release it only now, and before the report.
        for file in streams:
            os.close(file)
        self._report("gone")

    def _start(self, request: int, streams: list[int]) -> int:
        # Both sides are the same Python, and bytes stay bytes.
        argv, env, cwd, self._wrapped, limits, folders = marshal.loads(os.pread(request, os.fstat(request).st_size, 0))
        os.close(request)
        # A program gets only the files that its arguments name. The others, such as the turn's lock, stay here: an
        # engine could release the lock, or pass it to another process, which would then count as part of its tree.
        given = [streams[3 + int(word[1:])] for word in argv if self._wrapped and word[:1] == b"\0"]
        named = iter(given)
        argv = [b"%d" % rewound(next(named)) if self._wrapped and word[:1] == b"\0" else word for word in argv]
        self._watchdog = Watchdog(limits, folders, self._group())
        os.chdir(cwd)
        self._watchdog.prepare()
        try:
            self._engine = spawn(argv, env, streams[:3], given)
        finally:
            self._watchdog.started(self._engine)
        os.chdir("/")
        for file in streams[:3]:
            os.close(file)
        del streams[:3]
        return stat(self._engine)[2]

    def _group(self) -> ControlGroup | None:
        """None if no group can be created; the watchdog alone enforces the limits then."""
        try:
            return None if self._groups is None else ControlGroup(*self._groups, f"engine-{os.getpid()}")
        except OSError:
            return None

    def _reap(self) -> bool:
        """Reap children, and report the engine's exit. True once the whole tree has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                break
            if pid == self._engine:
                code = os.waitstatus_to_exitcode(status)
                if self._limit is None and self._kill_at == _NEVER:
                    self._note_limit(self._watchdog.at_exit(code))
                self._reports.append(f"exit {code}")
        if self._limit is None and time.monotonic() >= self._watchdog.due:
            self._note_limit(self._watchdog.check())
        if self._reports:
            self._report()
        if time.monotonic() >= self._kill_at:
            self._watchdog.kill()
            freeze_and_kill(lambda: descendants(os.getpid()))
        return False

    def _note_limit(self, found: str | None) -> None:
        """Over a limit, the tree is killed at once: it would use even more before it reacts to SIGTERM."""
        if found is not None:
            self._limit = found
            self._reports.append(f"limit {found}")
            self._kill_at = 0

    def _wait(self) -> None:
        left = min(self._kill_at, _NEVER if self._limit else self._watchdog.due) - time.monotonic()
        ready = self._child_watcher.wait(self._watched, None if left == _NEVER else max(left, _RETRY_SEC))
        for file in ready:
            if words := read(file).split():
                self._end(float(words[1]))
                continue
            self._watched.discard(file)
            if file != self._control:
                self._reports.append("lost")
            self._end(0)

    def _end(self, grace_sec: float) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + grace_sec)
        if grace_sec <= 0:
            return
        family = descendants(os.getpid())
        if self._wrapped:
            # The sandbox itself ends at once on SIGTERM, and the engine inside would have no time to react.
            family = {pid: each for pid, each in family.items() if is_inside(pid)}
        for number in (signal.SIGTERM, signal.SIGCONT):
            signal_all(family, number)

    def _report(self, *lines: str) -> None:
        text = "\n".join((*self._reports, *lines))
        self._reports.clear()
        send(self._control, text)


class ChildWatcher:
    """Wakes a wait when a child changes its state (SIGCHLD)."""

    def __init__(self) -> None:
        self._rung, self._ring = os.pipe()
        os.set_blocking(self._ring, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)

    def wait(self, files: Iterable[int], seconds: float | None) -> list[int]:
        """Wait until a file is readable, a child changes its state, or the time is up. Returns the readable files."""
        poll = select.poll()
        for file in (self._rung, *files):
            poll.register(file, select.POLLIN)
        ready = [file for file, _ in poll.poll(None if seconds is None else seconds * 1000)]
        if self._rung in ready:
            ready.remove(self._rung)
            os.read(self._rung, 4096)
        return ready

    def close(self) -> None:
        os.close(self._rung)
        os.close(self._ring)


def spawn(argv: list[bytes], env: dict[bytes, bytes], streams: list[int], given: list[int]) -> int:
    """Start a program in a new session, with only these files and default signal handlers."""
    for file in given:
        os.set_inheritable(file, True)
    tried: OSError = FileNotFoundError(2, os.strerror(2))
    for path in _candidates(argv[0], env):
        try:
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, file, place) for place, file in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=_IGNORED,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            tried = error
    raise OSError(tried.errno, tried.strerror)


def rewound(file: int) -> int:
    """The sandbox reads the file from its start, even if it is started a second time."""
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _candidates(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    return [os.path.join(folder, program) for folder in folders]


def receive(askback: socket.socket) -> tuple[bytes, list[int], bool]:
    """A packet, the files that came with it, and whether all of them could be received.

    `socket.recv_fds` does not set close-on-exec, so every program that is started would get them.
    """
    packet, ancillary, flags, _ = askback.recvmsg(256, socket.CMSG_LEN(64 * 4), socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    return packet, list(files), not flags & socket.MSG_CTRUNC


def failed(error: OSError | ValueError) -> str:
    """A failure in one line; the number is 0 for an error without one."""
    number = getattr(error, "errno", None) or 0
    return f"failed {number} {getattr(error, 'strerror', None) or error}".replace("\n", " ")


def send(file: int, text: str) -> None:
    """Does nothing if the other side has ended."""
    try:
        os.write(file, text.encode(errors="replace"))
    except OSError:
        return


def read(file: int) -> bytes:
    """Empty if the other side has ended."""
    try:
        return os.read(file, 256)
    except ConnectionError:
        return b""


def prctl(option: int, value: int | bytes) -> None:
    if ctypes.pythonapi.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl {option} is refused")


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(_SET_CHILD_SUBREAPER, 1)
    prctl(_SET_NAME, b"askback-guard")
    askback = socket.socket(fileno=int(sys.argv[1]))
    askback.set_inheritable(False)
    groups = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 3 else None
    guardian = Guardian(askback, groups)
    gc.disable()
    gc.freeze()
    guardian.run()


if __name__ == "__main__":
    main()
