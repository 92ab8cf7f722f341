"""The end of a worker on request: it starts no more turns, and waits for those in progress for a limited time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from askback.core.errors import NotFound, Unavailable
from askback.store.base import Store
from askback.worker.worker import Worker

log = logging.getLogger(__name__)


class Draining:
    def __init__(self, worker: Worker, store: Store, *, max_sec: float) -> None:
        self._worker = worker
        self._store = store
        self._max_sec = max_sec
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Begin to drain. The second request puts the turns in progress back into the queue at once."""
        if self._requested.is_set():
            self._worker.stop()
        self._requested.set()
        self._worker.drain()

    async def wait(self) -> None:
        """Wait for a request, then until the worker has ended. What is not over in time goes back to the queue, uncounted."""
        await self._requested.wait()
        active = self._worker.active
        log.info("draining: %d runs in progress, for at most %g s", len(active), self._max_sec)
        try:
            async with asyncio.timeout(self._max_sec):
                await self._name_sticky_runs()
                await self._worker.ended.wait()
        except TimeoutError:
            log.warning(
                "turns that did not end in time go back to the queue: %s", ", ".join(sorted(self._worker.active))
            )
            self._worker.stop()
            await self._worker.ended.wait()

    async def _name_sticky_runs(self) -> None:
        """No other worker can continue a resident process."""
        for run_id in sorted(self._worker.active):
            with suppress(NotFound, Unavailable):
                run = await self._store.get(run_id)
                if run.sticky:
                    message = "a sticky run fails unless it is answered and over within %g s"
                    log.warning(message, self._max_sec, extra={"run": run_id})
