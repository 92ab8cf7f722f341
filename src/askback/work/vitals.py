"""Whether a server can do what it is there for: tried when somebody asks, and never waited for long."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import SHARED
from askback.process.pools import Pools
from askback.store.base import Store

_TICK_SEC = 0.5
_LAG_WINDOW_SEC = 10.0
_LAG_SEC = 5.0
"""A loop that was this late within the window leaves callers waiting."""
_ANSWER_SEC = 0.5
_TRY_SEC = 10.0
"""A database that takes longer for next to nothing is not usable."""


class Vitals:
    """The database is read and written, the loop is timed, the worker and the pools are looked at."""

    def __init__(self, *, store: Store, pools: Pools, clock: Callable[[], datetime]) -> None:
        self.oldest_queued_sec: float | None = None
        self.worker: asyncio.Task[None] | None = None
        self._store = store
        self._pools = pools
        self._clock = clock
        self._trying: asyncio.Task[None] | None = None
        self._tried_at = 0.0
        self._database = "ok"
        self._lags: deque[tuple[float, float]] = deque()

    async def run(self) -> None:
        """Time the loop."""
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
        """The longest that the loop was late within the last seconds."""
        self._drop_old(asyncio.get_running_loop().time())
        return max((late for _, late in self._lags), default=0.0)

    @property
    def stuck(self) -> list[str]:
        return self._pools.stuck

    @property
    def worker_alive(self) -> bool:
        return self.worker is None or not self.worker.done()

    async def database(self) -> str:
        """`ok`, or the code of what is wrong. All who ask at once share one try."""
        loop = asyncio.get_running_loop()
        if self._trying is None:
            self._tried_at = loop.time()
            self._trying = loop.create_task(self._try())
            self._trying.add_done_callback(self._tried)
        await asyncio.wait({self._trying}, timeout=_ANSWER_SEC)
        if self._trying is not None and loop.time() - self._tried_at > _TRY_SEC:
            return RefusalCode.STORE_UNUSABLE
        return self._database

    def _tried(self, task: asyncio.Task[None]) -> None:
        self._trying = None
        with suppress(asyncio.CancelledError):
            task.result()

    async def _try(self) -> None:
        try:
            waiting = await self._store.queued({SHARED}, without_engines=(), limit=1)
            await self._store.write_nothing()
        except Unavailable as error:
            # Anybody may read this: the message names files of this machine.
            self._database = error.code
            return
        self._database = "ok"
        oldest = (self._clock() - waiting[0].updated_at).total_seconds() if waiting else None
        self.oldest_queued_sec = None if oldest is None else max(0.0, oldest)

    @property
    def lagging(self) -> bool:
        return self.loop_lag_sec > _LAG_SEC
