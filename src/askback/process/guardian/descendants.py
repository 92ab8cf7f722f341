"""Finds the descendants of a process, and ends all of them.

Part of the guardian and its keepers: standard library only.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH208
from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

_ROUNDS = 10

Family = dict[int, tuple[int, int]]
"""Start ticks and process group, by pid."""


def descendants(root: int, *, exclude: Container[int] = ()) -> Family:
    """All descendants of a process, without those in `exclude` and their descendants."""
    children: dict[int, list[int]] = {}
    known: Family = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent, group, ticks = stat(int(name))
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
            known[int(name)] = (ticks, group)
    found: Family = {}
    todo = [root]
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in exclude and pid not in found]
        found |= {pid: known[pid] for pid in fresh}
        todo += fresh
    return found


def stat(pid: int) -> tuple[int, int, int]:
    """Parent, group and start ticks."""
    file = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    try:
        text = os.read(file, 1024)
    finally:
        os.close(file)
    # The command name is in parentheses and may contain anything; the fields follow the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[2]), int(fields[19])


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


def freeze_and_kill(find: Callable[[], Family]) -> Family:
    """Stop all processes before killing any, so that none can start another in between. Returns the killed ones.

    A process that forks as fast as we scan may escape a few rounds; the caller tries again.
    """
    stopped: Family = {}
    for _ in range(_ROUNDS):
        if not (fresh := {pid: each for pid, each in find().items() if pid not in stopped}):
            break
        signal_all(fresh, signal.SIGSTOP)
        stopped |= fresh
    signal_all(stopped, signal.SIGKILL)
    return stopped


def signal_all(family: Family, number: signal.Signals) -> None:
    """By group as well, which reaches processes that were just forked. These groups contain only descendants of the
    engine, because it started in a new session."""
    groups = {group for _, group in family.values()} - {os.getpgrp(), 0, 1}
    if number != signal.SIGTERM:
        for group in groups:
            _quietly(os.killpg, group, number)
    for pid, (ticks, _) in family.items():
        _quietly(_signal_one, pid, ticks, number)


def _signal_one(pid: int, ticks: int, number: signal.Signals) -> None:
    """Never another process that got the same pid since."""
    file = os.pidfd_open(pid)
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
