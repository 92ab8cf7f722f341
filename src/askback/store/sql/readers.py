"""A pool of threads that read, each with its own connection. Both are created on demand."""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from askback.core.errors import Unavailable, shortage

T = TypeVar("T")

THREADS = 4


class Closes(Protocol):
    def close(self) -> object: ...


C = TypeVar("C", bound=Closes)


class Readers(ABC, Generic[C]):
    """`C` is what a thread reads with."""

    def __init__(self, closed: Callable[[], Unavailable]) -> None:
        """`closed` creates the error of a read after `close`."""
        self._refusal = closed
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="askback-store-reader")
        self._local = threading.local()
        self._opened: list[C] = []
        self._closed = False

    @abstractmethod
    def open(self) -> C: ...

    @abstractmethod
    def use(self, opened: C, work: Callable[[Any], T], began: float) -> T:
        """Call `work` with a connection. The caller has waited since `began`, on the monotonic clock."""

    async def read(self, work: Callable[[Any], T]) -> T:
        if self._closed:
            raise self._refusal()
        try:
            answer = asyncio.get_running_loop().run_in_executor(self._pool, self._read, work, time.monotonic())
        except RuntimeError as error:
            # No thread can be started.
            raise shortage(error) from error
        return await answer

    def _read(self, work: Callable[[Any], T], began: float) -> T:
        opened: C | None = getattr(self._local, "opened", None)
        if opened is None:
            opened = self._local.opened = self.open()
            self._opened.append(opened)
        return self.use(opened, work, began)

    async def close(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, wait=True)
        for opened in self._opened:
            await asyncio.to_thread(opened.close)
