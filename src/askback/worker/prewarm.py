"""Warm starts: keeps a few processes of an engine ready, each in the folder of a run id that no run has yet.

An idle one takes no slot. A run that would start the same process gets the id when it is submitted; the worker that claims
the run then takes the process. What nobody takes is replaced after a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from askback.background.loops import first_of
from askback.core.errors import AskbackError
from askback.core.runs import Mode, Run
from askback.engines.base import Probe
from askback.process.child import NotStarted
from askback.process.warm import DropReason, Parked
from askback.worker.turn.context import TurnContext
from askback.worker.turn.prewarmed import CannotPrewarm, PrewarmedProcess, start_prewarmed
from askback.workspace.workspaces import FreshFolders

log = logging.getLogger(__name__)

MAX_AGE_SEC = 600.0
_CHECK_SEC = 15.0
_LOOK_SEC = 1.0
"""How often to see whether there is room again."""
_REST_SEC = 1.0
"""After one was taken, before the next is started: its start must not slow down the turn."""
_PAUSE_SEC = 30.0
"""After a start that failed, or a process that was lost or dropped for room, before the next one."""


class Prewarming:
    """`wanted`: how many processes of each engine are kept ready."""

    def __init__(
        self, context: TurnContext, folders: FreshFolders, *, wanted: Mapping[str, int], new_id: Callable[[], str]
    ) -> None:
        self._folders = folders
        self.hits = 0
        self.misses = 0
        self._context = context
        self._pool = context.warm
        self._wanted = {name: count for name, count in wanted.items() if count > 0}
        self._new_id = new_id
        self._ready: dict[str, PrewarmedProcess] = {}
        self._starting: Counter[str] = Counter()
        self._paused: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def count(self) -> int:
        """Processes that no run has yet."""
        return sum(not each.reserved for each in self._pool.prewarmed)

    def obstacle(self, name: str, probe: Probe) -> str | None:
        """Why no process of this engine can be prewarmed; None if it can."""
        return self._context.prewarm_obstacle(name, probe)

    # Submitting a run.

    def reserve(self, run: Run) -> str | None:
        """The id for a run that is about to be stored, if a process is ready that probably suits it."""
        if run.engine not in self._wanted or not self._context.may_take_prewarmed(run):
            return None
        for parked in self._pool.prewarmed:
            process = self._ready.get(parked.run_id)
            if parked.prewarmed == run.engine and not parked.reserved and process and not process.child.has_exited:
                parked.reserved = True
                return parked.run_id
        return None

    async def release(self, run_id: str, *, untouched: bool) -> None:
        """The run was not stored after all. `untouched`: its folder is as it was."""
        parked = self._pool.find(run_id)
        if parked is not None:
            parked.reserved = False
            if untouched:
                return
        await self._pool.drop(run_id)
        # If its process had ended before, nobody has removed the folder.
        await asyncio.to_thread(self._folders.remove, run_id)

    # Executing a run.

    def take(self, parked: Parked) -> PrewarmedProcess | None:
        """The process that a claimed run has taken out of the pool. From now on it belongs to the caller."""
        process = self._ready.pop(parked.run_id, None)
        if process is not None:
            self._pause(process.engine, _REST_SEC)
        return process

    def count_new_process(self, run: Run) -> None:
        """A turn of this run gets a new process."""
        if run.engine in self._wanted and run.mode is Mode.INTERACTIVE and run.starts_session:
            self.misses += 1

    def _count_use(self) -> None:
        self.hits += 1

    # Keeping processes ready.

    def stop(self) -> None:
        """Start no more processes, and keep none that is being started."""
        self._stopping = True

    def resume(self) -> None:
        """Keep processes ready again after `stop`."""
        self._stopping = False

    async def refill(self, group: asyncio.TaskGroup) -> None:
        """Start what is missing, one at a time, until this is canceled. The processes are kept by tasks of the group."""
        while self._wanted:
            self._wake.clear()
            if not self._stopping and not self._starting.total() and (name := self._missing()) is not None:
                self._starting[name] += 1
                group.create_task(self._keep(name))
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SEC):
                    await self._wake.wait()

    def _missing(self) -> str | None:
        now = asyncio.get_running_loop().time()
        have = Counter(parked.prewarmed for parked in self._pool.prewarmed)
        missing = (name for name, count in self._wanted.items() if have[name] < count)
        due = next((name for name in missing if self._paused.get(name, 0) <= now), None)
        return due if due is not None and self._pool.has_room() else None

    async def _keep(self, name: str) -> None:
        """Start a process, and keep it until it is taken or has to go. The only place that catches every exception."""
        try:
            process = await self._start(name)
            if process is not None:
                await self._hold(process)
        except Exception:
            log.exception("a prewarmed process of %s was given up", name)
            self._pause(name)
        finally:
            self._wake.set()

    async def _start(self, name: str) -> PrewarmedProcess | None:
        try:
            process = await start_prewarmed(self._context, self._folders, name, self._new_id(), on_use=self._count_use)
        except (CannotPrewarm, NotStarted, OSError, AskbackError) as error:
            if self._told.get(name) != str(error):
                log.warning("no process of %s can be prewarmed: %s", name, error)
            self._told[name] = str(error)
            self._pause(name)
            return None
        finally:
            self._starting[name] -= 1
        self._told.pop(name, None)
        return process

    async def _hold(self, process: PrewarmedProcess) -> None:
        pid = process.child.identity.pid
        parked = None if self._stopping else self._pool.park_prewarmed(process.run_id, pid, process.engine)
        try:
            if parked is not None:
                self._ready[process.run_id] = process
                self._wake.set()
                await self._pool.measure(parked)
                self._pool.trim()
                await self._settled(parked, process)
        finally:
            if parked is None or parked.claimed is None:
                self._ready.pop(process.run_id, None)
                await process.end(unused=parked is None or not parked.reserved)
            if parked is not None:
                self._pool.ended(parked)

    async def _settled(self, parked: Parked, process: PrewarmedProcess) -> None:
        """Wait until the process is taken or dropped; drop it when it is of no use any more."""
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_AGE_SEC
        while not parked.settled.is_set():
            left = max(0.0, min(_CHECK_SEC, until - loop.time()))
            await first_of(parked.settled.wait, process.child.exited, timeout=left)
            if parked.settled.is_set() or (reason := await self._why_to_drop(process, until)) is None:
                continue
            if self._pool.holds(parked):
                self._pool.give_up(parked, reason)
                if reason is DropReason.LOST:
                    self._pause(process.engine)
            # Taken, but not claimed yet: the worker decides.
            await parked.settled.wait()
        if parked.claimed is None and not self._pool.has_room():
            self._pause(process.engine)

    async def _why_to_drop(self, process: PrewarmedProcess, until: float) -> DropReason | None:
        if process.child.has_exited:
            return DropReason.LOST
        old = asyncio.get_running_loop().time() >= until
        with suppress(OSError):
            return DropReason.EXPIRED if old or not await asyncio.to_thread(process.is_current) else None
        return DropReason.EXPIRED

    def _pause(self, name: str, seconds: float | None = None) -> None:
        until = asyncio.get_running_loop().time() + (_PAUSE_SEC if seconds is None else seconds)
        self._paused[name] = max(until, self._paused.get(name, 0))
