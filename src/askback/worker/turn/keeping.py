"""The run's files around a turn: restored before it, if they are not on this machine, and stored after it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from askback.background.outages import OUTAGES
from askback.cluster.file_store import ONLY_HERE
from askback.core.errors import ErrorCode, RefusalCode, RunWarning, Unavailable, WarningCode
from askback.core.outcomes import engine_failure
from askback.core.runs import Run
from askback.core.signals import ProcessLost, ProcessTreeEnded, TurnEnded, TurnLost
from askback.fs.archive_writer import TreeChangedWhilePacking
from askback.worker.machine import FILES_WORK, REASONS
from askback.worker.run_control import RunControl, StopReason
from askback.worker.turn.context import TurnContext
from askback.worker.turn.process import take_lock
from askback.worker.turn.shortage import CannotStart
from askback.workspace.archives import ArchiveMissing, NotArchived, RunArchives

log = logging.getLogger(__name__)

S = TypeVar("S", bound=TurnEnded | ProcessTreeEnded | ProcessLost)

PATIENCE_SEC = 5.0
"""How long the start of a turn waits for the file store before the run goes back to the queue, and its end if the program drains."""
_RETRY_SEC = 1.0


class SessionGone(CannotStart):
    """The archive of the run's files is gone. A new session may start without it."""


class Unreachable(Exception):
    """The file store could not be used for a while, or the turn was stopped meanwhile."""


async def begin(context: TurnContext, run: Run, control: RunControl) -> None:
    """Before a turn in a new process. Raises `SessionGone`, `Stopped` or `Unreachable`."""
    if context.archives is None:
        return
    await context.early_saves.finish(run.id)
    lock = await take_lock(run, context.workspaces.of(run.id), control)
    try:
        await _restore(context, context.archives, run, control)
    except ArchiveMissing as problem:
        message = f"the run's files, with the engine's session, are no longer stored: {problem}"
        raise SessionGone(engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)) from None
    finally:
        lock.release()


async def _restore(context: TurnContext, archives: RunArchives, run: Run, control: RunControl) -> None:
    deadline, failed = time.monotonic() + PATIENCE_SEC, False
    while True:
        try:
            await archives.restore(run)
        except Unavailable as error:
            OUTAGES.failed(log, "the files of a run cannot be restored", error, run=run.id)
            if error.code is RefusalCode.FILES_UNAVAILABLE:
                failed = True
                context.machine.files_failed(error.message)
        else:
            # Most turns need nothing from the store here, which says nothing about it.
            if failed:
                OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
            return
        await _pause(control)
        if control.reason is not None or time.monotonic() >= deadline:
            raise Unreachable


async def continue_live(context: TurnContext, run: Run) -> None:
    """Before a turn in a process that is alive."""
    if context.archives is not None:
        await context.archives.continue_live(run)


async def keep(
    context: TurnContext,
    run: Run,
    signal: S,
    control: RunControl,
    *,
    over: bool,
    end_process: Callable[[], Awaitable[None]],
) -> S | TurnLost:
    """Store what the turn left, before its end is stored. Waits for as long as the file store cannot be used.

    Returns the signal with the archive. If the program stops or drains meanwhile, the turn is lost: another one repeats it.
    """
    if context.archives is None:
        return signal
    caches, alive = context.engines[run.engine].all_caches, True
    began = time.monotonic()
    while True:
        try:
            kept = await context.archives.save(run, caches, over=over, alive=alive)
            OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
            return replace(signal, kept=kept)
        except TreeChangedWhilePacking as problem:
            log.info("a process is not kept: %s", problem, extra={"run": run.id})
            await end_process()
            alive = False
        except NotArchived as problem:
            warning = RunWarning(code=WarningCode.FILES_NOT_KEPT, message=f"{ONLY_HERE}: {problem}")
            return replace(signal, kept=problem.key, warnings=(*signal.warnings, warning))
        except Unavailable as error:
            OUTAGES.failed(log, "the files of a run cannot be stored, trying again", error, run=run.id)
            if error.code is RefusalCode.FILES_UNAVAILABLE:
                context.machine.files_failed(error.message)
            await _pause(control)
            if control.reason is StopReason.CANCEL:
                return replace(signal, kept=run.kept)
            if control.reason is not None or (control.draining and time.monotonic() - began >= PATIENCE_SEC):
                await end_process()
                return TurnLost(
                    epoch=run.epoch, at=context.clock(), counted=False, why=REASONS[RefusalCode.FILES_UNAVAILABLE]
                )


async def _pause(control: RunControl) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_RETRY_SEC):
            await control.wait()
