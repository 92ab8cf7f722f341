"""What `/proc` says. Nothing here knows Askback; a process is known by a text that stands in its words."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process for good: a pid alone may be another's later."""

    pid: int
    start_ticks: int


def bearing(*texts: str) -> set[Process]:
    """The living processes that have one of these texts in their command line or environment."""
    wanted = [text.encode() for text in texts]
    found = set()
    for pid in _pids():
        words = _read(pid, "cmdline") + b"\0" + _read(pid, "environ")
        if any(text in words for text in wanted) and (process := seen(pid)) is not None and pid != os.getpid():
            found.add(process)
    return found


def children(parent: int) -> list[Process]:
    return [process for pid in _pids() if _parent(pid) == parent and (process := seen(pid)) is not None]


def descendants(ancestor: int) -> set[Process]:
    """Its children, their children, and so on; without itself."""
    by_parent: dict[int | None, list[int]] = {}
    for pid in _pids():
        by_parent.setdefault(_parent(pid), []).append(pid)
    found, next_ones = set(), [ancestor]
    while next_ones:
        below = by_parent.get(next_ones.pop(), [])
        next_ones += below
        found |= {process for pid in below if (process := seen(pid)) is not None}
    return found


def seen(pid: int) -> Process | None:
    """The process that lives under this pid. A zombie whose other threads live does live."""
    fields = _fields(pid)
    if not fields or (fields[0] in "ZX" and int(fields[17]) <= 1):
        return None
    return Process(pid, int(fields[19]))


def living(processes: Iterable[Process]) -> set[Process]:
    return {process for process in processes if seen(process.pid) == process}


def told(process: Process) -> str:
    words = _read(process.pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
    return f"{process.pid} {words[:60]}…{words[-120:]}"


def strike(process: Process, number: signal.Signals) -> None:
    if seen(process.pid) == process:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _parent(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[1]) if fields else None


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _fields(pid: int) -> list[str]:
    text = _read(pid, "stat").decode(errors="replace")
    # The command's name is in parentheses and may hold anything; the fields follow the last one.
    return text.rpartition(")")[2].split()
