"""The processes below another one, and ending all of them.

Part of the guardian and its keepers: the standard library only.
"""

# Without pathlib, which would double the start of the guardian.
# ruff: noqa: PTH208
from __future__ import annotations

import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

_ROUNDS = 10

Family = dict[int, tuple[int, int]]
"""Processes by their pid: start ticks, and group."""


def descendants(root: int, *, apart: Container[int] = ()) -> Family:
    """Everything below a process, but not below those that are set apart."""
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
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in apart and pid not in found]
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
    # The command's name is in parentheses and may hold anything; the fields follow the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return int(fields[1]), int(fields[2]), int(fields[19])


def is_inside(pid: int) -> bool:
    """Whether a process has a process table other than ours, as everything in a sandbox has."""
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
    """Stop every one before killing any, so that none can start another in between. Returns whom it struck.

    Some rounds are enough for all but a race with who forks as fast as we look, which is tried again later.
    """
    struck: Family = {}
    for _ in range(_ROUNDS):
        if not (fresh := {pid: each for pid, each in find().items() if pid not in struck}):
            break
        signal_all(fresh, signal.SIGSTOP)
        struck |= fresh
    signal_all(struck, signal.SIGKILL)
    return struck


def signal_all(family: Family, number: signal.Signals) -> None:
    """By group as well, for that reaches also who was just forked. No group of theirs has others in it: each began
    below its engine, in a session of its own."""
    groups = {group for _, group in family.values()} - {os.getpgrp(), 0, 1}
    if number != signal.SIGTERM:
        for group in groups:
            _quietly(os.killpg, group, number)
    for pid, (ticks, _) in family.items():
        _quietly(_signal_one, pid, ticks, number)


def _signal_one(pid: int, ticks: int, number: signal.Signals) -> None:
    """The process that was seen, never another that has got its pid since."""
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
