"""How the worker tells the executor of a run to stop, and that the run has changed in the store."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from askback.core.runs import Run
from askback.store.turns import Ticket


class StopReason(StrEnum):
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"


class RunControl:
    """A cancel takes precedence over a shutdown."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.run: Run | None = None
        """The run as of the last known change; it may have changed since."""
        self.ticket: Ticket | None = None
        """What the run was taken with, as long as it holds a slot."""
        self._stop = asyncio.Event()
        self._change = asyncio.Event()

    def stop(self, reason: StopReason) -> None:
        if self.reason is not StopReason.CANCEL:
            self.reason = reason
        self._stop.set()
        self._change.set()

    def note_change(self, run: Run) -> None:
        """The run has changed, perhaps through another program."""
        self.run = run
        self._change.set()

    def newest(self, run: Run) -> Run:
        """The run as of the last known change, unless `run` is newer."""
        return self.run if self.run is not None and self.run.version > run.version else run

    async def changed(self) -> None:
        """Wait for a change or a stop since the last call."""
        await self._change.wait()
        self._change.clear()

    async def wait(self) -> None:
        """Wait until the run is to be stopped."""
        await self._stop.wait()
