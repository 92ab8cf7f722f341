"""The instances of Askback that work on the same database: which of them are alive, and which one leads.

An instance registers under a name, which is in the runs that it executes. When it is not alive any more, the others continue
these runs. With SQLite, an instance is alive while it holds a file lock, and every server leads. With PostgreSQL, it is alive
while its lease is not over by the clock of the database (`lease`).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from askback.core.errors import FULL_DISK, RefusalCode, Unavailable
from askback.core.instances import Instance, InstanceFacts, InstanceKind
from askback.core.runs import SHARED
from askback.process.locks import FileLock, InstanceLocks


class Role(StrEnum):
    """What an instance does: serve the API, execute runs, or both."""

    COMMAND = "command"
    """Executes its own runs, and ends with them."""
    SERVER = "server"
    """Serves the API, and executes runs that any server or worker may execute."""
    API_SERVER = "api_server"
    """Serves the API, and executes nothing."""
    WORKER = "worker"
    """Executes runs that any server or worker may execute, and serves no API."""

    @property
    def kind(self) -> InstanceKind:
        """What the others see of the role."""
        match self:
            case Role.COMMAND:
                return InstanceKind.COMMAND
            case Role.WORKER:
                return InstanceKind.WORKER
            case Role.SERVER | Role.API_SERVER:
                return InstanceKind.SERVER

    @property
    def serves(self) -> bool:
        return self in (Role.SERVER, Role.API_SERVER)

    @property
    def executes(self) -> bool:
        return self is not Role.API_SERVER

    @property
    def uses_shared_queue(self) -> bool:
        """Whether its runs are in the queue that all servers and workers share, and so may be executed by any of them."""
        return self is not Role.COMMAND


class OwnRuns(Collection[str]):
    """The owners whose runs an instance executes: those of any server, or itself under its current name."""

    def __init__(self, instances: Instances, *, serving: bool) -> None:
        self._instances = instances
        self._serving = serving

    @property
    def owner(self) -> str:
        return SHARED if self._serving else self._instances.name

    def __contains__(self, owner: object) -> bool:
        return owner == self.owner

    def __iter__(self) -> Iterator[str]:
        yield self.owner

    def __len__(self) -> int:
        return 1


async def disagreements(instances: Instances) -> Sequence[str]:
    """What this instance has set otherwise than those that run already, and must be the same."""
    others = [each.facts for each in await instances.living() if each.name != instances.name]
    return [problem for each in others for problem in differences(instances.facts, each)]


def differences(own: InstanceFacts, other: InstanceFacts) -> Iterator[str]:
    if own.lease_sec is None or other.lease_sec is None:
        # Of a version that does not say what it has set.
        return
    where = f"for the {other.kind} on {other.host} (pid {other.pid}); set the same on all machines"
    if own.lease_sec != other.lease_sec:
        yield f"fleet.lease_sec is {own.lease_sec:g} here, and {other.lease_sec:g} {where}"
    if own.kind is not InstanceKind.SERVER or other.kind is not InstanceKind.SERVER:
        return
    if own.public_url != other.public_url:
        yield f"server.public_url is {own.public_url or 'not set'} here, and {other.public_url or 'not set'} {where}"
    elif own.public_url is not None and None not in (own.port, other.port) and own.port != other.port:
        yield f"server.port is {own.port} here, and {other.port} {where}"


_LOCK_POLL_SEC = 0.05
_LOCK_WAIT_SEC = 60.0
"""How long to wait for another instance to finish its recovery; ending one run takes about ten seconds at most."""


class Instances:
    """The instances on one database, here an SQLite file. Belongs to the event loop in which it was opened.

    An instance is alive while it holds a file lock. Every server leads: what servers of one data folder do twice is harmless.
    """

    def __init__(self, folder: Path) -> None:
        self._locks = InstanceLocks(folder)
        self._instance: Instance | None = None
        self._lock: FileLock | None = None
        self._changing = threading.Lock()

    @property
    def name(self) -> str:
        """The name of this instance. It changes when the instance registers again."""
        return self._registered.name

    @property
    def facts(self) -> InstanceFacts:
        return self._registered.facts

    @property
    def _registered(self) -> Instance:
        assert self._instance is not None, "not registered"
        return self._instance

    async def register(self, facts: InstanceFacts) -> str:
        """Register this instance, under a new name. Raises `Unavailable`."""
        try:
            with self._changing:
                name, self._lock = self._locks.register()
                self._instance = Instance(name=name, facts=facts, started_at=datetime.now(UTC))
        except OSError as error:
            code = RefusalCode.DISK_FULL if error.errno in FULL_DISK else RefusalCode.STORE_UNUSABLE
            message = (
                f"this program cannot be registered in the data folder: {error}; check the folder and its permissions"
            )
            raise Unavailable(code, message) from error
        return name

    def update(self, facts: InstanceFacts) -> None:
        """What the others see of this instance from the next renewal on."""
        self._instance = replace(self._registered, facts=facts)

    def restore_registration(self) -> bool:
        """Whether the data folder still shows that this instance is alive. If not, it does so afterwards. Blocks."""
        with self._changing:
            again = None if self._lock is None else self._locks.renew(self._registered.name, self._lock)
            if again is not None:
                self._lock = again
            return again is None

    async def leave(self) -> None:
        """This instance counts as dead from now on. Nothing that it has started may be alive."""
        with self._changing:
            if self._lock is not None:
                self._locks.leave(self._registered.name, self._lock)
                self._lock = None

    async def alive(self, names: Collection[str]) -> frozenset[str]:
        """Which of these instances are alive."""
        return frozenset(name for name in names if self._locks.is_alive(name))

    async def living(self) -> Sequence[Instance]:
        """All instances that are alive. Embedded, only this one is known."""
        return (self._registered,)

    async def known(self) -> Sequence[Instance]:
        """As `living`, with instances that were alive until a short while ago and did not leave."""
        return await self.living()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Only one of all instances is in such a block at a time. Raises `Unavailable` if another does not leave it."""
        try:
            async with asyncio.timeout(_LOCK_WAIT_SEC):
                lock = self._locks.take_exclusive()
                while lock is None:
                    await asyncio.sleep(_LOCK_POLL_SEC)
                    lock = self._locks.take_exclusive()
        except TimeoutError:
            message = "another program on this data folder has been restarting runs for too long; end it and try again"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
        try:
            yield
        finally:
            lock.release()

    async def forget_dead(self) -> None:
        """Remove what dead instances have left of their registration. An instance without one counts as dead."""
        self._locks.forget_dead()

    # The lease. Embedded, there is none.

    async def lost(self) -> str:
        """Wait until this instance must count itself as dead; return why."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def on_renewed(self, call: Callable[[float], None]) -> None:
        """Have `call` called in the event loop after every renewal, with the time of CLOCK_BOOTTIME by which the next one
        must have happened. All turns of this instance are stopped then."""

    # The leader.

    def seek_lead(self) -> None:
        """Become the leader as soon as no other instance is."""

    async def leads(self) -> None:
        """Wait until this instance is the leader."""

    async def leads_no_more(self) -> None:
        """Wait until this instance is no longer the leader."""
        await asyncio.get_running_loop().create_future()

    # The clock.

    def clock_error(self) -> timedelta:
        """What must be added to the clock of this machine to get that of the database."""
        return timedelta()


def boottime() -> float:
    """Seconds since the machine was started, in which it may have slept. Nobody can set this clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_clock() -> datetime:
    return datetime.now(UTC)


class DatabaseClock:
    """Keeps its estimate as long as measurements confirm it: it does not jump with the delays of the network."""

    def __init__(self, elapsed: Callable[[], float] = boottime) -> None:
        self._elapsed = elapsed
        self._origin: datetime | None = None
        """The time of the database when `elapsed` was 0."""

    def measure(self, reported: datetime, began: float, ended: float) -> None:
        """The database has reported its time, as it was at some moment between two readings of `elapsed`."""
        latest = reported - timedelta(seconds=began)
        earliest = reported - timedelta(seconds=ended)
        if self._origin is None or not earliest <= self._origin <= latest:
            self._origin = earliest + (latest - earliest) / 2

    def error(self) -> timedelta:
        """What must be added to the clock of this machine."""
        if self._origin is None:
            return timedelta()
        return self._origin + timedelta(seconds=self._elapsed()) - wall_clock()
