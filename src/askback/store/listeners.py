"""The listeners of this process. Used only in the event loop's thread; independent of the database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from askback.core.errors import Unavailable
from askback.core.runs import Run
from askback.store.pages import UNKNOWN_RUN, EventPage

MAX_RUNS = 1000
"""With more changed runs than this, a listener only learns that any run may have changed."""
MAX_EVENT_BYTES = 128_000
"""With more unread events than this, a listener has to read them from the store."""


class Changes:
    """The runs that have changed, in this process or another one on the same store.

    The value is the new version of the run, or None if another process made the change. Events that a turn appends are
    reported as a change only if another process appends them, since processes exchange only run ids. Because processes
    race, a run may be older than the version seen before. `{UNKNOWN_RUN: None}` means that any run may have changed. A
    slow listener takes a constant amount of memory.
    """

    def __init__(self, listeners: Listeners, shows: Callable[[Run], bool] | None) -> None:
        """Changes of runs that `shows` rejects are left out. One by another process is reported without the run."""
        self._listeners = listeners
        self._shows = shows
        self._news: dict[str, Run | None] = {}
        self._changed_elsewhere: set[str] = set()
        self._ready = asyncio.Event()
        self._closed = False

    async def wait(self) -> Mapping[str, Run | None]:
        """Wait for changes, and return all of them. Raises `Unavailable` once this or the store is closed."""
        await self._ready.wait()
        if self._closed:
            raise self._listeners.closed()
        news, self._news = self._news, {}
        self._changed_elsewhere.clear()
        self._ready.clear()
        return news

    def close(self) -> None:
        self._closed = True
        self._ready.set()
        self._listeners.of_all.discard(self)

    def notify(self, run_id: str, run: Run | None) -> None:
        """Add a change. None for `run`: another process made it, so the versions of this process may be outdated."""
        if UNKNOWN_RUN in self._news or (run is not None and self._shows is not None and not self._shows(run)):
            return
        if run is None:
            self._changed_elsewhere.add(run_id)
        self._news[run_id] = None if run_id in self._changed_elsewhere else run
        if len(self._news) > MAX_RUNS:
            self.notify_of_any()
        self._ready.set()

    def notify_of_any(self) -> None:
        """Any run may have changed."""
        self._changed_elsewhere.clear()
        self._news = {UNKNOWN_RUN: None}
        self._ready.set()


class NewEvents:
    """New events of one run, in the order of their numbers.

    A page contains the events that this process wrote. If it has `more`, read the store for others: another process
    wrote them, or they were too large to hold for a slow listener. Because processes race, a page may start with events
    that were read before, or leave a gap.
    """

    def __init__(self, listeners: Listeners, run_id: str, check: Callable[[], Awaitable[None]] | None) -> None:
        """`check` raises an error if the listener may not see the run. It is called before the first wait."""
        self._listeners = listeners
        self._run_id = run_id
        self._check = check
        self._page = EventPage()
        self._ready = asyncio.Event()
        self._closed = False

    async def wait(self) -> EventPage:
        """Wait for events, and return all of them. Raises `Unavailable` once this or the store is closed."""
        if self._check is not None:
            await self._check()
            # Labels never change.
            self._check = None
        await self._ready.wait()
        if self._closed:
            raise self._listeners.closed()
        page, self._page = self._page, EventPage()
        self._ready.clear()
        return page

    def close(self) -> None:
        self._closed = True
        self._ready.set()
        group = self._listeners.of_one.get(self._run_id, set())
        group.discard(self)
        if not group:
            self._listeners.of_one.pop(self._run_id, None)

    def notify(self, page: EventPage) -> None:
        """Add events. Once some must be read from the store, all are: the read also returns those of this process."""
        size = self._page.size + page.size
        if self._page.more or page.more or size > MAX_EVENT_BYTES:
            self._page = UNREAD
        else:
            first = self._page or page
            self._page = EventPage.of((*self._page, *page), more=False, size=size, committed_at=first.committed_at)
        self._ready.set()


UNREAD = EventPage.of((), more=True)


class Listeners:
    def __init__(self, closed: Callable[[], Unavailable]) -> None:
        """`closed` creates the error that a closed listener raises."""
        self.closed = closed
        self.of_all: set[Changes] = set()
        self.of_one: dict[str, set[NewEvents]] = {}

    def listen(self, shows: Callable[[Run], bool] | None = None) -> Changes:
        listener = Changes(self, shows)
        self.of_all.add(listener)
        return listener

    def listen_to_events(self, run_id: str, check: Callable[[], Awaitable[None]] | None = None) -> NewEvents:
        listener = NewEvents(self, run_id, check)
        self.of_one.setdefault(run_id, set()).add(listener)
        return listener

    def notify(self, run_id: str, run: Run | None, events: Callable[[], EventPage]) -> None:
        """Report a change by this process. None for `run`: only events were added. Calls `events` only if needed."""
        if run is not None:
            for listener in self.of_all:
                listener.notify(run_id, run)
        if group := self.of_one.get(run_id):
            page = events()
            for follower in group if page or page.more else ():
                follower.notify(page)

    def notify_elsewhere(self, run_ids: Collection[str] | None) -> None:
        """Report that another process changed these runs. None: any run may have changed."""
        if run_ids is None:
            for listener in self.of_all:
                listener.notify_of_any()
        for run_id in self.of_one if run_ids is None else run_ids:
            for listener in self.of_all if run_ids is not None else ():
                listener.notify(run_id, None)
            for follower in self.of_one.get(run_id, ()):
                follower.notify(UNREAD)

    def notify_events_elsewhere(self, run_id: str) -> None:
        """Report that another process only added events to this run."""
        for follower in self.of_one.get(run_id, ()):
            follower.notify(UNREAD)

    def close(self) -> None:
        for listener in list(self.of_all):
            listener.close()
        for follower in [follower for group in self.of_one.values() for follower in group]:
            follower.close()
