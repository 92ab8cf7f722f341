"""Procrastinate's way to the database: a thread with one connection, which is opened again after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from procrastinate import connector
from psycopg.rows import dict_row

from askback.store.postgres.connection import PostgresConnection
from askback.store.postgres.link import Link, Server
from askback.store.sql.connection import Values

T = TypeVar("T")
Row = dict[str, Any]


class Connector(connector.BaseAsyncConnector):
    """A statement is repeated if its connection is lost, also if it may have been committed.

    Raises `Unavailable` if the server cannot be reached, and otherwise the errors of psycopg.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._link = Link(server)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="askback-store-queue")

    async def execute_query_async(self, query: str, **arguments: Any) -> None:
        await self._perform(lambda connection: connection.raw.execute(query.encode(), arguments) and None)

    async def execute_query_one_async(self, query: str, **arguments: Any) -> Row:
        return (await self.execute_query_all_async(query, **arguments))[0]

    async def execute_query_all_async(self, query: str, **arguments: Any) -> list[Row]:
        def fetch(connection: PostgresConnection) -> list[Row]:
            with connection.raw.cursor(row_factory=dict_row) as cursor:
                return cursor.execute(query.encode(), arguments).fetchall()

        return await self._perform(fetch)

    async def fetch(self, name: str, values: Values) -> list[Any]:
        """The rows of one of the statements in `sql/queue.sql`."""
        return await self._perform(lambda connection: connection.fetch(connection.statements("queue")[name], values))

    async def close_async(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        self._link.close()

    async def _perform(self, work: Callable[[PostgresConnection], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self._server.patiently(lambda: self._link.use(work)))
