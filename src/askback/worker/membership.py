"""This instance among others on the same database: its lease, the duties of the leader, and its end on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from askback.background.loops import keep_trying
from askback.cluster.instances import Instances
from askback.cluster.recovery import Recovery
from askback.core.errors import NotFound, Unavailable, is_outage
from askback.store.base import Store
from askback.worker.worker import Worker

log = logging.getLogger(__name__)

_RETRY_SEC = 1.0

Duty = Callable[[], Coroutine[Any, Any, None]]
"""What is done for all instances, until it is canceled."""


class Membership:
    """`duties` are those of the leader. Two leaders at the same moment do no harm: see each of them."""

    def __init__(self, *, instances: Instances, worker: Worker, recovery: Recovery, duties: Sequence[Duty]) -> None:
        self._instances = instances
        self._worker = worker
        self._recovery = recovery
        self._duties = duties

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_registered())
            if self._duties:
                self._instances.seek_lead()
                group.create_task(self._lead())

    async def _lead(self) -> None:
        while True:
            await self._instances.leads()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(duty()) for duty in self._duties]
                await self._instances.leads_no_more()
                for task in tasks:
                    task.cancel()

    async def _keep_registered(self) -> None:
        while True:
            reason = await self._instances.lost()
            before = self._instances.name
            left = "; its turns are stopped and left to other programs" if self._worker.active else ""
            log.error("the lease of this program is lost: %s%s", reason, left)
            await self._worker.suspend()
            log.warning("%sthis program registers again", "all its engines have ended; " if left else "")
            await self._register()
            await self._take_back(before)
            log.warning("this program works again, as %s", self._instances.name)
            self._worker.resume()

    async def _register(self) -> None:
        async def register() -> bool:
            await self._instances.register(self._instances.facts)
            return True

        await keep_trying(register, log, "this program cannot be registered yet", longest_pause_sec=_RETRY_SEC)

    async def _take_back(self, before: str) -> None:
        try:
            await self._recovery.take_back(before)
        except Exception as error:
            if not is_outage(error):
                raise
            log.error("runs of this program are left to a server: %s", error)


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
