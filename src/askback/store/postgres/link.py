"""Connections that are opened when they are needed, and opened again after they were lost."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from askback.core.errors import Unavailable
from askback.store.postgres import errors
from askback.store.postgres.connection import PostgresConnection

T = TypeVar("T")

PATIENCE_SEC = 30.0
"""How long calls wait for a server that cannot be reached. Once it is away for longer, they fail at once."""
_FIRST_WAIT_SEC = 0.02
_LONGEST_WAIT_SEC = 1.0

log = logging.getLogger(__name__)


class ConnectionLost(Exception):
    """The connection was lost. `error` says why."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class Server:
    """One database server, and since when it cannot be reached. Shared by all threads of a store."""

    def __init__(self, address: str, patience_sec: float = PATIENCE_SEC) -> None:
        self.address = address
        self.patience_sec = patience_sec
        self._away_since: float | None = None
        self.closing = threading.Event()

    def connect(self) -> PostgresConnection:
        """One attempt. Raises `ConnectionLost`."""
        try:
            connection = PostgresConnection.open(self.address)
        except psycopg.Error as error:
            self.note_lost(error)
            raise ConnectionLost(error) from error
        if self._away_since is not None:
            self._away_since = None
            log.warning("the database can be reached again")
        return connection

    def note_lost(self, error: psycopg.Error) -> None:
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.warning("the connection to the database was lost", extra={"error": str(error)})

    def patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt as long as it raises `ConnectionLost`. Raises `Unavailable` after a while."""
        began, wait_sec = time.monotonic(), _FIRST_WAIT_SEC
        while True:
            try:
                return attempt()
            except ConnectionLost as lost:
                if self._has_waited_enough(began, lost.error):
                    raise self.unavailable(lost.error) from lost
            self.closing.wait(wait_sec)
            wait_sec = min(2 * wait_sec, _LONGEST_WAIT_SEC)

    def _has_waited_enough(self, began: float, error: psycopg.Error) -> bool:
        since = min(began, self._away_since or began)
        return self.closing.is_set() or time.monotonic() - since > self.patience_sec or errors.is_permanent(error)

    def unavailable(self, error: psycopg.Error) -> Unavailable:
        return errors.unavailable(error, self.address)


class Link:
    """The connection of one thread."""

    def __init__(self, server: Server, prepare: Callable[[PostgresConnection], None] = lambda connection: None) -> None:
        """`prepare` is called with every new connection."""
        self._server = server
        self._prepare = prepare
        self._connection: PostgresConnection | None = None

    def use(self, work: Callable[[PostgresConnection], T]) -> T:
        """Call `work` once. Raises `ConnectionLost` if the connection cannot be made, or breaks."""
        connection = self._connection
        if connection is None or connection.lost:
            self.close()
            connection = self._server.connect()
            self._connection = connection
            self._guarded(connection, self._prepare)
        return self._guarded(connection, work)

    def _guarded(self, connection: PostgresConnection, work: Callable[[PostgresConnection], T]) -> T:
        try:
            return work(connection)
        except psycopg.Error as error:
            if not connection.is_lost_by(error):
                raise
            self.close()
            self._server.note_lost(error)
            raise ConnectionLost(error) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
