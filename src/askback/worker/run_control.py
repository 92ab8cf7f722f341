"""How the worker tells the executor of a run to stop, and that the run has changed in the store."""

from __future__ import annotations

import asyncio
from enum import StrEnum

from askback.core.runs import Run
from askback.store.turns import Ticket


class StopReason(StrEnum):
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    """This program counts as dead. Its runs belong to others, so it stores nothing more for them."""


_PRECEDENCE = (StopReason.SHUTDOWN, StopReason.CANCEL, StopReason.LEASE_LOST)


class LeaseLost(Exception):
    """The runs of this program belong to others."""


class RunControl:
    """A cancel takes precedence over a shutdown, and a lost lease over everything."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.run: Run | None = None
        """The run as of the last known change; it may have changed since."""
        self.ticket: Ticket | None = None
        """What the run was taken with, as long as it holds a slot."""
        self.draining = False
        """The program ends with its last turn: this one should not wait for long."""
        self._stop = asyncio.Event()
        self._useless = asyncio.Event()
        self._change = asyncio.Event()

    def stop(self, reason: StopReason) -> None:
        if self.reason is None or _PRECEDENCE.index(reason) > _PRECEDENCE.index(self.reason):
            self.reason = reason
        if self.reason is not StopReason.SHUTDOWN:
            self._useless.set()
        self._stop.set()
        self._change.set()

    def check_lease(self) -> None:
        """Raise `LeaseLost` if this program may store nothing more for the run."""
        if self.reason is StopReason.LEASE_LOST:
            raise LeaseLost

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

    async def useless(self) -> None:
        """Wait until nobody needs what the turn has made: the run is canceled, or belongs to another program."""
        await self._useless.wait()
