"""What a new run takes over from another one (`from_run`): a copy of its files.

The source must be a run in which nothing writes: one that is over, or that waits without a process. It is only read. A
turn of the source may still start, or its files may be removed, while they are copied; then the copy is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from askback.core.errors import FULL_DISK, Conflict, Invalid, RefusalCode, Unavailable
from askback.core.runs import Origin, Run, RunState
from askback.files.copies import CopyLimits, CopyRefused, TreeCopy
from askback.process.pools import Checkpoint, Pool
from askback.process.workspace import Workspaces
from askback.store.base import Store


class Inheritance:
    def __init__(self, *, store: Store, workspaces: Workspaces, pool: Pool, config_names: Collection[str]) -> None:
        self._store = store
        self._workspaces = workspaces
        self._pool = pool
        self._config_names = config_names
        """What configures an engine in a working directory; casefolded."""

    async def source(self, origin: Origin) -> Run:
        """The run that is continued. Raises `Conflict` if something may write to its files."""
        if origin.files is None:
            problem = "from_run: names nothing to copy; set files to 'artifacts' or 'workspace'"
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", [problem])
        source = await self._store.get(origin.run_id)
        if not _is_still(source):
            raise _busy(source)
        return source

    async def copy(self, source: Run, origin: Origin, run_id: str, limits: CopyLimits) -> None:
        """Copy what the new run takes over. If this fails, the caller removes the new run's files."""
        try:
            await self._pool.run_abandonable(lambda checkpoint: self._copy(origin, run_id, limits, checkpoint))
        except CopyRefused as error:
            problem = f"from_run.files: {error}"
            raise Invalid(
                RefusalCode.INPUT_INVALID, f"the files of run {source.id} cannot be copied", [problem]
            ) from None
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            raise Unavailable(
                RefusalCode.DISK_FULL, f"the disk is full; the files of run {source.id} were not copied"
            ) from error
        now = await self._store.get(source.id)
        if now.epoch != source.epoch or now.state is RunState.RUNNING:
            message = (
                f"run {source.id} was continued while it was copied; try again when it is over or waits for an answer"
            )
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    def _copy(self, origin: Origin, run_id: str, limits: CopyLimits, checkpoint: Checkpoint) -> None:
        source, target = self._workspaces.of(origin.run_id), self._workspaces.of(run_id)
        _check_complete(origin, source.started)
        target.root.mkdir(parents=True, mode=0o700)
        copying = TreeCopy(target.root, limits, checkpoint)
        if origin.files is not None:
            target.copy_files(source, origin.files, copying, self._config_names)
        copying.sync()
        _check_complete(origin, source.started)


def _is_still(run: Run) -> bool:
    """Whether no process of the run can be alive, and none is about to start."""
    return run.state.final or (run.state is RunState.WAITING_USER and not run.sticky)


def _busy(run: Run) -> Conflict:
    why = "its process is kept while it waits" if run.state is RunState.WAITING_USER else f"it is {run.state}"
    message = (
        f"run {run.id} cannot be continued by another run now: {why}; wait until it is over or waits for an answer"
    )
    return Conflict(RefusalCode.STATE_UNSUITABLE, message)


def _check_complete(origin: Origin, started: bool) -> None:
    if not started:
        message = f"run {origin.run_id} has no files: it never started, or they were removed"
        raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
