"""Programs on one data folder that are alive as long as they hold a file lock. Implements `programs.Programs`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from askback.core.errors import FULL_DISK, RefusalCode, Unavailable
from askback.core.instances import Instance, InstanceFacts
from askback.process.locks import FileLock, Instances

_LOCK_POLL_SEC = 0.05
_LOCK_WAIT_SEC = 60.0
"""How long to wait for another program to finish its recovery; ending one run takes about ten seconds at most."""


class LockedPrograms:
    """Every server leads: what servers of one data folder do twice is harmless."""

    def __init__(self, folder: Path) -> None:
        self._instances = Instances(folder)
        self._program: Instance | None = None
        self._lock: FileLock | None = None
        self._changing = threading.Lock()

    @property
    def name(self) -> str:
        return self._registered.name

    @property
    def facts(self) -> InstanceFacts:
        return self._registered.facts

    @property
    def _registered(self) -> Instance:
        assert self._program is not None, "not registered"
        return self._program

    async def register(self, facts: InstanceFacts) -> str:
        try:
            with self._changing:
                name, self._lock = self._instances.register()
                self._program = Instance(name=name, facts=facts, started_at=datetime.now(UTC))
        except OSError as error:
            code = RefusalCode.DISK_FULL if error.errno in FULL_DISK else RefusalCode.STORE_UNUSABLE
            message = (
                f"this program cannot be registered in the data folder: {error}; check the folder and its permissions"
            )
            raise Unavailable(code, message) from error
        return name

    def update(self, facts: InstanceFacts) -> None:
        known = self._registered
        self._program = Instance(name=known.name, facts=facts, started_at=known.started_at)

    def restore_registration(self) -> bool:
        with self._changing:
            again = None if self._lock is None else self._instances.renew(self.name, self._lock)
            if again is not None:
                self._lock = again
            return again is None

    async def leave(self) -> None:
        with self._changing:
            if self._lock is not None:
                self._instances.leave(self.name, self._lock)
                self._lock = None

    async def alive(self, names: Collection[str]) -> frozenset[str]:
        return frozenset(name for name in names if self._instances.is_alive(name))

    def killed(self) -> Collection[str]:
        """The programs of this machine that were killed, and not forgotten yet."""
        return self._instances.killed()

    async def living(self) -> Sequence[Instance]:
        return (self._registered,)

    async def known(self) -> Sequence[Instance]:
        return await self.living()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        lock = await self._exclusive_lock()
        try:
            yield
        finally:
            lock.release()

    async def _exclusive_lock(self) -> FileLock:
        try:
            async with asyncio.timeout(_LOCK_WAIT_SEC):
                lock = self._instances.take_exclusive()
                while lock is None:
                    await asyncio.sleep(_LOCK_POLL_SEC)
                    lock = self._instances.take_exclusive()
                return lock
        except TimeoutError:
            message = "another program on this data folder has been restarting runs for too long; end it and try again"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None

    async def forget_dead(self) -> None:
        self._instances.forget_dead()

    async def lost(self) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    def on_renewed(self, call: Callable[[float], None]) -> None:
        """There is no lease."""

    def seek_lead(self) -> None:
        """Nothing to do."""

    async def leads(self) -> None:
        return

    async def leads_no_more(self) -> None:
        await asyncio.get_running_loop().create_future()

    def clock_error(self) -> timedelta:
        return timedelta()
