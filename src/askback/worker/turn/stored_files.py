"""The stored files of a run at the beginning and the end of a turn.

While the store cannot be used, the end of a turn waits. Its beginning waits for some seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from askback.background.outages import OUTAGES
from askback.background.pools import Checkpoint
from askback.core.errors import RefusalCode, RunWarning, Unavailable, WarningCode
from askback.core.runs import Run, TurnKind
from askback.worker.run_control import RunControl
from askback.worker.turn import keeping
from askback.worker.turn.context import TurnContext
from askback.worker.turn.keeping import Unreachable
from askback.worker.turn.shortage import Stopped
from askback.workspace.run_objects import uploaded_package_key
from askback.workspace.turn_artifacts import MAX_STORED, store_artifacts

log = logging.getLogger(__name__)

T = TypeVar("T")

_RETRY_SEC = 2.0


async def fetch_files(context: TurnContext, run: Run, control: RunControl) -> None:
    """Fetch what the turn needs and this machine does not have.

    Raises `Unreachable`, or `Stopped` if the run is stopped meanwhile. A turn of a resident process waits, for no other process
    can execute it.
    """
    if context.workspaces.of(run.id).objects is None:
        return
    resident = run.sticky and run.next_turn.kind is not TurnKind.START

    work = partial(context.pools.turns.run, _fetch, context, run)
    await when_available(context, run, control, "fetched", work, gives_up=lambda: not resident)


def _fetch(context: TurnContext, run: Run) -> None:
    workspace, library = context.workspaces.of(run.id), context.library
    workspace.fetch_inputs()
    if run.skill.uploaded:
        library.fetch_unpacked(workspace.package, uploaded_package_key(run.id))
    else:
        library.package(run.skill.digest)


async def store_turn(context: TurnContext, run: Run, control: RunControl, turn: str) -> Sequence[RunWarning]:
    """Store what every machine needs of a turn that has ended, before its end is stored.

    Raises `Stopped`, or `Unreachable` if the program drains and the store cannot be used.
    """
    workspace = context.workspaces.of(run.id)
    if workspace.objects is None:
        return ()
    # More than it may have on a disk can only be holes.
    most = min(context.setups[run.engine].resources.disk_bytes or MAX_STORED, MAX_STORED)

    def keep(checkpoint: Checkpoint) -> int:
        return store_artifacts(workspace, turn, max_bytes=most, checkpoint=checkpoint)

    work = partial(_unless_useless, context, control, keep)
    left_out = await when_available(context, run, control, "stored", work, gives_up=lambda: control.draining)
    return [_too_large(left_out, most)] if left_out else ()


def _too_large(left_out: int, most: int) -> RunWarning:
    message = (
        f"the artifacts have more than {most // 1_000_000:,} MB, with the holes in sparse files, or very long paths; number"
        f" of files that are only on the machine of this turn: {left_out}"
    )
    return RunWarning(code=WarningCode.FILES_NOT_KEPT, message=message)


async def when_available(
    context: TurnContext,
    run: Run,
    control: RunControl,
    done: str,
    work: Callable[[], Awaitable[T]],
    *,
    gives_up: Callable[[], bool],
) -> T:
    """Do the work again and again until the file store can be used.

    The worker holds the run all the while. Raises `Stopped` if the run is stopped first, and `Unreachable` after some seconds
    if it `gives_up`.
    """
    began = time.monotonic()
    while True:
        try:
            return await work()
        except Unavailable as error:
            if error.code is not RefusalCode.FILES_UNAVAILABLE:
                raise
            OUTAGES.failed(log, f"the files of a run cannot be {done}, trying again", error, run=run.id)
            context.machine.files_failed(error.message)
        with suppress(TimeoutError):
            await asyncio.wait_for(control.wait(), _RETRY_SEC)
        if control.reason is not None:
            raise Stopped
        if gives_up() and time.monotonic() - began >= keeping.PATIENCE_SEC:
            raise Unreachable


async def _unless_useless(context: TurnContext, control: RunControl, work: Callable[[Checkpoint], T]) -> T:
    """Do the work in a thread. It can take minutes: if the run is canceled meanwhile, it is abandoned."""
    working = asyncio.create_task(context.pools.storing.run_abandonable(work))
    useless = asyncio.create_task(control.useless())
    try:
        await asyncio.wait({working, useless}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Stopped
        return working.result()
    finally:
        working.cancel()
        useless.cancel()
