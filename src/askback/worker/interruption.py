"""How a turn ends that Askback could not execute: it restarts if that is not its fault, or the run fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from askback.core.errors import ErrorCode, RefusalCode, Unavailable
from askback.core.outcomes import TurnError, engine_failure
from askback.core.runs import Run, TurnKind
from askback.core.signals import Signal, TurnEnded, TurnLost
from askback.worker.fitness import Blame, Fitness
from askback.worker.turn.keeping import FILES_UNAVAILABLE

log = logging.getLogger(__name__)

_REASONS = {
    RefusalCode.DISK_FULL: "the disk was full",
    RefusalCode.STORE_UNUSABLE: "the data folder or the database could not be used",
    RefusalCode.FILES_UNAVAILABLE: FILES_UNAVAILABLE,
    RefusalCode.STORE_READ_ONLY: "the data folder or the database could not be written to",
    RefusalCode.RESOURCE_SHORTAGE: "the machine was short of processes, memory or open files",
}


class Interruptions:
    def __init__(self, fitness: Fitness, clock: Callable[[], datetime]) -> None:
        self._fitness = fitness
        self._clock = clock

    async def of(self, run: Run, fault: BaseException) -> TurnLost | TurnEnded:
        """A turn that the machine has interrupted is restarted. Any other fault ends the run."""
        blame = await self._fitness.blame(run, fault)
        if blame is not None:
            return self._lost(run, blame, str(fault))
        trace = None if isinstance(fault, Unavailable) else fault
        log.error("a turn ended with an internal error: %s", fault, exc_info=trace, extra={"run": run.id})
        message = "Askback could not execute the turn; see the log"
        outcome = engine_failure(ErrorCode.INTERNAL_ERROR, message, detail=f"{type(fault).__name__}: {fault}")
        return TurnEnded(epoch=run.epoch, outcome=outcome, at=self._clock(), kept=run.kept)

    async def checked(self, run: Run, signal: Signal) -> Signal:
        """The end of a turn, unless it has failed because of the machine."""
        if isinstance(signal, TurnLost) and signal.why == FILES_UNAVAILABLE:
            self._fitness.note_file_store()
        if not isinstance(signal, TurnEnded):
            return signal
        resident = run.sticky and run.next_turn.kind is not TurnKind.START
        if isinstance(signal.outcome, TurnError) and not resident:
            error = signal.outcome.error
            if (blame := await self._fitness.blame_for_end(run, error)) is not None:
                return self._lost(run, blame, f"{error.code}: {error.message}")
        self._fitness.note_end(run)
        return signal

    def _lost(self, run: Run, blame: Blame, why: str) -> TurnLost:
        log.error("a turn was interrupted: %s", why, extra={"run": run.id})
        return TurnLost(epoch=run.epoch, at=self._clock(), counted=blame.counted, why=_REASONS[blame.code])
