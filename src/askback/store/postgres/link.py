"""Connections that are opened when they are needed, and opened again after they were lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg

from askback.background.loops import start_thread
from askback.background.outages import OUTAGES
from askback.core.errors import RefusalCode, Unavailable
from askback.store.postgres import errors
from askback.store.postgres.connection import DEFAULT, Limits, PostgresConnection, Watchdog
from askback.store.sql.readers import Readers

T = TypeVar("T")

_FIRST_WAIT_SEC = 0.02
_LONGEST_WAIT_SEC = 1.0
_SILENT_PAUSE_SEC = 0.5
"""After an attempt to reach a silent server, which has taken seconds itself."""

log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The connection was lost. `error` says why."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class Server:
    """One database server, and since when it cannot be reached. Shared by all threads of a store.

    An attempt to reach a server that is silent takes seconds. While it is, one thread tries, and all others wait for it.
    """

    def __init__(self, address: str, patience_sec: float | None = None, limits: Limits | None = None) -> None:
        self.address = address
        self.limits = limits or DEFAULT
        self.patience_sec = self.limits.patience_sec if patience_sec is None else patience_sec
        self.watchdog = Watchdog(self.limits)
        self.closing = threading.Event()
        self.silences = 0
        """How often the server did not answer. Connections that are older than the last time are not used again."""
        self.on_silence: list[Callable[[], None]] = []
        """Called in any thread when the server does not answer."""
        self._changing = threading.Lock()
        self._away: _Away | None = None
        self._was_reached = False
        self._calls = threading.local()

    def connect(self) -> PostgresConnection:
        """Try once to connect, or not at all while the server is known to be silent. Raises `ConnectionLost`."""
        if (away := self._away) is not None and away.silent:
            raise ConnectionLost(away.error)
        began = time.monotonic()
        try:
            connection = self._open()
        except psycopg.errors.ConnectionTimeout as error:
            self.report_silence(error, began)
            raise ConnectionLost(error) from error
        except psycopg.Error as error:
            self.report_lost(error)
            raise ConnectionLost(error) from error
        self._report_reached()
        return connection

    def _open(self) -> PostgresConnection:
        return PostgresConnection.open(self.address, self.limits, self.watchdog)

    def _report_reached(self) -> None:
        with self._changing:
            was_away, self._away = self._away is not None, None
            self._was_reached = True
        if was_away:
            OUTAGES.over(log, RefusalCode.STORE_UNUSABLE, "the database can be reached again")

    def report_lost(self, error: psycopg.Error) -> None:
        with self._changing:
            if self._away is None:
                self._away = _Away(since=time.monotonic(), error=error)
                self._log_away("the connection to the database was lost", error)

    def _log_away(self, what: str, error: psycopg.Error) -> None:
        """Before the first contact, say what it waits for. An error that somebody must correct is reported by the caller."""
        if self._was_reached:
            OUTAGES.begun(log, RefusalCode.STORE_UNUSABLE, what, str(error))
        elif not errors.is_permanent(error):
            log.warning("%s", errors.waiting(error, self.address, self.patience_sec))

    def report_silence(self, error: psycopg.Error, since: float) -> None:
        """Record that the server has not answered a call that began at `since`."""
        with self._changing:
            self.silences += 1
            away = self._away
            self._away = _Away(since=since if away is None else min(since, away.since), error=error, silent=True)
            if (away is None or not away.silent) and not self.closing.is_set():
                self._log_away("the database does not answer", error)
                try:
                    start_thread(self._reconnect, name="askback-store-reconnect")
                except Unavailable:
                    self._end_silence()
        for notify in self.on_silence:
            notify()

    def _end_silence(self, error: psycopg.Error | None = None) -> None:
        """Let every thread that needs a connection try to open one."""
        if (away := self._away) is not None:
            self._away = replace(away, error=error or away.error, silent=False)

    def _reconnect(self) -> None:
        try:
            self._await_answer()
        finally:
            # Nobody else ends the silence, whatever has ended this thread.
            with self._changing:
                self._end_silence()

    def _await_answer(self) -> None:
        """Wait until the server answers. A refused connection is an answer too, since it costs others no time."""
        while not self.closing.is_set():
            try:
                self._open().close()
            except psycopg.errors.ConnectionTimeout:
                self.closing.wait(_SILENT_PAUSE_SEC)
                continue
            except psycopg.Error as error:
                with self._changing:
                    self._end_silence(error)
            else:
                self._report_reached()
            return

    def retry_lost(self, attempt: Callable[[], T], began: float | None = None) -> T:
        """Repeat an attempt as long as it raises `ConnectionLost`. Raises `Unavailable` after a while.

        `began` is when the caller began to wait, if that is earlier.
        """
        wait_sec = _FIRST_WAIT_SEC
        with self._call(began) as began_at:
            while True:
                try:
                    return attempt()
                except ConnectionLost as lost:
                    away = self._away
                    since = began_at if away is None else min(began_at, away.since)
                    waited_enough = self.closing.is_set() or time.monotonic() - since > self.patience_sec
                    if waited_enough or errors.is_permanent(lost.error):
                        raise self.unavailable(lost.error) from lost
                self.closing.wait(wait_sec)
                wait_sec = min(2 * wait_sec, _LONGEST_WAIT_SEC)

    @contextmanager
    def _call(self, began: float | None) -> Iterator[float]:
        """When the call of this thread began. A call within a call has the time that is left of the outer one."""
        outer: float | None = getattr(self._calls, "began", None)
        self._calls.began = outer or began or time.monotonic()
        try:
            yield self._calls.began
        finally:
            self._calls.began = outer

    @property
    def answer_sec(self) -> float:
        """How long the server may take for what this thread asks now."""
        began = getattr(self._calls, "began", None) or time.monotonic()
        left = began + self.patience_sec - time.monotonic()
        return min(self.limits.answer_sec, max(left, self.limits.least_sec))

    def unavailable(self, error: psycopg.Error) -> Unavailable:
        return errors.unavailable(error, self.address)

    def close(self) -> None:
        """Stop waiting for a server that is away, and give calls only a few seconds."""
        self.closing.set()
        self.watchdog.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Away:
    since: float
    error: psycopg.Error
    silent: bool = False
    """It does not even refuse connections."""


class Link:
    """The connection of one thread."""

    def __init__(self, server: Server, prepare: Callable[[PostgresConnection], None] = lambda connection: None) -> None:
        """`prepare` is called with every new connection."""
        self._server = server
        self._prepare = prepare
        self._connection: PostgresConnection | None = None
        self._silences = 0

    @property
    def is_open(self) -> bool:
        connection = self._connection
        return connection is not None and not connection.lost and self._silences == self._server.silences

    def use(self, work: Callable[[PostgresConnection], T]) -> T:
        """Call `work` once. Raises `ConnectionLost` if the connection cannot be made, or breaks."""
        if not self.is_open:
            self.close()
            self._silences = self._server.silences
            self._connection = self._server.connect()
            self._guarded(self._connection, self._prepare)
        assert self._connection is not None
        return self._guarded(self._connection, work)

    def resume(self, work: Callable[[PostgresConnection], T]) -> T:
        """As `use`, in the transaction that the last call has left open. Raises `ConnectionLost` if it is gone."""
        if self._connection is None or self._connection.lost:
            raise ConnectionLost(psycopg.OperationalError("the connection was lost"))
        return self._guarded(self._connection, work)

    def _guarded(self, connection: PostgresConnection, work: Callable[[PostgresConnection], T]) -> T:
        began, limit_sec = time.monotonic(), self._server.answer_sec
        try:
            with self._server.watchdog.limit(connection, limit_sec):
                return work(connection)
        except psycopg.Error as error:
            if not connection.is_lost_by(error):
                raise
            self.close()
            if not connection.was_cut:
                self._server.report_lost(error)
                raise ConnectionLost(error) from error
            raise ConnectionLost(_silent(limit_sec)) from error
        finally:
            if connection.was_cut:
                self._server.report_silence(_silent(limit_sec), began)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _silent(seconds: float) -> psycopg.Error:
    return psycopg.errors.ConnectionTimeout(f"it has not answered for {seconds:.0f} seconds")


class ServerReaders(Readers[Link]):
    """A read is repeated if its connection is lost."""

    def __init__(self, server: Server) -> None:
        super().__init__(lambda: errors.closed(server.address))
        self._server = server

    def open(self) -> Link:
        return Link(self._server)

    def use(self, opened: Link, work: Callable[[PostgresConnection], T], began: float) -> T:
        try:
            return self._server.retry_lost(lambda: opened.use(work), began)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from error
