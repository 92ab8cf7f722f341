"""Stored files that are used only if they are those of the database: every method first or afterwards looks at the mark.

The rule: only what the right store does not have is missing. A store without its mark, or with another one, cannot be
used, exactly like one that is down. Nothing is stored there, and nothing is removed on its word.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import cast

from askback.blobs import FileMissing, Files, StoredFile
from askback.blobs.errors import unavailable
from askback.blobs.mark import check_mark


class StoreIdentity:
    """The id of the store that belongs to the database. All `MarkedFiles` of a program share it, in any thread."""

    def __init__(self, settle: Callable[[], Awaitable[str]] | None) -> None:
        """`settle` finds the id, and marks a store that is used for the first time. None: this program only looks."""
        self._settle = settle
        self.known: str | None = None

    async def begin(self) -> None:
        """Before the store is used for the first time. Raises `Unavailable` if the id cannot be found now."""
        if self.known is None and self._settle is not None:
            self.known = await self._settle()

    async def expected(self, place: str) -> str:
        await self.begin()
        if self.known is None:
            raise unavailable(place, "no server has used it with this database yet")
        return self.known


class MarkedFiles:
    """Implements `Files`. `trusted_sec`: how long a mark that was seen counts for further writes."""

    def __init__(self, files: Files, identity: StoreIdentity, *, trusted_sec: float) -> None:
        self._files = files
        self._identity = identity
        self._trusted_sec = trusted_sec
        self._seen_at = float("-inf")

    @property
    def place(self) -> str:
        return self._files.place

    async def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        await self._trust()
        await self._files.put(key, content, replace=replace)
        # It may have been unmounted meanwhile: then the file is not where it belongs.
        await self._trust()

    async def get(self, key: str, max_bytes: int) -> bytes:
        async with self._missing_only_here():
            return await self._files.get(key, max_bytes)

    async def fetch(self, key: str, target: Path) -> None:
        async with self._missing_only_here():
            await self._files.fetch(key, target)

    async def read(self, key: str) -> AsyncIterator[bytes]:
        pieces = cast(AsyncGenerator[bytes], self._files.read(key))
        async with self._missing_only_here(), aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def size(self, key: str) -> int | None:
        await self._identity.begin()
        found = await self._files.size(key)
        if found is None:
            await self.confirm()
        return found

    async def list(self, folder: str) -> Sequence[StoredFile]:
        await self._identity.begin()
        found = await self._files.list(folder)
        await self.confirm()
        return found

    async def delete(self, keys: Sequence[str]) -> None:
        await self._trust()
        await self._files.delete(keys)

    async def check(self) -> str:
        await self.confirm()
        return await self._files.check()

    async def close(self) -> None:
        await self._files.close()

    @asynccontextmanager
    async def _missing_only_here(self) -> AsyncIterator[None]:
        await self._identity.begin()
        try:
            yield
        except FileMissing:
            await self.confirm()
            raise

    async def _trust(self) -> None:
        """For a write: an object store does not become another one within seconds, but a folder does."""
        if time.monotonic() - self._seen_at >= self._trusted_sec:
            await self.confirm()

    async def confirm(self) -> None:
        """Raises `Unavailable` unless this is the store of the database."""
        await check_mark(self._files, await self._identity.expected(self.place))
        self._seen_at = time.monotonic()
