"""Records the artifacts of a run at the end of each turn. A fault is logged: it never fails a turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from askback.background.pools import Checkpoint
from askback.core.runs import Run
from askback.worker.turn.context import TurnContext
from askback.workspace.versions import LocalArtifacts

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_SEC = 10.0
"""How long the end of a turn waits for this."""


async def record_versions(context: TurnContext, run: Run) -> None:
    """Record what the turn has changed, and make it survive a power failure before the end of the turn is stored.

    No process writes, except the resident one of a sticky run.
    """
    if await _record(context, run, lambda versions, checkpoint: versions.record(run.attempt_number, checkpoint)):
        await context.pools.turns.run(context.workspaces.sync, run.id)


async def record_inherited(context: TurnContext, run: Run) -> None:
    """Record the files that were copied from another run, so that they do not count as changes of the first turn."""
    if run.origin is not None and run.origin.files is not None:
        before = run.attempt_number - 1
        await _record(context, run, lambda versions, checkpoint: versions.record_first(before, checkpoint))


async def _record(context: TurnContext, run: Run, work: Callable[[LocalArtifacts, Checkpoint], T]) -> T | bool:
    """Returns what the work returns; True if it fails, and False if there is nothing to do."""
    versions = LocalArtifacts(context.workspaces.of(run.id))
    if versions.is_empty():
        return False
    try:
        # One switch of threads for everything that touches the disk.
        return await context.pools.turns.run_abandonable(lambda checkpoint: work(versions, within(MAX_SEC, checkpoint)))
    except Exception as error:
        log.error("the versions of the run's files cannot be recorded: %s", error, extra={"run": run.id})
        return True


def within(seconds: float, checkpoint: Checkpoint) -> Checkpoint:
    """A checkpoint that also ends the work after this time."""
    end = time.monotonic() + seconds

    def check() -> None:
        checkpoint()
        if time.monotonic() > end:
            raise TimeoutError(f"it took longer than {seconds:.0f} s")

    return check
