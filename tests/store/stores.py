"""The stores there are. A test of the Protocol runs on each of them; another database adds one line here."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from support.postgres import address_file


async def _sqlite(folder: Path) -> Store:
    return await SqliteStore.open(folder / "askback.db")


async def _postgres(folder: Path) -> Store:
    from askback.store.postgres import PostgresStore

    return await PostgresStore.open(address_file(folder).read_text())


STORES: dict[str, Callable[[Path], Awaitable[Store]]] = {"postgres": _postgres, "sqlite": _sqlite}

OpenStore = Callable[[], AbstractAsyncContextManager[Store]]
"""Opens the same store each time it is called, also while it is open already."""

Program = subprocess.Popen[str]
"""Another program on the same store."""


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Store]:
    store = await STORES[kind](folder)
    try:
        yield store
    finally:
        await store.close()
