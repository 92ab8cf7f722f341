"""What a new run takes over from another one (`from_run`): its files, its engine's session, one of its questions.

The source must be a run in which nothing writes: one that is over, or that waits without a process. It is only read. A
turn of the source may still start, or its files may be removed, while they are copied; then the copy is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from askback.background.pools import Checkpoint, Pool
from askback.core import lifecycle
from askback.core.errors import FULL_DISK, Conflict, Invalid, NotFound, RefusalCode, Unavailable
from askback.core.events import EventType
from askback.core.interactions import Interaction
from askback.core.lifecycle import Decision
from askback.core.runs import Mode, Origin, Run, RunState, Usage, Workdir
from askback.engines.registry import Engines
from askback.fs.copies import CopyLimits, CopyRefused, SourceChanged, TreeCopy
from askback.process import locks
from askback.process.tree import Tree
from askback.store.visible import RunStore
from askback.workspace.archives import ArchiveMissing, RunArchives
from askback.workspace.layout import Workspace
from askback.workspace.workspaces import Workspaces

_TRIES = 40
_TRY_SEC = 0.05
"""A process that this program has just parked can be dropped a moment later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuable:
    """What can be continued of a run now: its session, and from which of its closed questions on."""

    session: bool = False
    questions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Checks what a new run continues, and copies it."""

    store: RunStore
    workspaces: Workspaces
    pool: Pool
    engines: Engines
    drop_warm: Callable[[str], Awaitable[None]]
    archives: RunArchives | None = None

    async def source(self, origin: Origin, engine: str | None = None, *, answered: bool = False) -> Run:
        """The run that is continued, on this engine if one is named. `answered`: with an answer to its question.

        Raises `Conflict` if something may write to its files.
        """
        if problems := _incomplete(origin, answered=answered):
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", problems)
        source = await self.store.get(origin.run_id)
        if not _is_still(source):
            raise _busy(source)
        if origin.session:
            await self._check_session(source, origin, engine or source.engine)
        return source

    async def _check_session(self, source: Run, origin: Origin, engine: str) -> None:
        if engine != source.engine:
            message = f"run {source.id} has a session of engine '{source.engine}'; '{engine}' cannot continue it"
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, message)
        if source.handle is None:
            raise Conflict(RefusalCode.STATE_UNSUITABLE, f"run {source.id} has no session to continue")
        if not self.engines.choose(source.engine).moves_sessions:
            message = (
                f"a session of engine '{source.engine}' cannot be continued by another run; copy its files instead"
            )
            raise Invalid(RefusalCode.ENGINE_UNSUITABLE, message)
        if source.env_names:
            message = f"the session of run {source.id} may contain secret variables; copy its files instead"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
        asked = await self.store.interactions(source.id)
        earlier = asked if origin.at is None else asked[: asked.index(_question(asked, origin))]
        if any(each.asks_secrets and each.answered_by for each in earlier):
            # Secret answers are erased at the end of a run, so the new run could not mask them.
            message = f"the session of run {source.id} contains a secret answer; copy its files instead"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    async def continuable(self, run: Run) -> Continuable:
        """What a new run could take over of this one's session. Only its request says for certain."""
        engine = self.engines.get(run.engine)
        portable = engine is not None and engine.moves_sessions
        if not _is_still(run) or run.handle is None or run.env_names or not portable:
            return Continuable()
        points = await self._fork_points(run)
        if points is None:
            return Continuable()
        asked, questions = await self.store.interactions(run.id), []
        for each in asked:
            in_session = each.attempt_number >= run.handle.created_at_turn
            saved = each.attempt_number == run.attempt_number or each.attempt_number + 1 in points
            if each.answered_by is not None and in_session and saved:
                questions.append(each.interaction_id)
            if each.asks_secrets and each.answered_by:
                return Continuable(questions=tuple(questions))
        return Continuable(session=True, questions=tuple(questions))

    async def _fork_points(self, run: Run) -> Collection[int] | None:
        """The turns before which the session was saved; None if the run has no files."""
        workspace = self.workspaces.of(run.id)
        if await self.pool.run(lambda: workspace.started):
            return await self.pool.run(workspace.fork_points)
        if self.archives is None or run.kept is None:
            return None
        # They are in the archive, with the newest questions.
        return range(run.attempt_number - workspace.most_fork_points + 1, run.attempt_number + 1)

    async def fork(self, run: Run, request: Mapping[str, Any], origin: Origin, source: Run) -> Decision:
        """The first decision of a run that starts with a question of the source."""
        problems = [] if run.mode is Mode.INTERACTIVE else ["mode: a run that starts with a question is interactive"]
        if run.skill.id != source.skill.id:
            problems.append(f"skill: a fork runs the skill of its source, '{source.skill.id}'")
        if problems:
            raise Invalid(RefusalCode.INPUT_INVALID, f"run {source.id} cannot be forked like this", problems)
        asked = await self.store.interactions(source.id)
        question = _question(asked, origin)
        forked = run.evolve(
            interaction_ids=tuple(each.interaction_id for each in asked[: asked.index(question)]),
            usage_before=await self._usage_at(source, question),
            summary=source.summary,
            secret_inputs=source.secret_inputs,
        )
        return lifecycle.fork(forked, request, question)

    async def _usage_at(self, source: Run, question: Interaction) -> Usage:
        """What the session had used when the question was asked."""
        used, after = source.usage_before or Usage(), 0
        begun = 0 if source.handle is None else source.handle.created_at_turn
        while True:
            page = await self.store.events(source.id, after)
            for event in page:
                if event.type is EventType.USAGE and begun <= event.data["attempt_number"] <= question.attempt_number:
                    used += Usage(**{name: event.data[name] for name in _COUNTS})
            if not page.more:
                return used
            after = page[-1].seq

    def continued(self, run: Run, origin: Origin, source: Run) -> Run:
        """The new run, with the session that it continues."""
        if not origin.session:
            return run
        assert source.handle is not None
        if run.sticky:
            message = f"a run that continues a session must be resumable; {run.profile.reason}"
            raise Invalid(RefusalCode.PROFILE_UNAVAILABLE, message)
        return run.evolve(handle=replace(source.handle, created_at_turn=0), usage_before=source.session_usage)

    async def copy(self, source: Run, origin: Origin, run: Run, limits: CopyLimits) -> None:
        """Copy what the new run takes over. If this fails, the caller removes the new run's files."""
        try:
            before = await self._turn_after(source, origin)
            await self._drop_process(source)
            await self.fetch(source)
            await self.pool.run_abandonable(
                lambda checkpoint: self._copy(source, origin, before, run, limits, checkpoint)
            )
        except SourceChanged:
            message = f"the files of run {source.id} changed while they were copied; try again"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message) from None
        except CopyRefused as error:
            message = f"the files of run {source.id} cannot be copied"
            raise Invalid(RefusalCode.INPUT_INVALID, message, [f"from_run: {error}"]) from None
        except OSError as error:
            if error.errno not in FULL_DISK:
                raise
            message = f"the disk is full; the files of run {source.id} were not copied"
            raise Unavailable(RefusalCode.DISK_FULL, message) from error
        now = await self.store.get(source.id)
        if now.epoch != source.epoch or now.state is RunState.RUNNING:
            message = (
                f"run {source.id} was continued while it was copied; try again when it is over or waits for an answer"
            )
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)

    async def fetch(self, source: Run) -> None:
        """The files of the source may be on another machine."""
        if self.archives is None:
            return
        try:
            fetched = await self.archives.fetch(source)
        except ArchiveMissing as problem:
            raise Conflict(RefusalCode.STATE_UNSUITABLE, f"run {source.id} has no files: {problem}") from None
        if not fetched:
            raise _busy(source)

    async def _drop_process(self, source: Run) -> None:
        """End the warm process of a waiting run: nothing may write while its files or its session are copied.

        Raises `Conflict` if another program has it.
        """
        for _ in range(_TRIES):
            await self.drop_warm(source.id)
            if not await asyncio.to_thread(_has_process, source, self.workspaces.of(source.id)):
                return
            await asyncio.sleep(_TRY_SEC)
        raise _busy(source)

    async def _turn_after(self, source: Run, origin: Origin) -> int | None:
        """The turn that followed the question of a fork. None: the session is still as it was."""
        if origin.at is None:
            return None
        question = _question(await self.store.interactions(source.id), origin)
        if source.handle is not None and source.handle.created_at_turn > question.attempt_number:
            message = f"question {origin.at!r} of run {source.id} was asked in a session that was lost since"
            raise Conflict(RefusalCode.STATE_UNSUITABLE, message)
        return None if source.attempt_number == question.attempt_number else question.attempt_number + 1

    def _copy(
        self, source_run: Run, origin: Origin, before: int | None, run: Run, limits: CopyLimits, checkpoint: Checkpoint
    ) -> None:
        """`before`: copy the session as it was before that turn."""
        source, target = self.workspaces.of(source_run.id), self.workspaces.of(run.id)
        _check_complete(origin, source.started)
        target.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        copying = TreeCopy(target.root, limits, checkpoint)
        if origin.files is not None:
            target.copy_files(source, origin.files, copying, self.engines.config_names)
        if origin.session and before is None:
            target.copy_home(source, copying)
        elif before is not None:
            target.copy_fork_point(source, before, copying)
        copying.sync()
        _check_complete(origin, source.started)
        if origin.session:
            moved = str(source.engine_cwd(source_run.workdir)), str(target.engine_cwd(run.workdir))
            self._move_session(run.engine, target, *moved)

    def _move_session(self, engine_name: str, target: Workspace, old_cwd: str, new_cwd: str) -> None:
        engine = self.engines[engine_name]
        move = engine.move_session(old_cwd, new_cwd)
        for old_name, new_name in move.renamed.items():
            target.rename_in_home(old_name, new_name)
        for pattern in move.removed:
            target.remove_in_home(pattern)
        for pattern, (old, new) in move.rewritten.items():
            target.rewrite_in_home(pattern, old, new)


