"""Following runs: history first, then what comes, none twice and none missed. What is new is read once for all followers.

Nobody's slowness costs more than a page of events: who falls behind reads from the store again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from askback.core.events import Event, EventType
from askback.core.runs import RunState
from askback.store.base import Changes, Store

PAGE = 100
PAGE_BYTES = 128_000
"""So much is kept for a follower that does not read."""
_CATCHING_UP = 2
"""How many pages of history are read at a time: hundreds that come at once are not to take all threads and the loop."""


class Tails:
    """One tail for each run that is being followed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tails: dict[str, _Tail] = {}
        self._catching_up = asyncio.Semaphore(_CATCHING_UP)

    async def follow(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event]]:
        """The run's events behind `after`, as they were read; ends with the run."""
        tail = self._join(run_id)
        try:
            over = (await self._store.get(run_id)).state.final
            while True:
                while events := await self._history(run_id, after):
                    yield events
                    after = events[-1].seq
                    tail.note(events)
                if over:
                    return
                while tail.covers(after):
                    if news := tail.beyond(after):
                        yield news
                        after = news[-1].seq
                    elif tail.over:
                        return
                    else:
                        await tail.news()
        finally:
            self._leave(tail)

    async def _history(self, run_id: str, after: int) -> Sequence[Event]:
        """The next page, in turn with all others who catch up: each gets one page at a time."""
        async with self._catching_up:
            return await self._store.events(run_id, after, PAGE, PAGE_BYTES)

    def _join(self, run_id: str) -> _Tail:
        tail = self._tails.get(run_id)
        if tail is None:
            tail = self._tails[run_id] = _Tail(self._store, run_id)
        tail.followers += 1
        return tail

    def _leave(self, tail: _Tail) -> None:
        tail.followers -= 1
        if not tail.followers:
            tail.close()
            del self._tails[tail.run_id]


class _Tail:
    """What was read last of one run."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.run_id = run_id
        self.followers = 0
        self.seq = 0
        self.over = False
        self._latest: Sequence[Event] = ()
        self._store = store
        self._changes: Changes = store.changes(run_id)
        self._news = asyncio.Event()
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._reading.add_done_callback(self._ended)

    def close(self) -> None:
        self._reading.cancel()
        self._changes.close()

    def note(self, events: Sequence[Event]) -> None:
        """Somebody has read these from the store; if they are news, they are news for all."""
        if events[-1].seq <= self.seq:
            return
        self.seq, self._latest = events[-1].seq, events
        self.over = any(map(_ends_run, events))
        self._wake()

    def covers(self, after: int) -> bool:
        """Whether everything behind `after` that was ever read is still at hand."""
        return after >= self.seq or (bool(self._latest) and self._latest[0].seq <= after + 1)

    def beyond(self, after: int) -> Sequence[Event]:
        """The events at hand behind `after`; none when some before them are not at hand."""
        if not self._latest or not self.covers(after):
            return ()
        return self._latest[max(0, after + 1 - self._latest[0].seq) :]

    async def news(self) -> None:
        """Wait for the next read, or raise what made it impossible."""
        if not self._reading.done():
            await self._news.wait()
        if self._reading.done():
            self._reading.result()

    async def _read(self) -> None:
        while not self.over:
            await self._changes.wait()
            while events := await self._store.events(self.run_id, self.seq, PAGE, PAGE_BYTES):
                self.note(events)
                if not events.more:
                    break

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _ended(self, reading: asyncio.Task[None]) -> None:
        if not reading.cancelled():
            reading.exception()
        self._wake()


def _ends_run(event: Event) -> bool:
    return event.type is EventType.RUN_STATE and RunState(event.data["to"]).final
