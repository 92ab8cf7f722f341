"""This program among others on the same database: what it does when its lease is lost, and what only the leader does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from askback.background.loops import keep_trying
from askback.cluster.instances import Programs
from askback.cluster.recovery import Recovery
from askback.core.errors import is_outage
from askback.worker.worker import Worker

log = logging.getLogger(__name__)

_RETRY_SEC = 1.0

Duty = Callable[[], Coroutine[Any, Any, None]]
"""What is done for all programs, until it is canceled."""


class Membership:
    """`duties` are those of the leader. Two leaders at the same moment do no harm: see each of them."""

    def __init__(self, *, programs: Programs, worker: Worker, recovery: Recovery, duties: Sequence[Duty]) -> None:
        self._programs = programs
        self._worker = worker
        self._recovery = recovery
        self._duties = duties

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_registered())
            if self._duties:
                self._programs.seek_lead()
                group.create_task(self._lead())

    async def _lead(self) -> None:
        while True:
            await self._programs.leads()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(duty()) for duty in self._duties]
                await self._programs.leads_no_more()
                for task in tasks:
                    task.cancel()

    async def _keep_registered(self) -> None:
        while True:
            reason = await self._programs.lost()
            before = self._programs.name
            left = "; its turns are stopped and left to other programs" if self._worker.active else ""
            log.error("the lease of this program is lost: %s%s", reason, left)
            await self._worker.suspend()
            log.warning("%sthis program registers again", "all its engines have ended; " if left else "")
            await self._register()
            await self._take_back(before)
            log.warning("this program works again, as %s", self._programs.name)
            self._worker.resume()

    async def _register(self) -> None:
        async def register() -> bool:
            await self._programs.register(self._programs.facts)
            return True

        await keep_trying(register, log, "this program cannot be registered yet", longest_pause_sec=_RETRY_SEC)

    async def _take_back(self, before: str) -> None:
        try:
            await self._recovery.take_back(before)
        except Exception as error:
            if not is_outage(error):
                raise
            log.error("runs of this program are left to a server: %s", error)
