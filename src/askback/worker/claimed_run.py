"""A run in the hands of one task of the worker, from its claim until the task lets it go.

The task may keep a process without a slot: it is parked then, and the next claim of its run is handed to the task.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum

from askback.core.runs import Run


class StopReason(StrEnum):
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    LEASE_LOST = "lease_lost"
    """This instance counts as dead. Its runs belong to others, so it stores nothing more for them."""


_PRECEDENCE = (StopReason.SHUTDOWN, StopReason.CANCEL, StopReason.LEASE_LOST)


class LeaseLost(Exception):
    """The runs of this instance belong to others."""


class ClaimedRun:
    """How the worker controls the executor of a run: it stops it, and tells it that the run has changed in the store.

    A cancel takes precedence over a shutdown, and a lost lease over everything.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        """As its executor knows it."""
        self.has_slot = True
        """Not while its process is only kept warm."""
        self.parked: Parked | None = None
        self.was_warm = False
        """Its home was saved while it waited, and the run may have ended or gone to another instance since."""
        self.draining = False
        """The instance ends with its last turn: this one should not wait for long."""
        self.stop_reason: StopReason | None = None
        self._changed_run: Run | None = None
        self._stopped = asyncio.Event()
        self._abandoned = asyncio.Event()
        self._changed = asyncio.Event()

    def stop(self, reason: StopReason) -> None:
        if self.stop_reason is None or _PRECEDENCE.index(reason) > _PRECEDENCE.index(self.stop_reason):
            self.stop_reason = reason
        if self.stop_reason is not StopReason.SHUTDOWN:
            self._abandoned.set()
        self._stopped.set()
        self._changed.set()

    @property
    def canceled(self) -> bool:
        return self.stop_reason is StopReason.CANCEL

    def check_lease(self) -> None:
        """Raise `LeaseLost` if this instance may store nothing more for the run."""
        if self.stop_reason is StopReason.LEASE_LOST:
            raise LeaseLost

    def notify_change(self, run: Run) -> None:
        """The run has changed, perhaps through another instance."""
        self._changed_run = run
        self._changed.set()

    @property
    def newest(self) -> Run:
        """The run as of the last known change; it may have changed since."""
        changed = self._changed_run
        return changed if changed is not None and changed.version > self.run.version else self.run

    async def wait_changed(self) -> None:
        """Wait for a change or a stop since the last call."""
        await self._changed.wait()
        self._changed.clear()

    async def wait_stopped(self) -> None:
        await self._stopped.wait()

    async def wait_abandoned(self) -> None:
        """Wait until nobody needs what the turn has made: the run is canceled, or belongs to another instance."""
        await self._abandoned.wait()


class Parked:
    """A warm process. `settled` is set when it is either taken for good (`claimed`) or to be ended.

    `claim` is that of its last turn. `prewarmed`: the engine of a process that has had no run yet, and so no claim.
    """

    def __init__(self, run_id: str, pid: int, *, claim: ClaimedRun | None = None, prewarmed: str | None = None) -> None:
        self.run_id = run_id
        self.pid = pid
        self.claim = claim
        self.prewarmed = prewarmed
        self.reserved = False
        """Whether a run that is being submitted, or is queued, has the id of this prewarmed process."""
        self.memory_bytes = 0
        self.claimed: Run | None = None
        """The run as the worker claimed it: its next turn is executed in this process."""
        self.settled = asyncio.Event()
        self.gone = asyncio.Event()
        """Set when the process has ended, or continues with its run."""

    def resume(self, claimed: Run) -> bool:
        """Continue with the claimed run. False if the process has ended in the meantime."""
        if self.gone.is_set() or self.settled.is_set():
            return False
        self.claimed = claimed
        self.settled.set()
        return True
