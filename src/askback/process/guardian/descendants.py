"""Finds the descendants of a process, and signals processes so that no other one is hit.

Part of the guardian and its keepers, and used by `process.tree`: standard library only.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH208
from __future__ import annotations

import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

_ROUNDS = 10

Family = dict[int, tuple[int, int]]
"""Start ticks and process group, by pid."""


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
