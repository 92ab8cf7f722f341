"""The stored files of a run at the beginning and the end of a turn. While the store cannot be used, the turn waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import Run
from askback.process.stored_artifacts import keep_artifacts
from askback.process.stored_run import uploaded_package_key
from askback.text.outages import OUTAGES
from askback.work.run_control import RunControl
from askback.work.turn.context import TurnContext
from askback.work.turn.shortage import Stopped

log = logging.getLogger(__name__)

_RETRY_SEC = 2.0


async def fetch_files(context: TurnContext, run: Run, control: RunControl) -> None:
    """Fetch what the turn needs and this machine does not have. Raises `Stopped` if the run is stopped meanwhile."""
    if context.workspaces.of(run.id).stored is not None:
        await when_available(context, run, control, "fetched", lambda: _fetch(context, run))


def _fetch(context: TurnContext, run: Run) -> None:
    workspace, library = context.workspaces.of(run.id), context.library
    workspace.fetch_inputs()
    if run.skill.uploaded:
        library.fetch_unpacked(workspace.package, uploaded_package_key(run.id))
    else:
        library.package(run.skill.digest)


async def store_turn(context: TurnContext, run: Run, control: RunControl, turn: str) -> None:
    """Store what every machine needs of a turn that has ended, before its end is stored. Raises `Stopped`."""
    workspace = context.workspaces.of(run.id)
    if workspace.stored is not None:
        await when_available(context, run, control, "stored", lambda: keep_artifacts(workspace, turn))


async def when_available(
    context: TurnContext, run: Run, control: RunControl, done: str, work: Callable[[], None]
) -> None:
    """Do the work in a thread, again and again until the store of files can be used.

    The worker holds the run all the while. Raises `Stopped` if the run is stopped first.
    """
    while True:
        try:
            return await context.pools.turns.run(work)
        except Unavailable as error:
            if error.code is not RefusalCode.FILES_UNAVAILABLE:
                raise
            OUTAGES.failed(log, f"the files of a run cannot be {done}, trying again", error, run=run.id)
        with suppress(TimeoutError):
            await asyncio.wait_for(control.wait(), _RETRY_SEC)
        if control.reason is not None:
            raise Stopped
