"""Warm waits: what a worker does with the process of a resumable run between two turns.

The run is stored as if it had no process: it waits, without a worker. The task of its last turn keeps the process until
the run is claimed again by the same worker, or the pool drops it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from askback.core.runs import Run, RunState, TurnKind
from askback.process.warm import DropReason, Parked
from askback.worker.run_control import RunControl
from askback.worker.turn.context import TurnContext
from askback.worker.turn.execute import RunExecutor
from askback.worker.turn.prepare import warm_sec

log = logging.getLogger(__name__)

_SETTLING_SEC = 0.1


@dataclass(slots=True, kw_only=True, eq=False)
class Held:
    """A run in the hands of one task of the worker."""

    run: Run
    control: RunControl
    has_slot: bool = True
    """Not while its process is only kept warm."""
    parked: Parked | None = None
    was_warm: bool = False
    """Its home was saved while it waited, and the run may have ended or gone to another program since."""


class WarmWaits:
    """The pool, with what the worker knows of each parked process."""

    def __init__(self, context: TurnContext, *, name: Callable[[], str], owners: Collection[str]) -> None:
        """`name` returns the name of this program."""
        self.pool = context.warm
        self._context = context
        self._name = name
        self._owners = owners
        self._controls: dict[Parked, RunControl] = {}

    def control(self, parked: Parked) -> RunControl:
        """Who controls the executor that keeps this process."""
        return self._controls.get(parked) or RunControl()

    async def prepare(self, run: Run) -> None:
        """Before a turn in a new process: what is left of a warm one ends first, and there must be room."""
        if run.next_turn.kind is TurnKind.REPLY and self._is_on(run):
            self.pool.misses += 1
        await self.pool.drop(run.id)
        await self.pool.make_room()

    def _is_on(self, run: Run) -> bool:
        return self.pool.on and not run.sticky and warm_sec(self._context, run) > 0

    def park(self, held: Held, executor: RunExecutor) -> bool:
        """Put the process of a waiting run into the pool, if it can be kept."""
        run, pid = held.run, executor.warm_pid
        if run.state is not RunState.WAITING_USER or pid is None:
            return False
        held.parked = self.pool.park(run.id, pid)
        if held.parked is None:
            return False
        self._controls[held.parked] = held.control
        held.was_warm = True
        return True

    async def wait(self, held: Held, executor: RunExecutor) -> bool:
        """Keep a parked process. True once its run has been claimed for another turn; False if it is to be ended."""
        parked = held.parked
        assert parked is not None
        try:
            # Files that have just been written cannot be distinguished from files that change now: see `snapshot`.
            if not await executor.idle(parked.settled, _SETTLING_SEC):
                await executor.save_home(held.run)
                await self.pool.measure(parked)
                self.pool.trim()
        except Exception as error:
            log.warning("a process is not kept: %s", error, extra={"run": held.run.id})
            self.pool.give_up(parked, DropReason.LOST)
        if not await executor.idle(parked.settled, warm_sec(self._context, held.run)):
            if self.pool.holds(parked):
                self.pool.give_up(parked, DropReason.EXPIRED if executor.is_usable else DropReason.LOST)
            # Taken, but not claimed yet: the worker decides.
            await parked.settled.wait()
        if parked.claimed is None:
            return False
        self.pool.hits += 1
        self.leave(held)
        return True

    def leave(self, held: Held) -> None:
        """The process has ended, or continues with the run as it was claimed."""
        parked, held.parked = held.parked, None
        if parked is None:
            return
        if parked.claimed is not None:
            held.run, held.has_slot = parked.claimed, True
        self._controls.pop(parked, None)
        self.pool.ended(parked)

    def note_change(self, run: Run) -> None:
        """The run has changed, perhaps through another program."""
        parked = self.pool.find(run.id)
        taken = run.worker is not None and run.worker != self._name()
        lost = run.state.final or taken or run.owner not in self._owners
        if parked is not None and lost:
            self.pool.give_up(parked, DropReason.RUN)
