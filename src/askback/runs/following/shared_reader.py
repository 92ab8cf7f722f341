"""One background task that reads for all followers. It runs while there are any."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar


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
