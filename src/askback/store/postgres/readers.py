"""The threads that read, each with its own connection."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg

from askback.core.errors import shortage
from askback.store.postgres import errors
from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import Link, Server

T = TypeVar("T")

THREADS = 4


class Readers:
    """A read is repeated if its connection is lost."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="askback-store-reader")
        self._local = threading.local()
        self._links: list[Link] = []
        self._closed = False

    async def read(self, work: Callable[[PostgresConnection], T]) -> T:
        if self._closed:
            raise errors.closed(self._server.address)
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._pool, self._read, work, time.monotonic())
        except RuntimeError as error:
            # No thread can be started.
            raise shortage(error) from error
        return await answer

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._end)

    def _read(self, work: Callable[[PostgresConnection], T], began: float) -> T:
        link: Link | None = getattr(self._local, "link", None)
        if link is None:
            link = self._local.link = Link(self._server)
            self._links.append(link)
        try:
            return self._server.patiently(lambda: link.use(work), began)
        except psycopg.Error as error:
            raise self._server.unavailable(error) from error

    def _end(self) -> None:
        self._pool.shutdown(wait=True)
        for link in self._links:
            link.close()
