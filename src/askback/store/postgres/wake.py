"""Notifications between processes on one database, by LISTEN and NOTIFY.

A message is sent in the transaction of the change, so that it arrives exactly if the change is committed. It says who
sends it, whether the run has moved or only has new events, and which run; or which collection of records has changed.
After the connection was lost, anything may have changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from askback.background.loops import Pauses, in_own_thread, retry
from askback.background.outages import OUTAGES
from askback.core.errors import is_outage
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import ConnectionLost, Server
from askback.store.sql.writes import Change

_MAX_MESSAGE_BYTES = 7900
_MOVED = "moved"
_EVENTS = "events"
_RECORDS = "records"
_LONGEST_PAUSE_SEC = 2.0

log = logging.getLogger(__name__)


def message(instance: str, change: Change) -> str | None:
    """The notification of a change for other processes; None if no run has changed."""
    if change.changed_id is None:
        return None
    what = _EVENTS if change.run is None else _MOVED
    text = f"{instance} {what} {change.changed_id}"
    return text if len(text.encode()) <= _MAX_MESSAGE_BYTES else f"{instance} {what} "


@dataclass
class Wake:
    """Its callbacks are called in the event loop."""

    server: Server
    instance: str
    moved: Callable[[Collection[str] | None], None]
    """Gets the ids of changed runs, or None if they are unknown."""
    added: Callable[[str], None]
    """Gets the id of a run that only has new events."""
    recorded: Callable[[str | None], None]
    """Gets the name of a changed collection, or None if any may have changed."""
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """The connection was lost, or this is closed."""

    async def open(self) -> None:
        """Listen. Raises `Unavailable` if the server cannot be reached."""
        connection = await self._connect()
        loop = asyncio.get_running_loop()

        def listen_again() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._over.set)

        self.server.on_silence.append(listen_again)
        self._task = asyncio.create_task(self._listen(connection))

    async def close(self) -> None:
        """Call it once the server is marked as closing. An attempt to connect is finished first."""
        self._over.set()
        if self._task is not None:
            await self._task

    async def _connect(self) -> PostgresConnection:
        return await in_own_thread(lambda: self.server.retry_lost(self._listening), name="askback-store-listen")

    def _listening(self) -> PostgresConnection:
        connection = self.server.connect()
        try:
            with self.server.watchdog.limit(connection, self.server.limits.least_sec):
                connection.execute("LISTEN askback")
        except psycopg.Error as error:
            connection.close()
            self.server.report_lost(error)
            raise ConnectionLost(error) from error
        return connection

    async def _listen(self, connection: PostgresConnection | None) -> None:
        while connection is not None:
            await self._until_lost(connection)
            connection.close()
            connection = await self._again()
            if connection is not None:
                self.moved(None)
                self.recorded(None)

    async def _again(self) -> PostgresConnection | None:
        """Another connection; None if this is closed."""
        pauses = Pauses(_LONGEST_PAUSE_SEC)

        async def connect() -> PostgresConnection | None:
            return None if self.server.closing.is_set() else await self._connect()

        def retries(error: Exception) -> bool:
            if is_outage(error):
                OUTAGES.failed(log, "changes by other programs cannot be heard of", error)
            return is_outage(error)

        return await retry(connect, retries=retries, pause=lambda: asyncio.sleep(pauses.next_sec()))

    async def _until_lost(self, connection: PostgresConnection) -> None:
        loop, descriptor = asyncio.get_running_loop(), connection.raw.fileno()
        if not self.server.closing.is_set():
            self._over.clear()
        loop.add_reader(descriptor, self._receive, connection)
        try:
            self._receive(connection)
            await self._over.wait()
        finally:
            loop.remove_reader(descriptor)

    def _receive(self, connection: PostgresConnection) -> None:
        try:
            connection.raw.pgconn.consume_input()
        except psycopg.Error as error:
            self.server.report_lost(error)
            self._over.set()
            return
        while (notification := connection.raw.pgconn.notifies()) is not None:
            self._hear(notification.extra.decode(errors="replace"))

    def _hear(self, text: str) -> None:
        """Every user of the database may send anything: PostgreSQL has no permissions for notifications."""
        words = text.split(" ", 2)
        if len(words) < 3 or words[0] == self.instance:
            return
        _, what, run_id = words
        if what == _RECORDS:
            self.recorded(run_id)
        elif not run_id:
            self.moved(None)
        elif what == _EVENTS:
            self.added(run_id)
        elif what == _MOVED:
            self.moved([run_id])
