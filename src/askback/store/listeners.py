"""Who listens to which runs, in this program. Owned by the event loop's thread; knows no database and no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from askback.core.errors import Unavailable
from askback.core.runs import Run
from askback.store.base import UNKNOWN_RUN

MAX_RUNS = 1000
"""A listener that has more news than this is told only that there is some."""


class Listener:
    """News of one run, or of all, until they are taken."""

    def __init__(self, run_id: str | None, leave: Callable[[Listener], None], end: Callable[[], Unavailable]) -> None:
        self.run_id = run_id
        self._leave = leave
        self._end = end
        self._news: dict[str, Run | None] = {}
        self._to_be_read: set[str] = set()
        self._ready = asyncio.Event()
        self._closed = False

    async def wait(self) -> Mapping[str, Run | None]:
        await self._ready.wait()
        if self._closed:
            raise self._end()
        news, self._news = self._news, {}
        self._to_be_read.clear()
        self._ready.clear()
        return news

    def close(self) -> None:
        self._closed = True
        self._ready.set()
        self._leave(self)

    def tell(self, run_id: str, run: Run | None) -> None:
        """A change of this program's own; without a run, only events were added."""
        if UNKNOWN_RUN in self._news or run_id in self._to_be_read:
            return
        self._news[run_id] = run or self._news.get(run_id)
        self._crowd()

    def tell_to_read(self, run_id: str) -> None:
        """A change by another program: a run that was told before may be older than that."""
        if UNKNOWN_RUN in self._news:
            return
        self._to_be_read.add(run_id)
        self._news[run_id] = None
        self._crowd()

    def tell_to_read_all(self) -> None:
        """Any run may have changed: what is listened to has to be read again."""
        self._to_be_read = set() if self.run_id is None else {self.run_id}
        self._news = {UNKNOWN_RUN if self.run_id is None else self.run_id: None}
        self._ready.set()

    def _crowd(self) -> None:
        if len(self._news) > MAX_RUNS:
            self.tell_to_read_all()
        self._ready.set()


class Notices:
    def __init__(self, end: Callable[[], Unavailable]) -> None:
        """`end` says why a listener that was closed hears nothing more."""
        self._end = end
        self._of_all: set[Listener] = set()
        self._of_one: dict[str, set[Listener]] = {}

    def listen(self, run_id: str | None) -> Listener:
        listener = Listener(run_id, self._leave, self._end)
        self._group(run_id).add(listener)
        return listener

    def tell(self, changes: Mapping[str, Run | None]) -> None:
        """Events alone (no run) concern only those who listen to that run."""
        for run_id, run in changes.items():
            for listener in (*(self._of_all if run is not None else ()), *self._of_one.get(run_id, ())):
                listener.tell(run_id, run)

    def tell_elsewhere(self, run_ids: Collection[str] | None) -> None:
        """Another program changed these runs; None: it is not known which."""
        if run_ids is None:
            for listener in self._everyone():
                listener.tell_to_read_all()
            return
        for run_id in run_ids:
            for listener in (*self._of_all, *self._of_one.get(run_id, ())):
                listener.tell_to_read(run_id)

    def close(self) -> None:
        for listener in self._everyone():
            listener.close()

    def _everyone(self) -> Sequence[Listener]:
        return (*self._of_all, *(listener for group in self._of_one.values() for listener in group))

    def _group(self, run_id: str | None) -> set[Listener]:
        return self._of_all if run_id is None else self._of_one.setdefault(run_id, set())

    def _leave(self, listener: Listener) -> None:
        group = self._group(listener.run_id)
        group.discard(listener)
        if listener.run_id is not None and not group:
            del self._of_one[listener.run_id]
