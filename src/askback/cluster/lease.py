"""Instances on one PostgreSQL database that are alive as long as they renew a lease, and the thread that renews it.

The thread has a separate connection, so that neither busy writers nor a busy event loop delay a renewal. If renewals
fail for too long, the instance must count itself as dead some time before the others do, to end its engines in time.
The same session holds the lock of the leader: who cannot renew the lease does not lead either.

On the machine of an instance that was killed, its file lock says so before its lease is over.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import psycopg

from askback.background.loops import start_thread
from askback.background.outages import OUTAGES
from askback.cluster.instances import DatabaseClock, Instances, boottime
from askback.core.errors import RefusalCode, Unavailable
from askback.core.instances import Instance, InstanceFacts
from askback.process.tree import boot_id
from askback.store.postgres import PostgresStore, errors, instances
from askback.store.postgres.instances import LEADER, RECOVERY, Session, TooNew

log = logging.getLogger(__name__)

TOO_LATE = "it could not be renewed in time"
TAKEN = "it was over when it was to be renewed"
TOO_NEW = "the tables were upgraded to a format that this version cannot use"
_LOCK_POLL_SEC = 0.1
_LOCK_WAIT_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """All in seconds."""

    lease: float = 20.0

    @property
    def beat(self) -> float:
        """From one renewal to the next."""
        return min(3.0, self.lease * 0.15)

    @property
    def attempt(self) -> float:
        """How long a renewal may take."""
        return min(4.0, self.lease * 0.2)

    @property
    def hold(self) -> float:
        """How long an instance counts itself as alive. It has the rest of the lease to end its engines."""
        return self.lease - min(8.0, self.lease * 0.4)


class Lease:
    def __init__(
        self, connect: Callable[[], Session], *, facts: InstanceFacts, times: LeaseTimes, clock: DatabaseClock
    ) -> None:
        """`connect` raises `psycopg.Error`."""
        self.facts = facts
        """Written with every renewal."""
        self.seeks_lead = False
        self._connect = connect
        self._times = times
        self._clock = clock
        self._session: Session | None = None
        self._leads = False
        self._failed = False
        self._deadline = 0.0
        self._stopping = False
        self._abandoned = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, *, instead_of: str | None) -> float:
        """Register, and return the deadline of the first renewal. Raises `psycopg.Error` or `TooNew`. Call it in a thread."""
        self._session = self._connect()
        try:
            began = boottime()
            database_time = self._session.register(
                self.facts, instead_of=instead_of, lease_sec=self._times.lease, limit_sec=self._times.attempt
            )
        except BaseException:
            self._session.close()
            raise
        self._clock.measure(database_time, began, boottime())
        self._deadline = began + self._times.hold
        return self._deadline

    def keep(self, holder: LeasedInstances) -> None:
        """Renew it from now on. Call it in the event loop, in which the holder is notified."""
        loop = asyncio.get_running_loop()

        def notify(call: Callable[..., None], *args: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(call, *args)

        self._thread = start_thread(self._run, holder, notify, name="askback-lease")

    def seek_lead(self) -> None:
        self.seeks_lead = True
        self._wake.set()

    def abandon(self) -> None:
        """It counts as lost: renew it no more."""
        self._abandoned = self._stopping = True
        self._wake.set()

    def end(self) -> None:
        """Give the lease up, if it is not lost. Waits for the thread: call it in another one."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    # In the thread.

    def _run(self, holder: LeasedInstances, notify: Callable[..., None]) -> None:
        reason = None
        while reason is None and not self._stopping:
            self._lead(holder, notify)
            self._wake.wait(max(0.0, min(self._times.beat, self._deadline - boottime())))
            self._wake.clear()
            reason = None if self._stopping else self._renew(holder, notify)
        if self._leads:
            self._leads = False
            notify(holder.mark_lead, False)
        if reason is not None:
            notify(holder.mark_lost, reason)
        self._close(leave=reason is None and not self._abandoned)

    def _renew(self, holder: LeasedInstances, notify: Callable[..., None]) -> str | None:
        """Why the lease is lost; None if it is not, or not yet."""
        began = boottime()
        if began >= self._deadline:
            return TOO_LATE
        try:
            session = self._session or self._connect()
            self._session = session
            limit_sec = min(self._times.attempt, self._deadline - boottime())
            database_time = session.renew(self.facts, lease_sec=self._times.lease, limit_sec=limit_sec)
        except TooNew:
            return TOO_NEW
        except Exception as error:  # no error may end this thread: the instance would lose its lease
            self._record_failure(error, holder, notify)
            return None
        if database_time is None:
            return TAKEN
        self._clock.measure(database_time, began, boottime())
        self._deadline = began + self._times.hold
        self._failed = False
        notify(holder.mark_renewed, self._deadline)
        return None

    def _lead(self, holder: LeasedInstances, notify: Callable[..., None]) -> None:
        if not self.seeks_lead or self._leads or self._session is None:
            return
        try:
            self._leads = self._session.take(LEADER, alone=True, limit_sec=self._times.attempt)
        except Exception as error:  # as above
            self._record_failure(error, holder, notify)
            return
        if self._leads:
            notify(holder.mark_lead, True)

    def _record_failure(self, error: Exception, holder: LeasedInstances, notify: Callable[..., None]) -> None:
        """A session that has failed is closed, so its locks may be taken by others."""
        if not self._failed:
            OUTAGES.begun(
                log, RefusalCode.STORE_UNUSABLE, "the lease of this program cannot be renewed; trying again", str(error)
            )
        self._failed = True
        if self._leads:
            self._leads = False
            notify(holder.mark_lead, False)
        self._close(leave=False)

    def _close(self, *, leave: bool) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if leave:
            with suppress(psycopg.Error):
                session.leave(limit_sec=self._times.attempt)
        session.close()


class LeasedInstances(Instances):
    def __init__(self, folder: Path, store: PostgresStore, address: str, times: LeaseTimes | None = None) -> None:
        super().__init__(folder)
        self._store = store
        self._address = address
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

    # Registering.

    async def register(self, facts: InstanceFacts) -> str:
        """After a lease was lost: nothing that the instance has started under its old name may be alive."""
        await super().leave()
        name = await super().register(facts)
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
        super().update(facts)
        if self._lease is not None:
            self._lease.facts = facts

    async def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._lease is not None:
            await asyncio.to_thread(self._lease.end)
        await super().leave()

    # The others.

    async def alive(self, names: Collection[str]) -> frozenset[str]:
        if not names:
            return frozenset()
        found = await self._store.read(lambda connection: instances.alive(connection, names))
        killed = set(await asyncio.to_thread(self._locks.killed)) if found else set()
        here = boot_id()
        return frozenset(name for name, boot in found.items() if boot != here or name not in killed)

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
        await super().forget_dead()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with super().exclusive():
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
