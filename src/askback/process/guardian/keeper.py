"""A keeper: starts one engine after another, each only when every process of the one before has ended.

A keeper adopts the orphans of its descendants. So a keeper without children knows that all processes of its engine have
ended, without trusting the process table. `program.py` documents the protocol. Standard library only.
"""

# Without pathlib, which would double the start-up time.
# ruff: noqa: PTH118
from __future__ import annotations

import marshal
import os
import signal
import socket
import time

from askback.process.guardian.control_group import ControlGroup
from askback.process.guardian.descendants import Freezer, descendants, freeze_and_kill, is_inside, signal_all, stat
from askback.process.guardian.messages import ChildWatcher, failed, read, receive, rename, send
from askback.process.guardian.watchdog import Watchdog

RETRY_SEC = 0.05
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
MAX_ENGINES = 500
"""After so many engines a keeper is replaced by a new one."""
_NEVER = float("inf")
_END = b"end"


def keep(channel: socket.socket, lifeline: int, idle: int, groups: tuple[str, str] | None, files: list[int]) -> None:
    """Keep engines until the guardian ends or needs no more of them.

    `files` belong to the first engine; without them, wait for one. Those of the others arrive on `channel`. Our pid
    is written to `idle` when an engine has ended with its whole tree, except after the last one: nothing may be handed to
    a keeper that is about to exit.
    """
    watcher = ChildWatcher()
    for number in range(MAX_ENGINES):
        if not files and not (files := _next(channel, lifeline, watcher)):
            return
        rename(b"askback-keeper")
        request, control, *streams = files
        files = []
        if not Keeper(control, lifeline, channel.fileno(), groups, watcher, number).run(request, streams):
            return
        os.close(control)
        if number + 1 < MAX_ENGINES:
            rename(b"askback-idle")
            os.write(idle, os.getpid().to_bytes(4, "little"))


def _next(channel: socket.socket, lifeline: int, watcher: ChildWatcher) -> list[int]:
    """The files of the next engine; empty if there is none."""
    packet = _END
    # The engine may have ended by itself before we were asked to end it.
    while packet == _END:
        ready: list[int] = []
        while not ready:
            ready = watcher.wait((channel.fileno(), lifeline), None)
        if lifeline in ready:
            return []
        packet, files, complete = receive(channel)
    if not complete:
        # Too many open files. The guardian reports that this keeper ended, and the engine is started by another.
        os._exit(1)
    return files


class Keeper:
    """Starts one engine and ends it with all its descendants."""

    def __init__(
        self,
        control: int,
        lifeline: int,
        channel: int,
        groups: tuple[str, str] | None,
        watcher: ChildWatcher,
        number: int,
    ) -> None:
        self._control = control
        self._channel = channel
        self._groups = groups
        self._number = number
        self._watchdog: Watchdog
        self._freezer: Freezer
        self._watched = {control, lifeline, channel}
        self._child_watcher = watcher
        self._engine = 0
        self._wrapped = False
        self._kill_at = _NEVER
        self._limit: str | None = None
        self._lost = False
        self._reports: list[str] = []

    def run(self, request: int, streams: list[int]) -> bool:
        """True if the engine was started and has ended with its whole tree, and neither the guardian nor the lease did."""
        try:
            ticks = self._start(request, streams)
        except (OSError, ValueError) as error:
            self._report(failed(error))
            if self._engine:
                # Started, but we cannot watch it. Exit like a keeper that was killed, so that the guardian ends it.
                raise
            return False
        self._report(f"started {self._engine} {ticks}")
        while not self._reap():
            self._wait()
        self._watchdog.end()
        # The turn's lock is among them: release it only now, and before the report.
        for file in streams:
            os.close(file)
        self._report("gone")
        return not self._lost

    def _start(self, request: int, streams: list[int]) -> int:
        # Both sides are the same Python, and bytes stay bytes.
        argv, env, cwd, self._wrapped, limits, folders = marshal.loads(os.pread(request, os.fstat(request).st_size, 0))
        os.close(request)
        # A program gets only the files that its arguments name. The others, such as the turn's lock, stay here: an
        # engine could release the lock, or pass it to another process, which would then count as part of its tree.
        given = [streams[3 + int(word[1:])] for word in argv if self._wrapped and word[:1] == b"\0"]
        named = iter(given)
        argv = [b"%d" % rewound(next(named)) if self._wrapped and word[:1] == b"\0" else word for word in argv]
        group = self._group()
        self._watchdog, self._freezer = Watchdog(limits, folders, group), Freezer(group)
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
            return None if self._groups is None else ControlGroup(*self._groups, f"engine-{os.getpid()}-{self._number}")
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
                    self._record_limit(self._watchdog.at_exit(code))
                self._reports.append(f"exit {code}")
        if self._limit is None and time.monotonic() >= self._watchdog.due:
            self._record_limit(self._watchdog.check())
        if self._reports:
            self._report()
        if time.monotonic() >= self._kill_at:
            self._watchdog.kill()
            freeze_and_kill(lambda: descendants(os.getpid()))
        return False

    def _record_limit(self, found: str | None) -> None:
        """Over a limit, the tree is killed at once: it would use even more before it reacts to SIGTERM."""
        if found is not None:
            self._limit = found
            self._reports.append(f"limit {found}")
            self._kill_at = 0

    def _wait(self) -> None:
        left = min(self._kill_at, _NEVER if self._limit else self._watchdog.due) - time.monotonic()
        ready = self._child_watcher.wait(self._watched, None if left == _NEVER else max(left, RETRY_SEC))
        for file in ready:
            words = read(file).split()
            if not words:
                self._watched.discard(file)
            if file == self._channel:
                # Closed: the guardian wants no further engine of us.
                if words:
                    self._lose("expired")
            elif words:
                self._obey(*words)
            elif file == self._control:
                self._end(0)
            else:
                self._lose("lost")

    def _obey(self, word: bytes, grace_sec: bytes = b"0") -> None:
        if word == b"end":
            self._end(float(grace_sec))
        elif word == b"freeze":
            self._report(f"frozen {int(self._kill_at == _NEVER and self._freezer.freeze())}")
        else:
            self._report(f"thawed {int(self._freezer.thaw())}")

    def _lose(self, why: str) -> None:
        """End a tree that Askback did not ask us to end."""
        self._lost = True
        self._reports.append(why)
        self._end(0)

    def _end(self, grace_sec: float) -> None:
        self._kill_at = min(self._kill_at, time.monotonic() + grace_sec)
        self._freezer.thaw()
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


def spawn(argv: list[bytes], env: dict[bytes, bytes], streams: list[int], given: list[int]) -> int:
    """Start a program in a new session, with only these files and default signal handlers."""
    for file in given:
        os.set_inheritable(file, True)
    tried: OSError = FileNotFoundError(2, os.strerror(2))
    folders = env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    for path in [argv[0]] if b"/" in argv[0] else [os.path.join(folder, argv[0]) for folder in folders]:
        try:
            return os.posix_spawn(
                path,
                argv,
                env,
                file_actions=[(os.POSIX_SPAWN_DUP2, file, place) for place, file in enumerate(streams)],
                setsid=True,
                setsigmask=(),
                setsigdef=IGNORED,
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            tried = error
    raise OSError(tried.errno, tried.strerror)


def rewound(file: int) -> int:
    """Set the file to its start: the sandbox reads it, and may be started a second time."""
    os.lseek(file, 0, os.SEEK_SET)
    return file
