"""Finds the processes of a turn, and ends all of them.

A process belongs to a turn if it descends from the turn's first process, shares its session, has the run's mark in its
environment, or inherited the turn's lock. So daemons are found too. Reads `/proc`; without it, only the process group can
be reached.

If a guardian's keeper holds the lock, it ends the tree itself and knows its members exactly. It gets some time to
finish. After that it counts as part of the tree.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from askback.core.runs import ProcessIdentity
from askback.process.guardian import descendants
from askback.process.guardian.descendants import Family

MARK = "ASKBACK_RUN"
"""The variable that marks every process of a run."""

GUARDIAN_PROGRAM = "guardian/program.py"
"""Part of the command line of a guardian and its keepers."""

_PROC = Path("/proc")
_POLL_SEC = 0.01
_KILL_SEC = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The processes of one turn."""

    mark: str
    root: ProcessIdentity | None = None
    lock: Path | None = None

    def members(self) -> set[int]:
        """Every living process of the turn. Zombies do not count."""
        return set(self._family())

    def _family(self) -> Family:
        table = {entry.pid: entry for entry in _table() if entry.is_alive}
        lock = _inode(self.lock)
        found = {pid for pid in table if _has_mark(pid, self.mark) or _holds(pid, lock)}
        found |= self._session(table)
        # This process may have the lock too, and it has children of other turns.
        found.discard(os.getpid())
        children: dict[int, list[int]] = {}
        for entry in table.values():
            children.setdefault(entry.parent, []).append(entry.pid)
        found |= descendants.below(found, children)
        return {pid: (table[pid].start_ticks, table[pid].group) for pid in found}

    async def end(self, *, grace_sec: float) -> bool:
        """Send SIGTERM, wait, then kill. True if the whole tree has ended."""
        if not _has_table():
            return self.root is None or await _end_group(self.root.pid, grace_sec)
        await self._wait_for_keeper()
        living = await asyncio.to_thread(self._family)
        if living and grace_sec > 0:
            descendants.signal_each(living, signal.SIGTERM)
            descendants.signal_each(living, signal.SIGCONT)
            living = await self._wait_gone(grace_sec)
        deadline = time.monotonic() + _KILL_SEC
        while living and time.monotonic() < deadline:
            # One by one: the group of a process that was found by its mark may contain processes of others.
            await asyncio.to_thread(descendants.freeze_and_kill, self._family, descendants.signal_each)
            living = await self._wait_gone(0.2)
        return not living

    async def end_idle(self, still_idle: Callable[[], Awaitable[bool]]) -> None:
        """Kill processes that have nothing to do, although their program is alive, as long as they are idle.

        A turn that begins in the meantime has other processes, so it is not hit. Keepers are not killed: they see that
        their tree has ended, and report that.
        """
        while living := await asyncio.to_thread(self._family_without_keepers):
            if not await still_idle():
                return
            descendants.signal_each(living, signal.SIGKILL)
            await asyncio.sleep(_POLL_SEC)

    def _family_without_keepers(self) -> Family:
        return {pid: each for pid, each in self._family().items() if not _is_keeper(pid)}

    async def _wait_for_keeper(self) -> None:
        lock = _inode(self.lock)
        deadline = time.monotonic() + _KILL_SEC
        while lock is not None and time.monotonic() < deadline:
            if not await asyncio.to_thread(_has_keeper, lock):
                return
            await asyncio.sleep(_POLL_SEC)

    def _session(self, table: Mapping[int, _Entry]) -> set[int]:
        root = self.root
        if root is None or root.boot_id != boot_id():
            return set()
        leader = table.get(root.pid)
        # The pid of a dead leader is not reused while its session exists, so the number alone is safe then.
        if leader is not None and leader.start_ticks != root.start_ticks:
            return set()
        return {entry.pid for entry in table.values() if root.pid in (entry.pid, entry.session, entry.group)}

    async def _wait_gone(self, seconds: float) -> Family:
        deadline = time.monotonic() + seconds
        pause = _POLL_SEC
        while living := await asyncio.to_thread(self._family):
            if time.monotonic() >= deadline:
                return living
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)
        return {}


def boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def identity(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now, or None."""
    entry = _entry(pid)
    return None if entry is None else ProcessIdentity(pid=pid, start_ticks=entry.start_ticks, boot_id=boot_id())


def is_stopped(pid: int) -> bool:
    """Whether a signal, such as SIGSTOP, has suspended the process."""
    entry = _entry(pid)
    return entry is not None and entry.state == "T"


async def _end_group(group: int, grace_sec: float) -> bool:
    """Without a process table, only the group can be reached."""
    for number, seconds in ((signal.SIGTERM, grace_sec), (signal.SIGKILL, _KILL_SEC)):
        deadline = time.monotonic() + seconds
        try:
            os.killpg(group, number)
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                await asyncio.sleep(_POLL_SEC)
        except ProcessLookupError:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Entry:
    pid: int
    parent: int
    group: int
    session: int
    start_ticks: int
    state: str
    threads: int

    @property
    def is_alive(self) -> bool:
        """A process whose first thread has ended looks like a zombie, but its other threads run."""
        return self.state not in "ZX" or self.threads > 1


def _has_table() -> bool:
    return (_PROC / "self" / "stat").exists()


def _table() -> list[_Entry]:
    pids = [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()] if _has_table() else []
    return [entry for pid in pids if (entry := _entry(pid)) is not None]


def _entry(pid: int) -> _Entry | None:
    try:
        fields = descendants.stat_fields(pid)
    except OSError:
        return None
    state, threads = fields[0].decode(), int(fields[17])
    return _Entry(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), state, threads)


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={mark}".encode() in environment.split(b"\0")


def _has_keeper(lock: tuple[int, int]) -> bool:
    return any(_is_keeper(entry.pid) and _holds(entry.pid, lock) for entry in _table())


def _is_keeper(pid: int) -> bool:
    """Guardian and keepers are one program. An impostor only gains the time that we wait for it."""
    try:
        return GUARDIAN_PROGRAM.encode() in (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def _inode(path: Path | None) -> tuple[int, int] | None:
    try:
        status = None if path is None else path.stat()
    except OSError:
        return None
    return None if status is None else (status.st_dev, status.st_ino)


def _holds(pid: int, inode: tuple[int, int] | None) -> bool:
    """Whether the process inherited the lock on that file; not if it only opened the file, or took the lock itself."""
    if inode is None:
        return False
    try:
        links = list((_PROC / str(pid) / "fd").iterdir())
        return any(_inode(link) == inode and _was_handed_lock(pid, link.name) for link in links)
    except OSError:
        return False


def _was_handed_lock(pid: int, descriptor: str) -> bool:
    """`fdinfo` names the process that took the lock. A process that inherited it has another pid."""
    try:
        lines = (_PROC / str(pid) / "fdinfo" / descriptor).read_text().splitlines()
    except OSError:
        return False
    # As `lock:  1: FLOCK  ADVISORY  WRITE 4711 00:1f:42 0 EOF`.
    locks = [line.split()[2:6] for line in lines if line.startswith("lock:")]
    return any(each[:1] == ["FLOCK"] and each[2:] != ["WRITE", str(pid)] and each[2:3] == ["WRITE"] for each in locks)
