"""Following the runs that wait for their user: the first page, sent again whenever it changes.

The store is read once for all followers, and not at all without followers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass
from datetime import datetime

from askback.core.runs import Run
from askback.following.shared_reader import SharedReader
from askback.store.base import Changes, InboxCount, Store

PAGE = 200
_SPACING_SEC = 0.05
_ELSEWHERE_SEC = 0.25
"""Changes by other processes are read with this delay: most of them only added events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """A page of runs that wait for their user, the oldest question first, and the count of all such runs."""

    items: tuple[Run, ...]
    next_cursor: str | None
    count: InboxCount


async def read_inbox(store: Store, cursor: str | None, limit: int) -> InboxPage:
    """Read a page. Runs are counted separately only if they do not fit on one page."""
    page = await store.pending(cursor, limit)
    if cursor is None and page.next_cursor is None:
        count = InboxCount(total=len(page.items), newest_at=_asked_at(page.items[-1]) if page.items else None)
    else:
        count = await store.inbox_count()
    return InboxPage(items=page.items, next_cursor=page.next_cursor, count=count)


class Inbox:
    """The first page of waiting runs, as last read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._page: InboxPage | None = None
        self._reader = SharedReader(store.changes, self._read)

    async def follow(self) -> AsyncGenerator[InboxPage]:
        """Yield the first page, and again whenever it changes. A slow follower gets only the latest version."""
        if not self._reader.followers:
            self._page = None
        sent: InboxPage | None = None
        with self._reader.followed() as news:
            while True:
                if self._page is not None and self._page is not sent:
                    sent = self._page
                    yield sent
                else:
                    await news()

    async def _read(self, changes: Changes) -> None:
        while True:
            page = await read_inbox(self._store, None, PAGE)
            if self._page is None or _shown(page) != _shown(self._page):
                self._page = page
                self._reader.wake()
            await asyncio.sleep(_SPACING_SEC)
            changed = await changes.wait()
            if not any(changed.values()):
                await asyncio.sleep(_ELSEWHERE_SEC)


def _asked_at(run: Run) -> datetime | None:
    return None if run.pending_interaction is None else run.pending_interaction.asked_at


def _shown(page: InboxPage) -> Hashable:
    """The part of a page whose changes matter to followers."""
    items = [(run.id, run.pending_interaction and run.pending_interaction.interaction_id) for run in page.items]
    return tuple(items), page.count
