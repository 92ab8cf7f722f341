"""Following the runs that wait for their user: the first page, sent again whenever it changes.

The store is read once for all followers, and not at all without followers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import dataclass

from askback.core.interactions import InboxOrder
from askback.core.runs import Run
from askback.runs.following import SharedReader
from askback.store.listeners import Changes
from askback.store.pages import InboxCount, InboxFilter
from askback.store.visible import RunStore
from askback.wire import runs as wire

PAGE = 200
_SPACING_SEC = 0.05
_MAX_SHARE = 0.1
"""Of the time, at most so much is spent on reading: with very many questions, counting them takes long."""
_ELSEWHERE_SEC = 0.25
"""Changes by other processes are read with this delay: most of them only added events."""
_ANY = InboxFilter()


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxPage:
    """A page of runs that wait for their user, and the count of all that match the same filter."""

    items: tuple[Run, ...]
    next_cursor: str | None
    count: InboxCount

    def shown(self) -> wire.Inbox:
        count = self.count
        return wire.Inbox.of(self, total=count.total, skills=dict(count.skills), engines=dict(count.engines))


async def read_inbox(
    store: RunStore,
    cursor: str | None,
    limit: int,
    where: InboxFilter = _ANY,
    order: InboxOrder = InboxOrder.OLDEST,
) -> InboxPage:
    """Read a page. Questions are counted separately unless the page has all of them."""
    page = await store.pending(cursor, limit, where, order)
    if where == _ANY and cursor is None and page.next_cursor is None:
        count = _count(page.items)
    else:
        count = await store.inbox_count(where)
    return InboxPage(items=page.items, next_cursor=page.next_cursor, count=count)


def _count(runs: Sequence[Run]) -> InboxCount:
    asked = [run.pending_interaction.asked_at for run in runs if run.pending_interaction is not None]
    return InboxCount(
        total=len(runs),
        newest_at=max(asked, default=None),
        skills=tuple(sorted(Counter(run.skill.id for run in runs).items())),
        engines=tuple(sorted(Counter(run.engine for run in runs).items())),
    )


class Inbox:
    """The first page of waiting runs, as last read."""

    def __init__(self, store: RunStore) -> None:
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
            began = time.monotonic()
            page = await read_inbox(self._store, None, PAGE)
            took = time.monotonic() - began
            if self._page is None or _shown(page) != _shown(self._page):
                self._page = page
                self._reader.wake()
            await asyncio.sleep(max(_SPACING_SEC, took / _MAX_SHARE - took))
            changed = await changes.wait()
            if not any(changed.values()):
                await asyncio.sleep(_ELSEWHERE_SEC)


def _shown(page: InboxPage) -> Hashable:
    """The part of a page whose changes matter to followers."""
    items = [(run.id, run.pending_interaction and run.pending_interaction.interaction_id) for run in page.items]
    return tuple(items), page.count
