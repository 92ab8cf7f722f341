"""Following the runs that wait for their user: all of them now, and again whenever one begins or ends to wait.

The store is read once for all followers, and by nobody while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass
from datetime import datetime

from askback.core.runs import Run
from askback.store.base import Crowd, Store

PAGE = 200
_SPACING_SEC = 0.05
_PATIENCE_SEC = 0.25
"""Another program tells also of runs that have only said something: most likely none of them begins or ends to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """A page of runs that wait for their user, the oldest question first, and all of them together."""

    items: tuple[Run, ...]
    next_cursor: str | None
    crowd: Crowd


async def read_inbox(store: Store, cursor: str | None, limit: int) -> InboxPage:
    """Counts them only where they are more than the page."""
    page = await store.pending(cursor, limit)
    if cursor is None and page.next_cursor is None:
        crowd = Crowd(total=len(page.items), newest_at=_asked_at(page.items[-1]) if page.items else None)
    else:
        crowd = await store.crowd()
    return InboxPage(items=page.items, next_cursor=page.next_cursor, crowd=crowd)


class Waiting:
    """The oldest pending questions, as they were read last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followers = 0
        self._page: InboxPage | None = None
        self._news = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    async def follow(self) -> AsyncGenerator[InboxPage]:
        """The first page of waiting runs, and every one after it that is another. Who is slow misses those between."""
        reading = self._join()
        told: InboxPage | None = None
        try:
            while True:
                if self._page is not None and self._page is not told:
                    told = self._page
                    yield told
                elif reading.done():
                    # Raises what made it impossible to go on.
                    reading.result()
                else:
                    await self._news.wait()
        finally:
            self._leave()

    def _join(self) -> asyncio.Task[None]:
        self._followers += 1
        if self._reading is None or self._reading.done():
            self._page = None
            self._reading = asyncio.get_running_loop().create_task(self._read())
            self._reading.add_done_callback(self._ended)
        return self._reading

    def _leave(self) -> None:
        self._followers -= 1
        if not self._followers and self._reading is not None:
            self._reading.cancel()
            self._reading = None

    async def _read(self) -> None:
        changes = self._store.changes()
        try:
            while True:
                page = await read_inbox(self._store, None, PAGE)
                if self._page is None or _shown(page) != _shown(self._page):
                    self._page = page
                    self._wake()
                await asyncio.sleep(_SPACING_SEC)
                news = await changes.wait()
                if not any(news.values()):
                    await asyncio.sleep(_PATIENCE_SEC)
        finally:
            changes.close()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _ended(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled():
            reading.exception()
        self._wake()


def _asked_at(run: Run) -> datetime | None:
    return None if run.pending_interaction is None else run.pending_interaction.asked_at


def _shown(page: InboxPage) -> Hashable:
    """What a follower would see of it, or of the pages behind it."""
    items = [(run.id, run.pending_interaction and run.pending_interaction.interaction_id) for run in page.items]
    return tuple(items), page.crowd
