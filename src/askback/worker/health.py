"""What a server or a worker says of its health: checked on request, with a short time limit."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from askback import __version__
from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.blobs.base import Files
from askback.cluster.fleet import Fleet
from askback.cluster.instances import Role
from askback.cluster.slots import Slots
from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import SHARED
from askback.process.child import NotStarted, Spawner
from askback.process.isolation import NO_SANDBOX, Enforcement, Isolation, Network
from askback.store.base import Store
from askback.wire import server as wire
from askback.worker.machine import FILES_WORK, MachineHealth

log = logging.getLogger(__name__)

_TICK_SEC = 0.5
_LAG_WINDOW_SEC = 10.0
_LAG_SEC = 5.0
"""If the event loop was this late within the window, callers have to wait."""
_ANSWER_SEC = 0.5
"""How long a part may take to be checked: the answer is due within a second."""
_DATABASE_SEC = 10.0
"""A database that takes longer for a trivial write is not usable."""
_FILES_SEC = 30.0
"""Each check of an object store costs three requests, so callers share one for this long. A failure is checked again at once."""
_UNKNOWN_ISOLATION = "Whether the sandbox works could not be tested yet. It is tried again."


class _Check:
    """A check that may take long: callers share it, wait for a moment, and then get what is known."""

    def __init__(
        self, check: Callable[[], Coroutine[Any, Any, str]], *, valid_sec: float = 0.0, longest_sec: float = math.inf
    ) -> None:
        """`check` returns `ok` or the code of the problem. A check that takes longer than `longest_sec` has failed."""
        self._check = check
        self._valid_sec = valid_sec
        self._longest_sec = longest_sec
        self._state = "ok"
        self._task: asyncio.Task[None] | None = None
        self._began = self._ended = -math.inf

    async def state(self) -> str:
        loop = asyncio.get_running_loop()
        is_valid = self._state == "ok" and loop.time() - self._ended < self._valid_sec
        if self._task is None and not is_valid:
            self._began = loop.time()
            self._task = loop.create_task(self._run())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_ANSWER_SEC)
        is_overdue = self._task is not None and loop.time() - self._began > self._longest_sec
        return RefusalCode.STORE_UNUSABLE if is_overdue else self._state

    async def _run(self) -> None:
        try:
            self._state = await self._check()
        finally:
            self._ended = asyncio.get_running_loop().time()
            self._task = None


class Health:
    """Reads and writes the database, measures the event loop, and checks the machine, the worker and the thread pools."""

    def __init__(
        self,
        *,
        role: Role,
        store: Store,
        files: Files | None,
        pools: Pools,
        machine: MachineHealth,
        slots: Slots,
        fleet: Fleet | None,
        spawner: Spawner,
        data_dir: Path,
        networks: Iterable[Network],
        shares_folders: bool,
        telegram: Callable[[], str | None],
        draining: Callable[[], bool],
        clock: Callable[[], datetime],
    ) -> None:
        self.worker: asyncio.Task[None] | None = None
        self._role = role
        self._store = store
        self._files = files
        self._pools = pools
        self._machine = machine
        self._slots = slots
        self._fleet = fleet
        self._spawner = spawner
        self._data_dir = data_dir
        self._network = min(networks, key=tuple(Network).index)
        self._shares_folders = shares_folders
        self._telegram = telegram
        self._draining = draining
        self._clock = clock
        self._database_check = _Check(self._check_database, longest_sec=_DATABASE_SEC)
        self._files_check = _Check(self._check_files, valid_sec=_FILES_SEC)
        self._oldest_queued_sec: float | None = None
        self._lags: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Measure the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_SEC
            await asyncio.sleep(_TICK_SEC)
            self._lags.append((loop.time(), loop.time() - due))
            self._drop_old_lags()

    @property
    def loop_lag_sec(self) -> float:
        """The longest delay of the event loop within the last seconds."""
        self._drop_old_lags()
        return max((late for _, late in self._lags), default=0.0)

    def _drop_old_lags(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._lags and now - self._lags[0][0] > _LAG_WINDOW_SEC:
            self._lags.popleft()

    @property
    def worker_alive(self) -> bool:
        return self.worker is None or not self.worker.done()

    async def report(self) -> wire.Health:
        """Never fails because a part cannot be checked."""
        database, files, machine, confinement = await asyncio.gather(
            self._database_check.state(), self._files_state(), self._machine_state(), self._confinement()
        )
        isolation, enforcement = confinement or (None, None)
        works = database == "ok" and files in (None, "ok") and self.worker_alive
        useful = works and (machine == "ok" or not self._role.executes)
        stuck = self._pools.stuck
        degraded = "degraded" if self.loop_lag_sec > _LAG_SEC or stuck else "ok"
        if self._fleet is None or self._role.executes:
            slots = wire.Slots(total=self._slots.total, taken=self._slots.taken)
        else:
            slots = wire.Slots(total=self._fleet.total_slots, taken=self._fleet.taken_slots)
        means = {} if enforcement is None else enforcement.means
        return wire.Health(
            status=degraded if useful else "failing",
            version=__version__,
            database=database,
            files=files,
            machine=machine,
            disk_free_bytes=self._free_bytes(),
            slots=slots,
            workers=None if self._fleet is None else len(self._fleet.working),
            oldest_queued_sec=self._oldest_queued_sec,
            loop_lag_sec=round(self.loop_lag_sec, 3),
            stuck=tuple(stuck),
            sandbox="unknown" if isolation is None else isolation.level,
            telegram=self._telegram(),
            limits=wire.Limits(**{name: tuple(each) for name, each in means.items()}),
            isolation=self._isolation(isolation),
        )

    async def readiness(self) -> wire.Readiness:
        """Whether it should get work now: requests for a server, turns for a worker.

        All servers share the file store. Without it they still serve most requests, so none of them is unready for that.
        """
        database, machine, files = await asyncio.gather(
            self._database_check.state(), self._machine_state(), self._files_state()
        )
        stored = files or "ok"
        if self._machine.problem is RefusalCode.FILES_UNAVAILABLE:
            # The turns may have noticed it first.
            stored = RefusalCode.FILES_UNAVAILABLE
        draining = self._draining()
        return wire.Readiness(
            ready=database == machine == "ok" and not draining and (stored == "ok" or self._role.serves),
            database=database,
            files=stored if machine == "ok" else machine,
            machine=machine,
            draining=draining,
        )

    # The parts.

    async def _check_database(self) -> str:
        try:
            waiting = await self._store.longest_queued({SHARED})
            await self._store.ping()
        except Unavailable as error:
            # This is public, and the message names files on this machine.
            return error.code
        oldest = None if waiting is None else (self._clock() - waiting.updated_at).total_seconds()
        self._oldest_queued_sec = None if oldest is None else max(0.0, oldest)
        return "ok"

    async def _files_state(self) -> str | None:
        """The state of the file store; None if the instance has none."""
        return None if self._files is None else await self._files_check.state()

    async def _check_files(self) -> str:
        assert self._files is not None
        try:
            await self._pools.storing.run(self._files.check)
        except Unavailable as error:
            return error.code
        OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
        return "ok"

    async def _machine_state(self) -> str:
        check = asyncio.create_task(self._machine.check())
        await asyncio.wait({check}, timeout=_ANSWER_SEC)
        # A folder that hangs is reported when the check has given it up.
        problem = check.result() if check.done() else self._machine.problem
        # Without the file store, this machine is well.
        return "ok" if problem in (None, RefusalCode.FILES_UNAVAILABLE) else problem

    async def _confinement(self) -> tuple[Isolation, Enforcement] | None:
        """None if it could not be tested in time. A test that has begun is not given up: its result is for the next caller."""

        async def test() -> tuple[Isolation, Enforcement] | None:
            try:
                return await self._spawner.isolation(), await self._spawner.enforcement()
            except NotStarted:
                # For example, no process is started without a lease.
                return None

        testing = asyncio.create_task(test())
        await asyncio.wait({testing}, timeout=_ANSWER_SEC)
        return testing.result() if testing.done() else None

    def _isolation(self, known: Isolation | None) -> wire.Isolation:
        hidden = known is not None and known.hides_files
        without = _UNKNOWN_ISOLATION if known is None else NO_SANDBOX
        return wire.Isolation(
            files="run" if hidden else "user",
            shares_folders=self._shares_folders if known is None else bool(known.shared),
            network=self._network,
            message="" if hidden else without,
        )

    def _free_bytes(self) -> int:
        try:
            return shutil.disk_usage(self._data_dir).free
        except OSError:
            return 0
