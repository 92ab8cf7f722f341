"""Names of artifacts at the end of a turn: a name that contains a secret of the run is changed.

The output is masked in the same way, so that it still names its files. A fault is logged: it never fails a turn.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection
from pathlib import PurePosixPath

from askback.background.pools import Checkpoint
from askback.core.runs import Run
from askback.text.redaction import Redactor
from askback.worker.turn.context import TurnContext
from askback.worker.turn.prepare import PreparedTurn
from askback.worker.turn.versions import MAX_SEC, within
from askback.workspace.artifacts import MAX_LISTED
from askback.workspace.layout import Workspace

log = logging.getLogger(__name__)


async def mask_names(context: TurnContext, run: Run, prepared: PreparedTurn) -> None:
    """Only for runs that have secrets. A folder of the user keeps its names."""
    if run.workdir is not None or not prepared.has_secrets:
        return
    workspace, redactor = context.workspaces.of(run.id), prepared.redactor
    try:
        await context.pools.turns.run_abandonable(
            lambda checkpoint: _mask(workspace, redactor, within(MAX_SEC, checkpoint))
        )
    except Exception as error:
        log.error("names of the run's files cannot be masked: %s", redactor.text(str(error)), extra={"run": run.id})


def _mask(workspace: Workspace, redactor: Redactor, checkpoint: Checkpoint) -> None:
    paths = [each.path for each in itertools.islice(workspace.artifacts(checkpoint), MAX_LISTED)]
    taken = set(paths)
    for path in paths:
        if (masked := redactor.text(path)) != path:
            free = _free(masked, taken)
            workspace.rename_artifact(path, free)
            taken.add(free)


def _free(path: str, taken: Collection[str]) -> str:
    """The path, with a number in its name if another file has it."""
    wanted = PurePosixPath(path)
    numbered = (str(wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}")) for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if each not in taken)
