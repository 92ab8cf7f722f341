"""A lease in a PostgreSQL database, renewed by a thread until it is given up or lost.

The thread has a separate connection, so that neither busy writers nor a busy event loop delay a renewal. If renewals
fail for too long, the instance must count itself as dead some time before the others do, to end its engines in time.
The same session holds the lock of the leader: who cannot renew the lease does not lead either.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import psycopg

from askback.background.loops import start_thread
from askback.background.outages import OUTAGES
from askback.cluster.instances import DatabaseClock, boottime
from askback.core.errors import RefusalCode
from askback.core.instances import InstanceFacts
from askback.store.postgres.instances import LEADER, Session, TooNew

log = logging.getLogger(__name__)

TOO_LATE = "it could not be renewed in time"
TAKEN = "it was over when it was to be renewed"
TOO_NEW = "the tables were upgraded to a format that this version cannot use"


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


class Holder(Protocol):
    """Who has the lease. All methods are called in the event loop."""

    def mark_renewed(self, deadline: float) -> None:
        """`deadline` is the time of CLOCK_BOOTTIME at which the lease is lost unless it is renewed again."""

    def mark_lead(self, leads: bool) -> None: ...

    def mark_lost(self, reason: str) -> None: ...


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

    def keep(self, holder: Holder) -> None:
        """Renew it from now on. Call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._thread = start_thread(self._run, loop, holder, name="askback-lease")

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

    def _run(self, loop: asyncio.AbstractEventLoop, holder: Holder) -> None:
        def tell(call: Callable[..., None], *args: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(call, *args)

        reason = None
        while reason is None and not self._stopping:
            self._lead(holder, tell)
            self._wake.wait(max(0.0, min(self._times.beat, self._deadline - boottime())))
            self._wake.clear()
            reason = None if self._stopping else self._renew(holder, tell)
        if self._leads:
            self._leads = False
            tell(holder.mark_lead, False)
        if reason is not None:
            tell(holder.mark_lost, reason)
        self._close(leave=reason is None and not self._abandoned)

    def _renew(self, holder: Holder, tell: Callable[..., None]) -> str | None:
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
            self._record_failure(error, holder, tell)
            return None
        if database_time is None:
            return TAKEN
        self._clock.measure(database_time, began, boottime())
        self._deadline = began + self._times.hold
        self._failed = False
        tell(holder.mark_renewed, self._deadline)
        return None

    def _lead(self, holder: Holder, tell: Callable[..., None]) -> None:
        if not self.seeks_lead or self._leads or self._session is None:
            return
        try:
            self._leads = self._session.take(LEADER, alone=True, limit_sec=self._times.attempt)
        except Exception as error:  # as above
            self._record_failure(error, holder, tell)
            return
        if self._leads:
            tell(holder.mark_lead, True)

    def _record_failure(self, error: Exception, holder: Holder, tell: Callable[..., None]) -> None:
        """A session that has failed is closed, so its locks may be taken by others."""
        if not self._failed:
            OUTAGES.begun(
                log, RefusalCode.STORE_UNUSABLE, "the lease of this program cannot be renewed; trying again", str(error)
            )
        self._failed = True
        if self._leads:
            self._leads = False
            tell(holder.mark_lead, False)
        self._close(leave=False)

    def _close(self, *, leave: bool) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if leave:
            with suppress(psycopg.Error):
                session.leave(limit_sec=self._times.attempt)
        session.close()
