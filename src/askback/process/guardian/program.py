"""The guardian: a program of its own that starts every engine, and leaves nothing of one alive.

It holds one end of a socket pair; the other end is our program's, so its closing tells that our program is gone.
For every engine it forks a keeper. Guardian and keepers adopt whatever their descendants leave behind, so a keeper
that has no children left knows that nothing of its engine's tree lives, and no process table has to be trusted for it.

Stand-alone on purpose: the standard library and its own parts `keeper_*.py`, so that it starts fast and forks cheaply.
Linux alone. `guardian.py` is who talks to it:

    program → guardian   "spawn <name>" with files: order, control, stdin, stdout, stderr, and those to keep
                         "kill <name>"  the keeper does not answer any more
    guardian → program   "lost <name>"  the keeper was killed, and what it left is gone
    program → keeper     "end <seconds>", on the control socket; its closing kills the tree at once
                         "refused <name>" there are no open files left for those that came with the order
    keeper → program     lines: "started <pid> <start ticks>" or "failed <errno> <why>", then "exit <code>", then "gone";
                         "lost" before these when the guardian was killed, for which the keeper ends the tree;
                         "limit <which> <figure>" before "exit" when the tree used more than it may, and was killed
"""

# Without pathlib, which would double the start.
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

# Started by its path, and without the folders where packages are: its own parts are found from there.
sys.path.append(__file__.rpartition("/askback/")[0])

from askback.process.guardian.control_group import Group, remove_all
from askback.process.guardian.descendants import descendants, freeze_and_kill, is_inside, signal_all, stat
from askback.process.guardian.watchdog import Watchdog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

_SET_CHILD_SUBREAPER = 36
_SET_NAME = 15
_AGAIN_SEC = 0.05
_PATIENCE_SEC = 5.0
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_NEVER = float("inf")


class Guardian:
    """Starts keepers for as long as our program lives, then sees to it that none and nothing is left."""

    def __init__(self, program: socket.socket, groups: tuple[str, str] | None) -> None:
        self._program = program
        self._groups = groups
        self._keepers: dict[int, str] = {}
        self._lost: list[str] = []
        # Closed by the kernel when this process is gone, however that comes: the keepers hold the other end.
        self._sign, self._life = os.pipe()
        self._bell = Bell()

    def run(self) -> None:
        while self._listen():
            self._take_in()
        self._program.close()
        patience = time.monotonic() + _PATIENCE_SEC
        while not self._take_in():
            if time.monotonic() > patience:
                for keeper in self._keepers:
                    os.kill(keeper, signal.SIGKILL)
            self._bell.wait((), _AGAIN_SEC)
        if self._groups is not None:
            remove_all(self._groups[0])

    def _listen(self) -> bool:
        """Wait for what comes next and do it. False once our program is gone."""
        ready = self._bell.wait((self._program.fileno(),), _AGAIN_SEC if self._lost else None)
        if not ready:
            return True
        try:
            packet, files, whole = receive(self._program)
        except ConnectionError:
            return False
        if packet:
            word, name = packet.decode().split()
            if word == "spawn" and whole:
                self._spawn(name, files)
            elif word == "spawn":
                for file in files:
                    os.close(file)
                tell(self._program.fileno(), f"refused {name}")
            else:
                self._kill(name)
        return bool(packet)

    def _spawn(self, name: str, files: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            tell(files[1], failed(error))
        else:
            if pid == 0:
                self._become_keeper(files)
            self._keepers[pid] = name
        for file in files:
            os.close(file)

    def _become_keeper(self, files: list[int]) -> NoReturn:
        code = 1
        try:
            os.close(self._life)
            self._program.close()
            self._bell.close()
            prctl(_SET_CHILD_SUBREAPER, 1)
            prctl(_SET_NAME, b"askback-keeper")
            order, control, *streams = files
            try:
                keeper = Keeper(control, self._sign, self._groups)
            except OSError as error:
                tell(control, failed(error))
            else:
                keeper.run(order, streams)
            code = 0
        finally:
            os._exit(code)

    def _kill(self, name: str) -> None:
        for pid in [pid for pid, kept in self._keepers.items() if kept == name]:
            os.kill(pid, signal.SIGKILL)

    def _take_in(self) -> bool:
        """Reap, and end what a killed keeper left to us. True once there are no children at all."""
        alone = False
        while not alone:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                alone = True
                continue
            if pid == 0:
                break
            if (name := self._keepers.pop(pid, None)) is not None and status != 0:
                self._lost.append(name)
        if self._lost:
            self._end_orphans()
        return alone

    def _end_orphans(self) -> None:
        """Whoever is our child and no keeper has lost its own."""
        if freeze_and_kill(lambda: descendants(os.getpid(), apart=self._keepers)):
            return
        for name in self._lost:
            tell(self._program.fileno(), f"lost {name}")
        self._lost.clear()


class Keeper:
    """One engine with everything that descends from it."""

    def __init__(self, control: int, guardian: int, groups: tuple[str, str] | None) -> None:
        self._control = control
        self._groups = groups
        self._watchdog: Watchdog
        self._watched = {control, guardian}
        self._bell = Bell()
        self._engine = 0
        self._wrapped = False
        self._kill_at = _NEVER
        self._limit: str | None = None
        self._news: list[str] = []

    def run(self, order: int, streams: list[int]) -> None:
        try:
            ticks = self._start(order, streams)
        except (OSError, ValueError) as error:
            self._tell(failed(error))
            if self._engine:
                # Started, but we cannot look after it: as a keeper that was killed, so that the guardian ends it.
                raise
            return
        self._tell(f"started {self._engine} {ticks}")
        while not self._take_in():
            self._wait()
        self._watchdog.end()
        # The turn's lock is among them: free it only now, and before anybody is told.
        for file in streams:
            os.close(file)
        self._tell("gone")

    def _start(self, order: int, streams: list[int]) -> int:
        # Both sides are the same Python, and bytes stay bytes.
        argv, env, cwd, self._wrapped, limits, folders = marshal.loads(os.pread(order, os.fstat(order).st_size, 0))
        os.close(order)
        # A program gets the files that its words name. The others, the turn's lock among them, are kept for it: a lock
        # that an engine had it could free, or hand to a stranger who would be taken for a part of it.
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

    def _group(self) -> Group | None:
        """Where the group cannot be made there is the watchdog alone."""
        try:
            return None if self._groups is None else Group(*self._groups, f"engine-{os.getpid()}")
        except OSError:
            return None

    def _take_in(self) -> bool:
        """Reap, and tell of the engine's exit. True once nothing of the tree is left."""
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
                self._news.append(f"exit {code}")
        if self._limit is None and time.monotonic() >= self._watchdog.due:
            self._note_limit(self._watchdog.look())
        if self._news:
            self._tell()
        if time.monotonic() >= self._kill_at:
            self._watchdog.kill()
            freeze_and_kill(lambda: descendants(os.getpid()))
        return False

    def _note_limit(self, found: str | None) -> None:
        """What uses more than it may is killed at once: asked to end, it would use more meanwhile."""
        if found is not None:
            self._limit = found
            self._news.append(f"limit {found}")
            self._kill_at = 0

    def _wait(self) -> None:
        left = min(self._kill_at, _NEVER if self._limit else self._watchdog.due) - time.monotonic()
        ready = self._bell.wait(self._watched, None if left == _NEVER else max(left, _AGAIN_SEC))
        for file in ready:
            if words := hear(file).split():
                self._end(float(words[1]))
                continue
            self._watched.discard(file)
            if file != self._control:
                self._news.append("lost")
            self._end(0)

    def _end(self, grace_sec: float) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + grace_sec)
        if grace_sec <= 0:
            return
        family = descendants(os.getpid())
        if self._wrapped:
            # What makes a sandbox ends at once when it is asked to; the engine inside would have no time.
            family = {pid: each for pid, each in family.items() if is_inside(pid)}
        for number in (signal.SIGTERM, signal.SIGCONT):
            signal_all(family, number)

    def _tell(self, *lines: str) -> None:
        text = "\n".join((*self._news, *lines))
        self._news.clear()
        tell(self._control, text)


