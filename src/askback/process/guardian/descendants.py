"""Finds the descendants of a process, signals processes so that no other one is hit, and suspends all of them.

Part of the guardian and its keepers, and used by `process.tree`: standard library only.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH208
from __future__ import annotations

import errno
import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from askback.process.guardian.control_group import ControlGroup

FREEZE_SEC = 2.0
_POLL_SEC = 0.002
_ROUNDS = 10
_STOPPED = (b"T", b"t")
_ENDED = (b"Z", b"X")

Family = dict[int, tuple[int, int]]
"""Start ticks and process group, by pid."""
Threads = tuple[tuple[str, bytes], ...]
"""How often each thread of a stopped process has been scheduled, as in its status."""
_IN_GROUP: Threads = (("", b""),)
"""A process in the frozen group: it may be scheduled, but not leave the kernel."""


def descendants(root: int, *, exclude: Container[int] = (), vanished: list[int] | None = None) -> Family:
    """All descendants of a process, without those in `exclude` and their descendants.

    `vanished` gets the processes, of any parent, that have ended while the table was read.
    """
    children: dict[int, list[int]] = {}
    known: Family = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent, group, ticks = stat(int(name))
            except OSError:
                if vanished is not None:
                    vanished.append(int(name))
                continue
            children.setdefault(parent, []).append(int(name))
            known[int(name)] = (ticks, group)
    return {pid: known[pid] for pid in below([root], children, exclude=exclude)}


def below(roots: Iterable[int], children: Mapping[int, Sequence[int]], *, exclude: Container[int] = ()) -> set[int]:
    """The descendants of some processes, without those in `exclude` and their descendants."""
    found: set[int] = set()
    todo = list(roots)
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in exclude and pid not in found]
        found.update(fresh)
        todo += fresh
    return found


def stat(pid: int) -> tuple[int, int, int]:
    """Parent, group and start ticks."""
    fields = stat_fields(pid)
    return int(fields[1]), int(fields[2]), int(fields[19])


def stat_fields(pid: int) -> list[bytes]:
    """The fields of `/proc/PID/stat` after the command name; the first one is the state."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        text = os.read(file, 1024)
    finally:
        os.close(file)
    # The command name is in parentheses and may contain anything; the fields follow the last one.
    return text[text.rindex(b")") + 2 :].split()


def is_inside(pid: int) -> bool:
    """Whether a process is in another PID namespace, like everything in a sandbox."""
    try:
        file = os.open(f"/proc/{pid}/status", os.O_RDONLY)
    except OSError:
        return False
    try:
        text = os.read(file, 4096)
    finally:
        os.close(file)
    _, _, rest = text.partition(b"NSpid:")
    return len(rest.partition(b"\n")[0].split()) > 1


def freeze_and_kill(find: Callable[[], Family], send: Callable[[Family, signal.Signals], None] | None = None) -> Family:
    """Stop all processes before killing any, so that none can start another in between. Returns the killed ones.

    A process that forks as fast as we scan may escape a few rounds; the caller tries again. `send` is `signal_all` unless
    the groups of these processes may contain others.
    """
    send = send or signal_all
    stopped: Family = {}
    for _ in range(_ROUNDS):
        if not (fresh := {pid: each for pid, each in find().items() if pid not in stopped}):
            break
        send(fresh, signal.SIGSTOP)
        stopped |= fresh
    send(stopped, signal.SIGKILL)
    return stopped


def signal_all(family: Family, number: signal.Signals) -> None:
    """By group as well, which reaches processes that were just forked. These groups contain only descendants of the
    engine, because it started in a new session."""
    groups = {group for _, group in family.values()} - {os.getpgrp(), 0, 1}
    if number != signal.SIGTERM:
        for group in groups:
            _quietly(os.killpg, group, number)
    signal_each(family, number)


def signal_each(family: Family, number: signal.Signals) -> None:
    """A process that we may not signal is still alive afterwards, and is found again."""
    for pid, (ticks, _) in family.items():
        _quietly(_signal_one, pid, ticks, number)


