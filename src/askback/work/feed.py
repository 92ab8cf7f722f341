"""The events of a turn on their way to the store: in order, many in one write, and never more than a few in memory."""

from __future__ import annotations

import asyncio

from askback.core.events import NewEvent
from askback.store.base import Store

_MOST_WAITING = 256
_MOST_WAITING_TEXT = 1_000_000


class EventFeed:
    def __init__(self, store: Store, run_id: str, epoch: int) -> None:
        self._store = store
        self._run_id = run_id
        self._epoch = epoch
        self._waiting: list[NewEvent] = []
        self._waiting_text = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._ended = False

    async def put(self, event: NewEvent, size: int = 0) -> None:
        """Take an event with so many characters of text; a turn that talks faster than the store writes is held up here."""
        await self._room.wait()
        if self._ended:
            return
        self._waiting.append(event)
        self._waiting_text += size
        self._news.set()
        if len(self._waiting) >= _MOST_WAITING or self._waiting_text >= _MOST_WAITING_TEXT:
            self._room.clear()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def run(self) -> None:
        """Write until closed and empty. Raises `StaleWrite` when the run is no longer ours."""
        try:
            while not self._closed or self._waiting:
                await self._news.wait()
                self._news.clear()
                events, self._waiting, self._waiting_text = self._waiting, [], 0
                self._room.set()
                if events:
                    await self._store.append(self._run_id, self._epoch, events)
        finally:
            # Nobody takes events any more, however it came: whoever waits for room would wait for ever.
            self._ended = True
            self._room.set()
