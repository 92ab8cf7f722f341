"""The health of a server: checked on request, with a short time limit."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from askback.background.outages import OUTAGES
from askback.background.pools import Pools
from askback.blobs import Files
from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import SHARED
from askback.store.base import Store

log = logging.getLogger(__name__)

_TICK_SEC = 0.5
_LAG_WINDOW_SEC = 10.0
_LAG_SEC = 5.0
"""If the event loop was this late within the window, callers have to wait."""
_ANSWER_SEC = 0.5
_CHECK_SEC = 10.0
"""A database that takes longer for a trivial write is not usable."""


_FILES_SEC = 30.0
"""Each check of an object store costs three requests, so callers share one for this long. A failure is checked again at once."""


class _FilesCheck:
    """Whether files can be stored, as of the last check."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._task: asyncio.Task[None] | None = None
        self._checked_at: float | None = None
        self._state = "ok"

    async def state(self) -> str:
        now = asyncio.get_running_loop().time()
        fresh = self._checked_at is not None and now - self._checked_at < _FILES_SEC and self._state == "ok"
        if self._task is None and not fresh:
            self._task = asyncio.create_task(self._check())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_ANSWER_SEC)
        return self._state

    async def _check(self) -> None:
        try:
            await self._files.check()
            self._state = "ok"
            OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, "the file store can be used again")
        except Unavailable as error:
            self._state = error.code
        finally:
            self._checked_at = asyncio.get_running_loop().time()
            self._task = None


class Vitals:
    """Reads and writes the database, measures the event loop, and checks the worker and the thread pools."""

    def __init__(self, *, store: Store, files: Files | None, pools: Pools, clock: Callable[[], datetime]) -> None:
        self.oldest_queued_sec: float | None = None
        self.worker: asyncio.Task[None] | None = None
        self._store = store
        self._pools = pools
        self._clock = clock
        self._check: asyncio.Task[None] | None = None
        self._checked_at = 0.0
        self._database = "ok"
        self._files = None if files is None else _FilesCheck(files)
        self._lags: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Measure the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_SEC
            await asyncio.sleep(_TICK_SEC)
            self._lags.append((loop.time(), loop.time() - due))
            self._drop_old(loop.time())

    def _drop_old(self, now: float) -> None:
        while self._lags and now - self._lags[0][0] > _LAG_WINDOW_SEC:
            self._lags.popleft()

    @property
    def loop_lag_sec(self) -> float:
        """The longest delay of the event loop within the last seconds."""
        self._drop_old(asyncio.get_running_loop().time())
        return max((late for _, late in self._lags), default=0.0)

    @property
    def stuck(self) -> list[str]:
        return self._pools.stuck

    @property
    def worker_alive(self) -> bool:
        return self.worker is None or not self.worker.done()

    async def database(self) -> str:
        """`ok`, or the code of the problem. Concurrent callers share one check."""
        loop = asyncio.get_running_loop()
        if self._check is None:
            self._checked_at = loop.time()
            self._check = loop.create_task(self._check_database())
            self._check.add_done_callback(self._finish_check)
        await asyncio.wait({self._check}, timeout=_ANSWER_SEC)
        if self._check is not None and loop.time() - self._checked_at > _CHECK_SEC:
            return RefusalCode.STORE_UNUSABLE
        return self._database

    async def files(self) -> str | None:
        """`ok`, or the code of the problem; None if the program has no file store."""
        return None if self._files is None else await self._files.state()

    def _finish_check(self, task: asyncio.Task[None]) -> None:
        self._check = None
        with suppress(asyncio.CancelledError):
            task.result()

    async def _check_database(self) -> None:
        try:
            waiting = await self._store.longest_queued({SHARED})
            await self._store.ping()
        except Unavailable as error:
            # This is public, and the message names files on this machine.
            self._database = error.code
            return
        self._database = "ok"
        oldest = None if waiting is None else (self._clock() - waiting.updated_at).total_seconds()
        self.oldest_queued_sec = None if oldest is None else max(0.0, oldest)

    @property
    def lagging(self) -> bool:
        return self.loop_lag_sec > _LAG_SEC