def _signal_one(pid: int, ticks: int, number: signal.Signals) -> None:
    """Never another process that got the same pid since."""
    try:
        file = os.pidfd_open(pid)
    except OSError as error:
        # An old kernel. Between the check and the signal, the pid could still be reused.
        if error.errno == errno.ENOSYS and stat(pid)[2] == ticks:
            os.kill(pid, number)
        return
    try:
        if stat(pid)[2] == ticks:
            signal.pidfd_send_signal(file, number)
    finally:
        os.close(file)


def _quietly(act: Callable[..., None], *words: int) -> None:
    try:
        act(*words)
    except OSError:
        return


class Freezer:
    """Suspends the descendants of this process, so that no file changes while the files are saved.

    By the control group, if the engine has one. A process that is not in it is stopped by a signal. Such a process could
    have arranged its own continuation, for example by a timer that sends SIGCONT: `thaw` finds out whether one has run.
    """

    def __init__(self, group: ControlGroup | None) -> None:
        self._group = group
        self._stopped: Family = {}
        """What was stopped by us: a process that was stopped before is not continued."""
        self._frozen: dict[int, Threads] | None = None
        self._grouped = False
        """Whether the processes in the group are frozen."""

    def freeze(self) -> bool:
        """Suspend all processes. False if that is not possible in time; then none is suspended.

        Two passes in a row must find the same suspended processes, and no others: one that forks while it is being stopped
        is then found. One that has ended counts as well, for it may have left a process that the pass did not see.
        """
        until = time.monotonic() + FREEZE_SEC
        self._grouped = self._group is not None and self._group.freeze(until)
        before: dict[int, Threads] = {}
        while time.monotonic() < until:
            vanished: list[int] = []
            seen, running = self._look(descendants(os.getpid(), vanished=vanished))
            if not running and not vanished and seen == before:
                self._frozen = _living(seen)
                return True
            before = {} if running or vanished else seen
            signal_each(running, signal.SIGSTOP)
            self._stopped |= running
            time.sleep(_POLL_SEC if running else 0)
        self.thaw()
        return False

    def thaw(self) -> bool:
        """Continue what `freeze` has suspended. True if no process has run since then."""
        frozen, self._frozen = self._frozen, None
        seen, running = self._look(descendants(os.getpid())) if frozen is not None else ({}, {})
        unchanged = not running and _living(seen) == frozen
        if self._group is not None:
            self._group.thaw()
        signal_each(self._stopped, signal.SIGCONT)
        self._stopped = {}
        return unchanged

    def _look(self, family: Family) -> tuple[dict[int, Threads], Family]:
        """The processes that cannot run, and those that can."""
        inside = self._group.pids() if self._grouped and self._group is not None else set()
        seen: dict[int, Threads] = {}
        running: Family = {}
        for pid, each in family.items():
            threads = _IN_GROUP if pid in inside else _threads(pid)
            if threads is None:
                running[pid] = each
            else:
                seen[pid] = threads
        return seen, running


def _living(seen: dict[int, Threads]) -> dict[int, Threads]:
    return {pid: threads for pid, threads in seen.items() if threads}


def _threads(pid: int) -> Threads | None:
    """The threads of a stopped process; none if it has ended and is not reaped. None if one of them can run, or could."""
    found: list[tuple[str, bytes]] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            state, switches = _status(f"/proc/{pid}/task/{thread}/status")
            if state in _STOPPED:
                found.append((thread, switches))
            elif state not in _ENDED:
                return None
    except (OSError, IndexError):
        return None
    return tuple(found)


def _status(path: str) -> tuple[bytes, bytes]:
    """The state of a thread, and how often it was scheduled."""
    file = os.open(path, os.O_RDONLY)
    try:
        text = os.read(file, 1 << 14)
    finally:
        os.close(file)
    return text.partition(b"\nState:")[2].split(None, 1)[0], text.partition(b"\nvoluntary_ctxt_switches:")[2]
