"""Starting the engine of a turn, and leaving nothing of it behind."""

from __future__ import annotations

import asyncio
import logging

from askback.core.errors import ErrorCode, RunWarning, WarningCode, is_temporary
from askback.core.outcomes import engine_failure
from askback.core.runs import Run
from askback.process import tree
from askback.process.child import Child, NotStarted, Pipe, SpawnRequest
from askback.process.locks import FileLock
from askback.process.workspace import Workspace
from askback.work.turn.prepare import PreparedTurn, TurnContext
from askback.work.turn.shortage import CannotStart

log = logging.getLogger(__name__)

GRACE_SEC = 3.0
"""How long an engine that is asked to end may take before it is killed."""


async def take_lock(run: Run, workspace: Workspace) -> FileLock:
    """Nothing of an earlier try may live when a turn starts; what does is ended."""
    while (lock := FileLock.take(workspace.lock_path)) is None:
        log.warning("ending what is left of an earlier turn", extra={"run": run.id})
        await tree.Tree(mark=run.id, root=run.process, lock=workspace.lock_path).end(grace_sec=0)
        await asyncio.sleep(0.05)
    return lock


async def start_engine(
    bench: TurnContext, run: Run, prepared: PreparedTurn, lock: FileLock, stdin: bytes | Pipe
) -> Child:
    workspace, launch = prepared.workspace, prepared.launch
    private = {
        "HOME": str(workspace.home),
        "TMPDIR": str(workspace.tmp),
        "PWD": str(workspace.cwd),
        tree.MARK: run.id,
    }
    try:
        return await bench.spawner.start(
            SpawnRequest(
                argv=launch.argv,
                env={**prepared.setup.env, **private, **launch.env},
                cwd=workspace.cwd,
                stdin=stdin,
                limits=bench.limits,
                keep_fds=(lock.fd,),
                writable=(workspace.cwd, workspace.home, workspace.tmp),
                readable=prepared.setup.files,
                resources=prepared.setup.resources,
                network=prepared.setup.network,
            )
        )
    except NotStarted as error:
        if is_temporary(error):
            raise
        raise CannotStart(engine_failure(ErrorCode.ENGINE_NOT_FOUND, str(error))) from error


async def end_surely(child: Child, run: Run, lock: FileLock) -> None:
    """Leave nothing of the tree alive. A child that ended by itself is only looked after if something is left."""
    if child.gone and not lock.outlived():
        return
    while not await child.end(run.id, grace_sec=GRACE_SEC, lock=lock.path):
        log.error("an engine's processes cannot be ended, trying again", extra={"run": run.id})


async def return_sign_in(run: Run, prepared: PreparedTurn) -> tuple[RunWarning, ...]:
    """End the turn's loan, once nothing of the engine lives.

    A sign-in that cannot be kept where it came from, be it read-only there, does not undo what the turn has done.
    """
    if prepared.loan is None:
        return ()
    try:
        returned = await asyncio.to_thread(prepared.loan.end)
    except OSError as error:
        log.error("a renewed sign-in cannot be taken back; sign in again if it is asked for: %s", error)
        return ()
    if returned.renewed:
        log.info("a renewed sign-in was taken back: %s", ", ".join(returned.renewed), extra={"run": run.id})
    if returned.refused is None:
        return ()
    log.warning("a changed sign-in was refused: %s", returned.refused, extra={"run": run.id})
    message = (
        f"the engine changed its sign-in in a way that is not accepted; nothing was taken back ({returned.refused})"
    )
    return (RunWarning(code=WarningCode.SIGN_IN_CHANGE_REFUSED, message=message),)
