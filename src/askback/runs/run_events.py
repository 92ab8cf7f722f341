"""Following the events of a run: first the history, then new events. A follower gets every event once, in order.

Notifications include the events that this process writes. The store is read for the history, for followers that have
fallen behind, and for events of other processes; the latter are read once for all followers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from itertools import takewhile

from askback.core.events import Event, EventType
from askback.core.runs import RunState
from askback.runs.following import SharedReader
from askback.store.listeners import NewEvents
from askback.store.pages import EventPage
from askback.store.visible import RunStore

PAGE = 100
PAGE_BYTES = 128_000
"""How much of each followed run's latest events stays in memory. A follower further behind reads the store."""
HISTORY_READS = 2
"""How many pages of history are read at a time: many new followers must not occupy all threads and the event loop."""


class RunEvents:
    """The latest events of every followed run."""

    def __init__(self, store: RunStore, history_reads: asyncio.Semaphore | None = None) -> None:
        """`history_reads`: limits the pages that are read at a time. Views of one store share it."""
        self._store = store
        self._tails: dict[str, _Tail] = {}
        self._history_reads = history_reads or asyncio.Semaphore(HISTORY_READS)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event]]:
        """Yield the run's events after number `after`, in batches. Ends when the run is over."""
        tail = self._tails.setdefault(run_id, _Tail(self._store, run_id))
        try:
            with tail.reader.followed() as news:
                over = (await self._store.get(run_id)).state.final
                while True:
                    while True:
                        # Followers take turns, one page of history each.
                        async with self._history_reads:
                            page = await self._store.events(run_id, after, PAGE, PAGE_BYTES)
                        if not page:
                            break
                        yield page
                        after = page[-1].seq
                        tail.add(page)
                    if over:
                        return
                    while tail.covers(after):
                        if events := tail.after(after):
                            yield events
                            after = events[-1].seq
                        elif tail.over:
                            return
                        else:
                            await news()
        finally:
            if not tail.reader.followers:
                self._tails.pop(run_id, None)


class _Tail:
    """The latest events of one run, without gaps."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self.seq = 0
        self.over = False
        self.reader = SharedReader(lambda: store.new_events(run_id), self._read)
        self._store = store
        self._run_id = run_id
        self._pages: deque[EventPage] = deque()
        self._size = 0

    def add(self, page: EventPage) -> None:
        """Add events. After a gap, older events are dropped: followers that need them read the store."""
        if not page or page[-1].seq <= self.seq:
            return
        if page[0].seq > self.seq + 1:
            self._pages.clear()
            self._size = 0
        new = EventPage.of(
            (event for event in page if event.seq > self.seq),
            more=False,
            size=page.size,
            committed_at=page.committed_at,
        )
        self._pages.append(new)
        self._size += new.size
        while self._size > PAGE_BYTES and len(self._pages) > 1:
            self._size -= self._pages.popleft().size
        self.seq = new[-1].seq
        self.over = self.over or any(
            each.type is EventType.RUN_STATE and RunState(each.data["to"]).final for each in new
        )
        self.reader.wake()

    def covers(self, seq: int) -> bool:
        """Whether every known event after `seq` is in memory."""
        return seq >= self.seq or self._pages[0][0].seq <= seq + 1

    def after(self, seq: int) -> Sequence[Event]:
        """The known events after `seq`, if it is covered."""
        if seq >= self.seq:
            return ()
        if (latest := self._pages[-1])[0].seq == seq + 1:
            return latest
        pages = list(takewhile(lambda page: page[-1].seq > seq, reversed(self._pages)))
        events = (event for page in reversed(pages) for event in page if event.seq > seq)
        return EventPage.of(events, more=False, committed_at=pages[-1].committed_at)

    async def _read(self, new_events: NewEvents) -> None:
        while not self.over:
            page = await new_events.wait()
            self.add(page)
            while page.more and (page := await self._store.events(self._run_id, self.seq, PAGE, PAGE_BYTES)):
                self.add(page)
