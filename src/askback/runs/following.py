"""Following all runs, and waiting for a change of one: one background task reads for everyone, while there is anyone.

`Inbox` follows the runs that wait for their user: the first page, sent again whenever it changes. `run_events` uses the same
`SharedReader` for the events of one run.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from askback.core.errors import AskbackError, NotFound
from askback.core.interactions import InboxOrder
from askback.core.runs import Run
from askback.store.listeners import Changes
from askback.store.pages import UNKNOWN_RUN, InboxCount, InboxFilter
from askback.store.visible import RunStore
from askback.wire import runs as wire

MAX_UNSENT = 1000
"""A follower with more unsent runs than this is too slow: its stream ends."""
_ELSEWHERE_SEC = 0.5
"""Changes by other processes are read with this delay: most of them only added events."""
_MAX_KNOWN = 10_000
PAGE = 200
_SPACING_SEC = 0.05
_MAX_SHARE = 0.1
"""Of the time, at most so much is spent on reading: with very many questions, counting them takes long."""
_INBOX_ELSEWHERE_SEC = 0.25
"""Changes by other processes are read with this delay: most of them only added events."""
_ANY = InboxFilter()


class Listener(Protocol):
    """The source that the task listens to: the changes of the store, or the events of one run."""

    def close(self) -> None: ...


L = TypeVar("L", bound=Listener)
News = Callable[[], Awaitable[None]]
"""Waits until the reader has something new. If the reader failed, raises its error."""


class SharedReader(Generic[L]):
    def __init__(self, listen: Callable[[], L], read: Callable[[L], Coroutine[Any, Any, None]]) -> None:
        """`read` calls `wake` whenever there is something new for the followers."""
        self._listen = listen
        self._read = read
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.followers = 0

    @contextmanager
    def followed(self) -> Iterator[News]:
        """Count one more follower during this block, and start the task if needed."""
        self.followers += 1
        task = self._running()

        async def news() -> None:
            if not task.done():
                await self._news.wait()
            if task.done():
                task.result()

        try:
            yield news
        finally:
            self.followers -= 1
            if not self.followers and self._task is not None:
                self._task.cancel()
                self._task = None

    @property
    def ended(self) -> bool:
        """Whether the task has ended, which it does only by an error while there are followers."""
        return self._task is None or self._task.done()

    def wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _running(self) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            # Listen immediately, so that no change before the task's first step is missed.
            listener = self._listen()
            self._task = asyncio.get_running_loop().create_task(self._read(listener))
            self._task.add_done_callback(lambda task: self._ended(task, listener))
        return self._task

    def _ended(self, task: asyncio.Task[None], listener: L) -> None:
        listener.close()
        if not task.cancelled():
            task.exception()  # followers raise it; without followers, asyncio must not warn that it was never retrieved
        self.wake()


class RunChanges:
    """The followers, and the last known state of each run."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._followers: set[_Follower] = set()
        self._known: dict[str, tuple[int, Hashable]] = {}
        self._reader = SharedReader(store.changes, self._read)

    async def follow(self) -> AsyncGenerator[Sequence[Run]]:
        """Yield changed runs in batches. A slow follower gets only the latest version of a run.

        The first batch is empty; no change after it is missed. Ends when it is unknown which runs have changed: the
        follower must then read the runs again.
        """
        follower = _Follower()
        self._followers.add(follower)
        try:
            with self._reader.followed() as news:
                yield ()
                while not follower.ended:
                    if follower.unsent:
                        yield follower.take()
                    else:
                        await news()
        except AskbackError:
            return  # the store is closed or cannot be read
        finally:
            self._followers.discard(follower)
            if not self._followers:
                self._known.clear()

    async def _read(self, changes: Changes) -> None:
        while True:
            changed = await changes.wait()
            if UNKNOWN_RUN in changed:
                for follower in self._followers:
                    follower.ended = True
                self._reader.wake()
                continue
            self._send([run for run in changed.values() if run is not None])
            if elsewhere := [run_id for run_id, run in changed.items() if run is None]:
                await asyncio.sleep(_ELSEWHERE_SEC)
                self._send(await self._look_up(elsewhere))

    async def _look_up(self, run_ids: Collection[str]) -> Sequence[Run]:
        found: list[Run] = []
        for run_id in run_ids:
            try:
                found.append(await self._store.get(run_id))
            except NotFound:
                self._known.pop(run_id, None)
        return found

    def _send(self, runs: Sequence[Run]) -> None:
        if changed := [run for run in runs if self._is_new(run)]:
            for follower in self._followers:
                follower.add(changed)
            self._reader.wake()

    def _is_new(self, run: Run) -> bool:
        version, state = self._known.get(run.id, (-1, None))
        if run.version <= version:
            return False
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[run.id] = (run.version, _state(run))
        return _state(run) != state


class _Follower:
    """The runs that one follower has not received yet."""

    def __init__(self) -> None:
        self.unsent: dict[str, Run] = {}
        self.ended = False

    def take(self) -> Sequence[Run]:
        runs, self.unsent = tuple(self.unsent.values()), {}
        return runs

    def add(self, runs: Sequence[Run]) -> None:
        self.unsent |= {run.id: run for run in runs}
        if len(self.unsent) > MAX_UNSENT:
            self.ended = True
            self.unsent = {}


def _state(run: Run) -> Hashable:
    """A value that differs after every change of state, even if the run has returned to an earlier state.

    To return to a state, a run needs a new claim or a new question.
    """
    return run.state, run.epoch, len(run.interaction_ids)


@dataclass(slots=True, eq=False)
class _Waiter:
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    run: Run | None = None
    """The new version, if this process made the change."""


class RunVersions:
    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._waiters: dict[str, set[_Waiter]] = {}
        self._reader = SharedReader(store.changes, self._read)

    async def wait(self, run_id: str, until: Callable[[Run], bool]) -> Run:
        """The first version of the run that satisfies `until`, which every final run must."""
        waiter = _Waiter()
        self._waiters.setdefault(run_id, set()).add(waiter)
        try:
            with self._reader.followed() as news:
                run = await self._store.get(run_id)
                while not until(run):
                    if self._reader.ended:
                        await news()
                    await waiter.woken.wait()
                    waiter.woken.clear()
                    known, waiter.run = waiter.run, None
                    run = known or await self._store.get(run_id)
                return run
        finally:
            waiters = self._waiters[run_id]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[run_id]

    async def _read(self, changes: Changes) -> None:
        try:
            while True:
                changed = await changes.wait()
                known = self._waiters if UNKNOWN_RUN in changed else self._waiters.keys() & changed.keys()
                for run_id in list(known):
                    self._wake(run_id, changed.get(run_id))
        finally:
            for run_id in list(self._waiters):
                self._wake(run_id, None)

    def _wake(self, run_id: str, run: Run | None) -> None:
        for waiter in self._waiters[run_id]:
            waiter.run = run
            waiter.woken.set()


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
                await asyncio.sleep(_INBOX_ELSEWHERE_SEC)


def _shown(page: InboxPage) -> Hashable:
    """The part of a page whose changes matter to followers."""
    items = [(run.id, run.pending_interaction and run.pending_interaction.interaction_id) for run in page.items]
    return tuple(items), page.count
