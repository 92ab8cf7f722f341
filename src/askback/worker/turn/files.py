"""The run's files around a turn, with the setting `files`: fetched before it, and stored before its end is.

While the file store cannot be used, the end of a turn waits. Its beginning waits for some seconds; then the turn goes back to
the queue, for another machine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from askback.background.loops import retry
from askback.background.outages import OUTAGES
from askback.background.pools import Checkpoint
from askback.core.errors import ErrorCode, RefusalCode, RunWarning, Unavailable, WarningCode
from askback.core.outcomes import engine_failure
from askback.core.runs import Run
from askback.core.signals import ProcessLost, ProcessTreeEnded, TurnEnded
from askback.fs.archive_writer import TreeChangedWhilePacking
from askback.worker.claimed_run import ClaimedRun
from askback.worker.machine import FILES_WORK
from askback.worker.turn.context import CannotStart, Stopped, TurnContext, pause
from askback.worker.turn.process import take_lock
from askback.workspace import turn_artifacts
from askback.workspace.archives import ArchiveMissing, NotArchived
from askback.workspace.run_objects import uploaded_package_key
from askback.workspace.turn_artifacts import MAX_STORED

log = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=TurnEnded | ProcessTreeEnded | ProcessLost)

PATIENCE_SEC = 5.0
"""How long the start of a turn waits for the file store before the run goes back to the queue, and its end if the instance drains."""
_RETRY_SEC = 1.0


class SessionGone(CannotStart):
    """The archive of the run's files is gone. A new session may start without it."""


class Unreachable(Exception):
    """The file store could not be used for a while."""


async def when_available(
    context: TurnContext,
    run: Run,
    claim: ClaimedRun,
    done: str,
    work: Callable[[], Awaitable[T]],
    *,
    gives_up: Callable[[], bool],
    any_outage: bool = False,
) -> T:
    """Do the work again and again until the file store can be used. The worker holds the run all the while.

    `any_outage`: also while something else cannot be used, such as a full disk. Raises `Stopped` if the run is stopped
    first, and `Unreachable` after some seconds if it `gives_up`.
    """
    began, failed = time.monotonic(), False

    def retries(error: Exception) -> bool:
        nonlocal failed
        if not isinstance(error, Unavailable):
            return False
        is_store = error.code is RefusalCode.FILES_UNAVAILABLE
        if is_store or any_outage:
            OUTAGES.failed(log, f"the files of a run cannot be {done}, trying again", error, run=run.id)
        if is_store:
            failed = True
            context.machine.files_failed(error.message)
        return is_store or any_outage

    async def wait() -> None:
        await pause(claim, _RETRY_SEC)
        if gives_up() and time.monotonic() - began >= PATIENCE_SEC:
            raise Unreachable

    result = await retry(work, retries=retries, pause=wait)
    # Without a failure, perhaps nothing was needed from the store, which says nothing about it.
    if failed:
        OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
    return result


# Before a turn.


async def restore(context: TurnContext, run: Run, claim: ClaimedRun) -> None:
    """Make the run's folder what its last turn left, for a turn in a new process.

    Raises `SessionGone`, `Stopped` or `Unreachable`.
    """
    if context.archives is None:
        return
    lock = await take_lock(run, context.workspaces.of(run.id), claim)
    try:
        restoring = partial(context.archives.restore, run)
        await when_available(context, run, claim, "restored", restoring, gives_up=lambda: True, any_outage=True)
    except ArchiveMissing as problem:
        message = f"the run's files, with the engine's session, are no longer stored: {problem}"
        raise SessionGone(engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)) from None
    finally:
        lock.release()


async def continue_live(context: TurnContext, run: Run) -> None:
    """Before a turn in a process that is alive: its folder is what it is."""
    if context.archives is not None:
        await context.archives.continue_live(run)


async def fetch(context: TurnContext, run: Run, claim: ClaimedRun) -> None:
    """Fetch what else the turn needs and this machine does not have: inputs, files of an answer, the skill.

    Raises `Unreachable` or `Stopped`. A turn of a sticky run waits: no other process can execute it.
    """
    workspace, library = context.workspaces.of(run.id), context.library
    if workspace.objects is None:
        return

    def work() -> None:
        workspace.fetch_inputs()
        if run.skill.uploaded:
            library.fetch_unpacked(workspace.package, uploaded_package_key(run.id))
        else:
            library.package(run.skill.digest)

    in_thread = partial(context.pools.turns.run, work)
    await when_available(context, run, claim, "fetched", in_thread, gives_up=lambda: not run.bound_to_process)


# After a turn.


async def store_artifacts(context: TurnContext, run: Run, claim: ClaimedRun, turn: str) -> Sequence[RunWarning]:
    """Store the artifacts and the raw output of a turn that has ended.

    Raises `Stopped`, or `Unreachable` if the instance drains and the store cannot be used.
    """
    workspace = context.workspaces.of(run.id)
    if workspace.objects is None:
        return ()
    # Artifacts over the disk limit can only be sparse files.
    most = min(context.setups[run.engine].resources.disk_bytes or MAX_STORED, MAX_STORED)

    def upload(checkpoint: Checkpoint) -> int:
        return turn_artifacts.store_artifacts(workspace, turn, max_bytes=most, checkpoint=checkpoint)

    work = partial(_unless_abandoned, context, claim, upload)
    left_out = await when_available(context, run, claim, "stored", work, gives_up=lambda: claim.draining)
    if not left_out:
        return ()
    message = (
        f"the artifacts have more than {most // 1_000_000:,} MB, with the holes in sparse files, or very long paths; number"
        f" of files that are only on the machine of this turn: {left_out}"
    )
    return (RunWarning(code=WarningCode.FILES_NOT_KEPT, message=message),)


async def _unless_abandoned(context: TurnContext, claim: ClaimedRun, work: Callable[[Checkpoint], T]) -> T:
    """Do the work in a thread. It can take minutes: if the run is canceled meanwhile, it is abandoned."""
    working = asyncio.create_task(context.pools.storing.run_abandonable(work))
    abandoned = asyncio.create_task(claim.wait_abandoned())
    try:
        await asyncio.wait({working, abandoned}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Stopped
        return working.result()
    finally:
        working.cancel()
        abandoned.cancel()


async def store_archive(
    context: TurnContext,
    run: Run,
    signal: S,
    claim: ClaimedRun,
    *,
    over: bool,
    end_process: Callable[[], Awaitable[None]],
) -> S:
    """Store home and workspace as the turn left them, and return the signal with the key of the archive.

    Waits for as long as the file store cannot be used. Raises `Stopped`, or `Unreachable` if the instance drains.
    """
    archives, alive = context.archives, True
    if archives is None:
        return signal
    caches = context.engines[run.engine].all_caches

    async def store() -> S:
        nonlocal alive
        try:
            key = await archives.save(run, caches, over=over, alive=alive)
        except TreeChangedWhilePacking as problem:
            log.info("a process is not kept: %s", problem, extra={"run": run.id})
            await end_process()
            alive = False
            return await store()
        except NotArchived as problem:
            warning = RunWarning(code=WarningCode.FILES_NOT_KEPT, message=str(problem))
            return replace(signal, archive_key=problem.key, warnings=(*signal.warnings, warning))
        OUTAGES.over(log, RefusalCode.FILES_UNAVAILABLE, FILES_WORK)
        return replace(signal, archive_key=key)

    try:
        return await when_available(
            context, run, claim, "stored", store, gives_up=lambda: claim.draining, any_outage=True
        )
    except Stopped:
        if not claim.canceled:
            raise
        return replace(signal, archive_key=run.kept)
