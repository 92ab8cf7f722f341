"""What is recorded of the files around a turn: versions of artifacts, names without secrets, and a folder of the user.

A fault is logged: it never fails a turn. A folder of the user is never rolled back: a turn that is repeated finds what its
first attempt left there.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TypeVar

from askback.background.pools import Checkpoint
from askback.core.changes import Changes, NoSummary
from askback.core.errors import RunWarning, WarningCode
from askback.core.runs import Run, Workdir
from askback.fs import beneath
from askback.fs.copies import CopyLimits, CopyRefused
from askback.fs.paths import open_below
from askback.fs.repositories import TooManyFolders
from askback.text.redaction import Redactor
from askback.worker.turn.context import TurnContext
from askback.worker.turn.prepare import PreparedTurn, unavailable
from askback.workspace.artifacts import bounded
from askback.workspace.layout import Workspace
from askback.workspace.versions import LocalArtifacts
from askback.workspace.workdir_record import Comparison, WorkdirRecord
from askback.workspace.workdirs import WorkdirUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

_VERSIONS_SEC = 10.0
"""How long the end of a turn waits for versions and names."""
_COPIES_SEC = 60.0
"""The same for copies of files in a folder of the user."""
_LOOK = "its configuration can name programs that git runs: look at its config before you use git there"
_MAX_NAMED = 5
_START = "start-tree"
_MAX_TREE_BYTES = 100


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
        return await context.pools.turns.run_abandonable(
            lambda checkpoint: work(versions, within(_VERSIONS_SEC, checkpoint))
        )
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


# Names of artifacts.


async def mask_names(context: TurnContext, run: Run, prepared: PreparedTurn) -> None:
    """Change the name of an artifact that contains a secret of the run. Of a folder of the user, only the copies change.

    The output is masked in the same way, so that it still names its files.
    """
    if not prepared.has_secrets:
        return
    workspace, redactor = context.workspaces.of(run.id), prepared.redactor
    try:
        await context.pools.turns.run_abandonable(
            lambda checkpoint: _mask(workspace, redactor, within(_VERSIONS_SEC, checkpoint))
        )
    except Exception as error:
        log.error("names of the run's files cannot be masked: %s", redactor.text(str(error)), extra={"run": run.id})


def _mask(workspace: Workspace, redactor: Redactor, checkpoint: Checkpoint) -> None:
    paths = [each.path for each in bounded(workspace.artifacts(checkpoint))]
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


# A folder of the user.


async def record_start(context: TurnContext, run: Run) -> None:
    """Record the folder as it is before the run changes it. Raises `CannotStart` if it cannot be used."""
    if run.workdir is None:
        return
    record = WorkdirRecord(context.workspaces.of(run.id))
    if await context.pools.turns.run(_begin, context, run, record):
        changes = await _compare_first(context, run, run.workdir)
        await context.pools.turns.run(record.write_changes, changes)


def _begin(context: TurnContext, run: Run, record: WorkdirRecord) -> bool:
    """Whether the changes of the run are still to be compared with something."""
    assert run.workdir is not None
    try:
        path = context.workdirs.prepare(run.workdir)
    except WorkdirUnavailable as problem:
        raise unavailable(problem) from None
    context.workspaces.of(run.id).root.mkdir(parents=True, exist_ok=True, mode=0o700)
    record.record_found(path)
    try:
        record.record_repositories(path)
    except TooManyFolders as problem:
        raise unavailable(WorkdirUnavailable(str(problem))) from None
    return record.changes() is None


async def _compare_first(context: TurnContext, run: Run, workdir: Workdir) -> Changes:
    comparison = _comparison(context, run, workdir)
    reason = await context.pools.turns.run(comparison.prepare)
    if reason is not None:
        return Changes(unavailable=reason)
    tree = await comparison.start_tree()
    if isinstance(tree, NoSummary):
        return Changes(unavailable=tree)
    name = f"{comparison.workspace.comparison.relative_to(comparison.workspace.root).as_posix()}/{_START}"
    await context.pools.turns.run(beneath.write, comparison.workspace.root, name, tree.encode())
    return Changes()


async def record_end(context: TurnContext, run: Run, redactor: Redactor) -> tuple[RunWarning, ...]:
    """Record what the turn left. No process writes, except the resident one of a sticky run. Never fails a turn."""
    if run.workdir is None:
        return ()
    warnings = await new_repositories(context, run, redactor)
    try:
        warnings += await _collect(context, run, run.workdir)
        await _compare(context, run, run.workdir, redactor)
        return warnings
    except Exception as error:
        log.error("what the run left in its workdir cannot be recorded: %s", error, extra={"run": run.id})
        return (*warnings, _not_collected(str(error)))


async def new_repositories(context: TurnContext, run: Run, redactor: Redactor) -> tuple[RunWarning, ...]:
    """A warning if a git repository has appeared in the folder, or if that cannot be said."""
    if run.workdir is None:
        return ()
    workdir = run.workdir
    record = WorkdirRecord(context.workspaces.of(run.id))

    def look(checkpoint: Checkpoint) -> list[str]:
        return record.new_repositories(Path(workdir.path), within(_COPIES_SEC, checkpoint))

    try:
        names = await context.pools.turns.run_abandonable(look)
    except Exception as error:
        log.error("the workdir cannot be searched for git repositories: %s", error, extra={"run": run.id})
        message = f"it is not known whether a git repository has appeared in {workdir.path}: {error}; {_LOOK}"
        return (RunWarning(code=WarningCode.WORKDIR_GIT_CREATED, message=message),)
    if not names:
        return ()
    listed = ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")
    message = f"a git repository has appeared in {workdir.path}, or was replaced ({redactor.text(listed)}); {_LOOK}"
    return (RunWarning(code=WarningCode.WORKDIR_GIT_CREATED, message=message),)


async def _collect(context: TurnContext, run: Run, workdir: Workdir) -> tuple[RunWarning, ...]:
    resources = context.setups[run.engine].resources
    limits = CopyLimits(max_bytes=resources.disk_bytes, reserve_bytes=resources.reserve_bytes)
    record = WorkdirRecord(context.workspaces.of(run.id))

    def collect(checkpoint: Checkpoint) -> None:
        path = context.workdirs.check(workdir)
        record.collect(path, limits, within(_COPIES_SEC, checkpoint))

    try:
        await context.pools.turns.run_abandonable(collect)
    except (CopyRefused, WorkdirUnavailable) as problem:
        return (_not_collected(str(problem)),)
    return ()


def _not_collected(why: str) -> RunWarning:
    message = f"the files in artifacts/ could not be copied to the run: {why}"
    return RunWarning(code=WarningCode.ARTIFACTS_NOT_COLLECTED, message=message)


async def _compare(context: TurnContext, run: Run, workdir: Workdir, redactor: Redactor) -> None:
    comparison = _comparison(context, run, workdir)
    tree = await context.pools.turns.run(_start_tree, comparison.workspace)
    if tree is None:
        return
    changes = await comparison.changes_since(tree)
    masked = tuple(replace(each, path=redactor.text(each.path)) for each in changes.files)
    record = WorkdirRecord(comparison.workspace)
    await context.pools.turns.run(record.write_changes, replace(changes, files=masked))


def _comparison(context: TurnContext, run: Run, workdir: Workdir) -> Comparison:
    return Comparison(
        starter=context.spawner,
        workspace=context.workspaces.of(run.id),
        workdir=Path(workdir.path),
        resources=context.setups[run.engine].resources,
        mark=f"{run.id}-changes",
    )


def _start_tree(workspace: Workspace) -> str | None:
    file = open_below(workspace.comparison, _START)
    if file is None:
        return None
    with file:
        return file.read(_MAX_TREE_BYTES).decode("ascii", "replace")
