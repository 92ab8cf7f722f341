"""Warm processes: those of resumable runs that wait for an answer, alive for a while so that the answer needs no new one.

Prewarmed processes are in the same pool, each under the id of a run that does not exist yet. They are the first to go.
Nothing depends on a warm process: it may be dropped at any moment, and its run then resumes in a new process. A process
belongs to the pool, or to the worker that took it, or it is being ended; never to two of them. The pool knows ids and
sizes. The task that parked a process ends it: see `worker.warm`. Which processes may be parked is decided in one place,
`warm_obstacle` of the context of the turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from askback.core.errors import is_temporary
from askback.process.guardian import usage
from askback.worker.claimed_run import ClaimedRun, Parked

log = logging.getLogger(__name__)

_CHECK_SEC = 2.0
_CHECKS_PER_SAMPLE = 15
"""Measuring the memory of large processes takes a while, so it is done every half a minute."""


class DropReason(StrEnum):
    """Why a warm process was dropped."""

    EXPIRED = "expired"
    """Also a prewarmed process that is not what a new one would be: the program, the sign-in or the home has changed."""
    ROOM = "room"
    """Another process was parked, or a turn could not be started for lack of processes or memory."""
    MEMORY = "memory"
    RUN = "run"
    """Its run is over, or another program executes it; or its run was not accepted."""
    LOST = "lost"
    """It ended by itself or was killed, it printed too much while it had nothing to do, or its files kept changing."""
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmLimits:
    """0 processes: none stays. 0 bytes: no limit."""

    processes: int = 0
    memory_bytes: int = 0
    free_bytes: int = 0
    """If less memory than this is free, warm processes are dropped."""


class WarmPool:
    def __init__(self, limits: WarmLimits) -> None:
        self.limits = limits
        self.hits = 0
        self.misses = 0
        self.drops: Counter[DropReason] = Counter()
        self._parked: dict[str, Parked] = {}
        """Oldest first."""
        self._ending: dict[str, Parked] = {}
        self._some = asyncio.Event()

    @property
    def on(self) -> bool:
        return self.limits.processes > 0

    @property
    def count(self) -> int:
        """Of waiting runs."""
        return len(self._parked) - len(self.prewarmed)

    @property
    def prewarmed(self) -> list[Parked]:
        return [each for each in self._parked.values() if each.prewarmed is not None]

    @property
    def memory_bytes(self) -> int:
        """Of all warm processes, as last measured."""
        return sum(each.memory_bytes for each in self._parked.values())

    @property
    def run_ids(self) -> frozenset[str]:
        return frozenset(self._parked)

    # Parking and taking.

    def park(self, claim: ClaimedRun, pid: int) -> Parked | None:
        """Park the process of a claimed run that waits; the oldest one makes room. None if none may stay, or memory is short."""
        if not self.on or self._is_short():
            return None
        while len(self._parked) >= self.limits.processes:
            self.drop_oldest(DropReason.ROOM)
        parked = self._parked[claim.run.id] = Parked(claim.run.id, pid, claim=claim)
        self._some.set()
        return parked

    def park_prewarmed(self, run_id: str, pid: int, engine: str) -> Parked | None:
        """Park a process that has had no run yet. No other process makes room for it."""
        if not self.has_room():
            return None
        parked = self._parked[run_id] = Parked(run_id, pid, prewarmed=engine)
        self._some.set()
        return parked

    def has_room(self) -> bool:
        """Whether one more process can stay without ending another."""
        limit = self.limits.memory_bytes
        fits = len(self._parked) < self.limits.processes and not (limit and self.memory_bytes >= limit)
        return fits and not self._is_short()

    def take(self, run_id: str) -> Parked | None:
        """Take a process out of the pool. The caller must `resume` it or `give_up`."""
        return self._parked.pop(run_id, None)

    def give_up(self, parked: Parked, reason: DropReason) -> None:
        """Have a process ended that was taken, or that is still in the pool."""
        if self._parked.get(parked.run_id) is parked:
            del self._parked[parked.run_id]
        if parked.settled.is_set():
            return
        self.drops[reason] += 1
        if not parked.gone.is_set():
            self._ending[parked.run_id] = parked
        parked.settled.set()

    def ended(self, parked: Parked) -> None:
        """The process has ended, or continues with its run."""
        parked.gone.set()
        if self._parked.get(parked.run_id) is parked:
            del self._parked[parked.run_id]
        if self._ending.get(parked.run_id) is parked:
            del self._ending[parked.run_id]

    def find(self, run_id: str) -> Parked | None:
        return self._parked.get(run_id)

    def holds(self, parked: Parked) -> bool:
        """Whether it is in the pool, and not taken."""
        return self._parked.get(parked.run_id) is parked

    # Dropping.

    def drop_oldest(self, reason: DropReason) -> Parked | None:
        """Drop a prewarmed process that no run has yet, or else the oldest one."""
        unused = (each for each in self.prewarmed if not each.reserved)
        parked = next(unused, None) or next(iter(self._parked.values()), None)
        if parked is not None:
            self.give_up(parked, reason)
        return parked

    async def drop(self, run_id: str, reason: DropReason = DropReason.RUN) -> None:
        """Drop the process of this run, if there is one, and wait until it has ended."""
        if (parked := self._parked.get(run_id)) is not None:
            self.give_up(parked, reason)
        if (ending := self._ending.get(run_id)) is not None:
            await ending.gone.wait()

    def drop_all(self, reason: DropReason) -> None:
        while self.drop_oldest(reason) is not None:
            pass

    async def emptied(self) -> None:
        """Wait until all that were dropped have ended."""
        for parked in list(self._ending.values()):
            await parked.gone.wait()

    # Room and memory.

    async def make_room(self) -> None:
        """Before a new process starts: drop the oldest ones until enough memory is free."""
        while self._parked and self._is_short() and (dropped := self.drop_oldest(DropReason.ROOM)) is not None:
            await dropped.gone.wait()

    def _is_short(self) -> bool:
        free = available_memory() if self.limits.free_bytes else None
        return free is not None and free < self.limits.free_bytes

    async def watch(self) -> None:
        """Drop the oldest processes while memory is short, or while they use more than they may."""
        checks = 0
        while True:
            if not self._parked:
                self._some.clear()
                await self._some.wait()
            await asyncio.sleep(_CHECK_SEC)
            checks += 1
            if checks % _CHECKS_PER_SAMPLE == 0:
                for parked in list(self._parked.values()):
                    await self.measure(parked)
            await self.check()

    async def measure(self, parked: Parked) -> None:
        try:
            parked.memory_bytes = await asyncio.to_thread(memory_of, parked.pid)
        except RuntimeError as error:
            # Without a thread, it keeps its last figure.
            if not is_temporary(error):
                raise

    def trim(self) -> None:
        """Drop the oldest processes while all of them use more memory than they may."""
        limit = self.limits.memory_bytes
        while limit and self.memory_bytes > limit:
            self.drop_oldest(DropReason.MEMORY)

    async def check(self) -> None:
        self.trim()
        while self._is_short() and (dropped := self.drop_oldest(DropReason.MEMORY)) is not None:
            log.info("a warm process is ended: memory is short", extra={"run": dropped.run_id})
            # Only then is its memory free.
            await dropped.gone.wait()


def memory_of(root: int) -> int:
    """The memory of a process and its descendants, in bytes; a shared page counts once."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += usage.children(pid)
        with suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Pss:", "SwapPss:")))
    return total * 1024


def available_memory() -> int | None:
    """Memory that new processes can use, in bytes; in a container, at most what its limit leaves. None: unknown."""
    figures = [figure for figure in (_of_machine(), _of_container()) if figure is not None]
    return min(figures, default=None)


def _of_machine() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _of_container() -> int | None:
    """The limit of the cgroup at the top, as a container sees its own. Caches of files can be dropped at any time."""
    folder = Path("/sys/fs/cgroup")
    try:
        most, used = (int((folder / name).read_text()) for name in ("memory.max", "memory.current"))
        statistics = (folder / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):
        return None
    cached = next((int(line.split()[1]) for line in statistics if line.startswith("inactive_file ")), 0)
    return max(0, most - used + cached)
