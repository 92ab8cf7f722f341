"""How whoever carries a run is told to stop, and that the run has changed in the store."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from askback.core.runs import Run


class StopReason(StrEnum):
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"


class RunControl:
    """How a turn in progress is told to stop. A cancel outranks a shutdown."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.run: Run | None = None
        """As it became last, where that is known; it may have moved since."""
        self._asked = asyncio.Event()
        self._news = asyncio.Event()

    def ask(self, reason: StopReason) -> None:
        if self.reason is not StopReason.CANCEL:
            self.reason = reason
        self._asked.set()
        self._news.set()

    def tell_news(self, run: Run) -> None:
        """The run was changed, perhaps by somebody else."""
        self.run = run
        self._news.set()

    async def news(self) -> None:
        """Until something was told since the last time."""
        await self._news.wait()
        self._news.clear()

    async def wait(self) -> None:
        await self._asked.wait()
