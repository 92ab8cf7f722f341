"""Records the artifacts of a run at the end of each turn. A fault is logged: it never fails a turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from askback.core.runs import Run
from askback.process.pools import Checkpoint
from askback.process.versions import Versions
from askback.work.turn.context import TurnContext

log = logging.getLogger(__name__)

MAX_SEC = 10.0
"""How long the end of a turn waits for this."""


async def record_versions(context: TurnContext, run: Run) -> None:
    """Record what the turn has changed. No process writes, except the resident one of a sticky run."""
    await _record(context, run, lambda versions, checkpoint: versions.record(run.attempt_number, checkpoint))


async def record_inherited(context: TurnContext, run: Run) -> None:
    """Record the files that were copied from another run, so that they do not count as changes of the first turn."""
    if run.origin is not None and run.origin.files is not None:
        before = run.attempt_number - 1
        await _record(context, run, lambda versions, checkpoint: versions.record_first(before, checkpoint))


async def _record(context: TurnContext, run: Run, work: Callable[[Versions, Checkpoint], None]) -> None:
    versions = Versions(context.workspaces.of(run.id))
    if versions.is_empty():
        return
    try:
        # One switch of threads for everything that touches the disk.
        await context.pools.turns.run_abandonable(lambda checkpoint: work(versions, within(MAX_SEC, checkpoint)))
    except Exception as error:
        log.error("the versions of the run's files cannot be recorded: %s", error, extra={"run": run.id})


def within(seconds: float, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint that also ends the work after this time."""
    end = time.monotonic() + seconds

    def check() -> None:
        checkpoint()
        if time.monotonic() > end:
            raise TimeoutError(f"it took longer than {seconds:.0f} s")

    return check