def check_workdir(workdir: Workdir | None, origin: Origin, source: Run) -> None:
    """Refuse a run that would put copies into a user's folder, or take a session out of the folder that it knows."""
    if workdir is not None and origin.files is not None:
        problem = "from_run.files: a run with a workdir works with the files there; leave it out, or leave out workdir"
        raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", [problem])
    if origin.session and source.workdir is not None and (workdir is None or workdir.path != source.workdir.path):
        problem = f"workdir: the session of run {source.id} belongs to {source.workdir.path}; set workdir to it"
        raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", [problem])


_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "total_tokens")


def _incomplete(origin: Origin, *, answered: bool) -> list[str]:
    """What the request leaves out."""
    problems = []
    if origin.at is not None and not origin.session:
        problems.append("from_run.at: a fork continues the session; set session to true")
    elif origin.files is None and not origin.session:
        problems.append("from_run: names nothing to copy; set files to 'artifacts' or 'workspace', or session to true")
    if answered and origin.at is None:
        problems.append("from_run.response: answers no question; set at to the interaction_id of the question")
    return problems


def _question(asked: Sequence[Interaction], origin: Origin) -> Interaction:
    for each in asked:
        if each.interaction_id == origin.at:
            return each
    raise NotFound(RefusalCode.INTERACTION_NOT_FOUND, f"run {origin.run_id} has no question {origin.at!r}")


def _is_still(run: Run) -> bool:
    """Whether no process of the run can be alive, and none is about to start."""
    return run.state.final or (run.state is RunState.WAITING_USER and not run.sticky)


def _has_process(run: Run, workspace: Workspace) -> bool:
    """Whether a process of the run is alive. The lock alone does not say so: it is also held to save the home."""
    return locks.is_held(workspace.lock_path) and bool(Tree(mark=run.id).members())


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
