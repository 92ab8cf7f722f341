"""A store in the database that was chosen for the test."""

from __future__ import annotations

from pathlib import Path

from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from support.postgres import databases


async def opened_store(folder: Path) -> Store:
    """The store of this folder: its file, or its database in PostgreSQL."""
    if (address := databases.address(folder)) is None:
        return await SqliteStore.open(folder / "askback.db")
    from askback.store.postgres import PostgresStore

    return await PostgresStore.open(address)
