"""Instances on one PostgreSQL database that are alive as long as they renew a lease. Implements `Instances`.

On the machine of an instance that was killed, its file lock says so before its lease is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta

import psycopg

from askback.cluster.instances import DatabaseClock, LockedInstances, boottime
from askback.cluster.lease import TOO_LATE, Lease, LeaseTimes
from askback.core.errors import RefusalCode, Unavailable
from askback.core.instances import Instance, InstanceFacts
from askback.process.tree import boot_id
from askback.store.postgres import PostgresStore, errors, instances
from askback.store.postgres.instances import RECOVERY, Session, TooNew

log = logging.getLogger(__name__)

_LOCK_POLL_SEC = 0.1
_LOCK_WAIT_SEC = 60.0


class LeasedInstances:
    def __init__(
        self, store: PostgresStore, address: str, locks: LockedInstances, times: LeaseTimes | None = None
    ) -> None:
        """`locks` are those of this machine."""
        self._store = store
        self._address = address
        self._locks = locks
        self._times = times or LeaseTimes()
        self._clock = DatabaseClock()
        self._lease: Lease | None = None
        self._name: str | None = None
        self._seeks_lead = False
        self._calls: list[Callable[[float], None]] = []
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._leads = asyncio.Event()
        self._leads_not = asyncio.Event()
        self._leads_not.set()
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        assert self._name is not None, "not registered"
        return self._name

    @property
    def facts(self) -> InstanceFacts:
        return self._locks.facts

    # Registering.

    async def register(self, facts: InstanceFacts) -> str:
        """After a lease was lost: nothing that the instance has started under its old name may be alive."""
        await self._locks.leave()
        name = await self._locks.register(facts)
        lease = Lease(lambda: self._session(name), facts=facts, times=self._times, clock=self._clock)
        try:
            deadline = await asyncio.to_thread(lease.begin, instead_of=self._name)
        except psycopg.Error as error:
            raise errors.unavailable(error, self._address) from error
        except TooNew as error:
            await self._refuse(error)
            raise
        lease.seeks_lead = self._seeks_lead
        self._lease, self._name = lease, name
        self._lost = asyncio.get_running_loop().create_future()
        self.mark_renewed(deadline)
        lease.keep(self)
        return name

    async def _refuse(self, error: TooNew) -> None:
        """Give up the lease at once instead of letting it expire: this instance does not continue its runs."""
        name = self._name
        if name is not None:
            with suppress(Unavailable):
                await self._store.write(lambda connection: instances.remove(connection, [name]))
        self._store.refuse(error)

    def _session(self, name: str) -> Session:
        return Session(self._address, name, limit_sec=self._times.attempt)

    def update(self, facts: InstanceFacts) -> None:
        self._locks.update(facts)
        if self._lease is not None:
            self._lease.facts = facts

    def restore_registration(self) -> bool:
        return self._locks.restore_registration()

    async def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lease is not None:
            await asyncio.to_thread(self._lease.end)
        await self._locks.leave()

    # The others.

    async def alive(self, names: Collection[str]) -> frozenset[str]:
        if not names:
            return frozenset()
        found = await self._store.read(lambda connection: instances.alive(connection, names))
        killed = set(await asyncio.to_thread(self._locks.killed)) if found else set()
        here = boot_id()
        return frozenset(each.name for each in found if each.boot_id != here or each.name not in killed)

    async def living(self) -> Sequence[Instance]:
        return await self._store.read(instances.living)

    async def known(self) -> Sequence[Instance]:
        found = await self._store.read(instances.known)
        alive = await self.alive([each.name for each in found if each.alive])
        return [replace(each, alive=each.name in alive) for each in found]

    async def forget_dead(self) -> None:
        # First the rows: without its file, a killed instance would be alive until its lease is over.
        killed = await asyncio.to_thread(self._locks.killed)
        await self._store.write(lambda connection: instances.remove(connection, killed))
        await self._store.write(instances.forget_dead)
        await self._locks.forget_dead()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._locks.exclusive():
            session = await self._locked_session()
            try:
                yield
            finally:
                await asyncio.to_thread(session.close)

    async def _locked_session(self) -> Session:
        """A session with the lock of the recovery, which it holds until it is closed."""
        try:
            session = await asyncio.to_thread(self._session, self.name)
            try:
                async with asyncio.timeout(_LOCK_WAIT_SEC):
                    while True:
                        if await asyncio.to_thread(session.take, RECOVERY, limit_sec=self._times.attempt):
                            return session
                        await asyncio.sleep(_LOCK_POLL_SEC)
            except BaseException:
                await asyncio.to_thread(session.close)
                raise
        except TimeoutError:
            message = "another program on this database has been restarting runs for too long; end it and try again"
            raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from None
        except psycopg.Error as error:
            raise errors.unavailable(error, self._address) from error

    # The lease, as its thread reports it.

    def mark_renewed(self, deadline: float) -> None:
        if self._lost.done():
            return
        self._deadline = deadline
        self._watch()
        for call in self._calls:
            call(deadline)

    def _watch(self) -> None:
        """Set the timer that ends the lease in time: its thread may be waiting for the database then."""
        if self._timer is not None:
            self._timer.cancel()
        left = self._deadline - boottime()
        if left <= 0:
            self.mark_lost(TOO_LATE)
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self._watch)

    def mark_lead(self, leads: bool) -> None:
        if leads and self._lost.done():
            return
        log.info("this program leads from now on" if leads else "this program does not lead any more")
        now, then = (self._leads, self._leads_not) if leads else (self._leads_not, self._leads)
        then.clear()
        now.set()

    def mark_lost(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
        if self._lease is not None:
            self._lease.abandon()
        if self._leads.is_set():
            self.mark_lead(False)

    async def lost(self) -> str:
        return await asyncio.shield(self._lost)

    def on_renewed(self, call: Callable[[float], None]) -> None:
        self._calls.append(call)
        if self._lease is not None:
            call(self._deadline)

    def seek_lead(self) -> None:
        self._seeks_lead = True
        if self._lease is not None:
            self._lease.seek_lead()

    async def leads(self) -> None:
        await self._leads.wait()

    async def leads_no_more(self) -> None:
        await self._leads_not.wait()

    def clock_error(self) -> timedelta:
        return self._clock.error()
