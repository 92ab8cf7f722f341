"""The threads that read, each with its own connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from askback.core.errors import shortage
from askback.store.sqlite import errors
from askback.store.sqlite.connection import Presence, SqliteConnection, open_reader

T = TypeVar("T")

THREADS = 4


class Readers:
    """A pool of reader threads, each with its own connection. Both are created on demand."""

    def __init__(self, path: Path, presence: Presence) -> None:
        self._path = path
        self._presence = presence
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="askback-store-reader")
        self._local = threading.local()
        self._open: list[SqliteConnection] = []
        self._closed = False

    async def read(self, work: Callable[[SqliteConnection], T]) -> T:
        if self._closed:
            raise errors.closed(self._path)
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)
        except RuntimeError as error:
            # No thread can be started.
            raise shortage(error) from error
        return await answer

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._end)

    def _read(self, work: Callable[[SqliteConnection], T]) -> T:
        if (fault := self._presence.fault()) is not None:
            raise fault
        with errors.faults_of(self._path):
            connection = self._connection()
        with errors.faults_of(self._path, connection):
            return work(connection)

    def _connection(self) -> SqliteConnection:
        connection: SqliteConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_reader(self._path)
            self._open.append(connection)
        return connection

    def _end(self) -> None:
        self._pool.shutdown(wait=True)
        for connection in self._open:
            connection.close()
