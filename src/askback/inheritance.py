"""What a new run takes over from another one (`from_run`): a copy of its files, and of its engine's session.

The source must be a run in which nothing writes: one that is over, or that waits without a process. It is only read. A
turn of the source may still start, or its files may be removed, while they are copied; then the copy is refused.
"""

from __future__ import annotations

from dataclasses import replace

from askback.core.errors import FULL_DISK, Conflict, Invalid, RefusalCode, Unavailable
from askback.core.runs import Origin, Run, RunState, Usage
from askback.engines.base import PortableEngine
from askback.engines.registry import Engines
from askback.files.copies import CopyLimits, CopyRefused, TreeCopy
from askback.process.pools import Checkpoint, Pool
from askback.process.workspace import Workspace, Workspaces
from askback.store.base import Store


class Inheritance:
    def __init__(self, *, store: Store, workspaces: Workspaces, pool: Pool, engines: Engines) -> None:
        self._store = store
        self._workspaces = workspaces
        self._pool = pool
        self._engines = engines

    async def source(self, origin: Origin, engine: str | None = None) -> Run:
        """The run that is continued, on this engine if one is named.

        Raises `Conflict` if something may write to its files.
        """
        if origin.files is None and not origin.session:
            problem = "from_run: names nothing to copy; set files to 'artifacts' or 'workspace', or session to true"
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", [problem])
        source = await self._store.get(origin.run_id)
        if not _is_still(source):
            raise _busy(source)
        if origin.session:
            await self._check_session(source, engine or source.engine)
        return source

    async def _check_session(self, source: Run, engine: str) -> None:
        if engine != source.engine:
            message = f"run {source.id} has a session of engine '{source.engine}'; '{engine}' cannot continue it"
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, message)
        if source.handle is None:
            raise Conflict(RefusalCode.STATE_UNSUITABLE, f"run {source.id} has no session to continue")
        if not isinstance(self._engines.choose(source.engine), PortableEngine):
            message = (
                f"a session of engine '{source.engine}' cannot be continued by another run; copy its files instead"
            )
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, message)
        if any(each.secret and each.answered_by for each in await self._store.interactions(source.id)):
            # Secret answers are erased at the end of a run, so the new run could not mask them.
            message = f"the session of run {source.id} contains a secret answer; copy its files instead"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    def continued(self, run: Run, origin: Origin, source: Run) -> Run:
        """The new run, with the session that it continues."""
        if not origin.session:
            return run
        assert source.handle is not None
        if run.sticky:
            message = f"a run that continues a session must be resumable; {run.profile.reason}"
            raise Invalid(RefusalCode.PROFILE_UNAVAILABLE, message)
        used = (source.usage_before or Usage()) + (source.usage or Usage())
        return run.evolve(handle=replace(source.handle, created_at_turn=0), usage_before=used)

    async def copy(self, source: Run, origin: Origin, run_id: str, limits: CopyLimits) -> None:
        """Copy what the new run takes over. If this fails, the caller removes the new run's files."""
        try:
            await self._pool.run_abandonable(lambda checkpoint: self._copy(source, origin, run_id, limits, checkpoint))
        except CopyRefused as error:
            message = f"the files of run {source.id} cannot be copied"
            raise Invalid(RefusalCode.INPUT_INVALID, message, [f"from_run: {error}"]) from None
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            message = f"the disk is full; the files of run {source.id} were not copied"
            raise Unavailable(RefusalCode.DISK_FULL, message) from error
        now = await self._store.get(source.id)
        if now.epoch != source.epoch or now.state is RunState.RUNNING:
            message = (
                f"run {source.id} was continued while it was copied; try again when it is over or waits for an answer"
            )
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    def _copy(self, run: Run, origin: Origin, run_id: str, limits: CopyLimits, checkpoint: Checkpoint) -> None:
        source, target = self._workspaces.of(run.id), self._workspaces.of(run_id)
        _check_complete(origin, source.started)
        target.root.mkdir(parents=True, mode=0o700)
        copying = TreeCopy(target.root, limits, checkpoint)
        if origin.files is not None:
            target.copy_files(source, origin.files, copying, self._engines.config_names)
        if origin.session:
            target.copy_home(source, copying)
        copying.sync()
        _check_complete(origin, source.started)
        if origin.session:
            self._move_session(run.engine, source, target)

    def _move_session(self, engine_name: str, source: Workspace, target: Workspace) -> None:
        engine = self._engines[engine_name]
        assert isinstance(engine, PortableEngine)
        move = engine.move_session(str(source.cwd), str(target.cwd))
        for old_name, new_name in move.renamed.items():
            target.rename_in_home(old_name, new_name)
        for pattern in move.removed:
            target.remove_in_home(pattern)
        for pattern, (old, new) in move.rewritten.items():
            target.rewrite_in_home(pattern, old, new)


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