class Bell:
    """Wakes a wait when a child has changed."""

    def __init__(self) -> None:
        self._rung, self._ring = os.pipe()
        os.set_blocking(self._ring, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._ring, warn_on_full_buffer=False)

    def wait(self, files: Iterable[int], seconds: float | None) -> list[int]:
        """Those of the files that have something to read, once there is any, or a child changed, or the time is up."""
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
    """Start a program in a session of its own, with these files and no others, and our signals forgotten."""
    for file in given:
        os.set_inheritable(file, True)
    tried: OSError = FileNotFoundError(2, os.strerror(2))
    for path in _places(argv[0], env):
        try:
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, file, place) for place, file in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=_DEAF_TO,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            tried = error
    raise OSError(tried.errno, tried.strerror)


def rewound(file: int) -> int:
    """A file that the sandbox reads from its beginning, also when it is started a second time."""
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _places(program: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in program:
        return [program]
    folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    return [os.path.join(folder, program) for folder in folders]


def receive(line: socket.socket) -> tuple[bytes, list[int], bool]:
    """A packet, the files that came with it, and whether there was room for all of them. `socket.recv_fds` would let every program that is started have them."""
    packet, ancillary, flags, _ = line.recvmsg(256, socket.CMSG_LEN(64 * 4), socket.MSG_CMSG_CLOEXEC)
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data)
    return packet, list(files), not flags & socket.MSG_CTRUNC


def failed(error: OSError | ValueError) -> str:
    """A failure in one line; 0 stands for an error that has no number."""
    number = getattr(error, "errno", None) or 0
    return f"failed {number} {getattr(error, 'strerror', None) or error}".replace("\n", " ")


def tell(file: int, text: str) -> None:
    """Say it if there is somebody to hear it."""
    try:
        os.write(file, text.encode(errors="replace"))
    except OSError:
        return


def hear(file: int) -> bytes:
    """What was said; nothing when there is nobody any more."""
    try:
        return os.read(file, 256)
    except ConnectionError:
        return b""


def prctl(option: int, value: int | bytes) -> None:
    if ctypes.pythonapi.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(f"prctl {option} is refused")


def main() -> None:
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    prctl(_SET_CHILD_SUBREAPER, 1)
    prctl(_SET_NAME, b"askback-guard")
    program = socket.socket(fileno=int(sys.argv[1]))
    program.set_inheritable(False)
    groups = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 3 else None
    guardian = Guardian(program, groups)
    gc.disable()
    gc.freeze()
    guardian.run()


if __name__ == "__main__":
    main()
