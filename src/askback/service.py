"""The entry point for the command line, HTTP and the page: submit, reply, cancel, results, following.

Everything is validated here before it is stored. The worker executes the turns; the two meet only in the store.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from askback.core import lifecycle
from askback.core.errors import AskbackError, Conflict, Invalid, NotFound, RefusalCode
from askback.core.events import Event, EventType
from askback.core.interactions import InboxOrder, Interaction, Json
from askback.core.lifecycle import Decision
from askback.core.run_env import env_problems
from askback.core.runs import (
    SHARED,
    Mode,
    Origin,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import Adopted, CancelRequested, Replied
from askback.core.webhooks import Webhook, webhook_problems
from askback.deletion import Deletion
from askback.engines.base import Engine
from askback.following.inbox import Inbox, InboxPage, read_inbox
from askback.following.run_changes import RunChanges
from askback.following.run_events import RunEvents
from askback.following.run_versions import RunVersions
from askback.inheritance import Inheritance
from askback.installed.engines import EnginesHere
from askback.process.locks import Instances
from askback.process.pools import Pools
from askback.process.slots import Slots
from askback.process.workspace import MAX_LISTED, Artifact, Workspaces
from askback.recovery import Recovery
from askback.skills.library import Library
from askback.skills.manifest import merge_options, read_options
from askback.skills.package import SkillPackage
from askback.skills.summary import masked, secret_inputs, summarize
from askback.skills.validation import check_request, choose_mode, reply_problems
from askback.store.base import IdempotencyKey, InboxFilter, RunStats, Store, move
from askback.text.json_text import is_large


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to run a skill. `files` are local files for inputs of type file."""

    skill: str = ""
    by_path: bool = True
    """Whether `skill` may be a folder on this machine, or only an id."""
    archive: Path | None = None
    """A zip with the skill, instead of `skill`."""
    engine: str | None = None
    mode: str | None = None
    input: Mapping[str, Json] = field(default_factory=dict)
    parameter: Mapping[str, Json] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret variables for the engine."""
    key: IdempotencyKey | None = None
    origin: Origin | None = None
    """The run that this one continues."""
    answer: Json = None
    """The answer to the question of `origin.at`; None: the run waits for it."""
    webhooks: tuple[Webhook, ...] = ()
    created_by: str | None = None
    """The name of the caller's token."""
    max_open: int | None = None
    """How many unfinished runs this caller may have."""

    @property
    def uploaded(self) -> tuple[Path, ...]:
        """Every file that came with the request."""
        return (*self.files.values(), *(() if self.archive is None else (self.archive,)))

    @property
    def given(self) -> dict[str, Json]:
        """The input, with the names of the files."""
        return {**self.input, **{key: path.name for key, path in self.files.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run left behind when it ended."""

    run: Run
    data: Json
    artifacts: tuple[Artifact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What a valid submission becomes."""

    mode: Mode
    options: RunOptions
    summary: str | None
    secret_inputs: tuple[str, ...] | None


class Service:
    """`store` is for reading runs, questions and events; every change goes through a method of this class."""

    def __init__(
        self,
        *,
        store: Store,
        library: Library,
        engines: EnginesHere,
        workspaces: Workspaces,
        owner: str,
        instances: Instances,
        recovery: Recovery,
        deletion: Deletion,
        slots: Slots,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        private_webhooks: bool,
        pools: Pools,
        inheritance: Inheritance,
    ) -> None:
        self.store = store
        self.skills = library
        self.engines = engines
        self._workspaces = workspaces
        self._owner = owner
        self._instances = instances
        self._recovery = recovery
        self._deletion = deletion
        self._slots = slots
        self._clock = clock
        self._new_id = new_id
        self._private_webhooks = private_webhooks
        self.pools = pools
        self._inheritance = inheritance
        self._run_events = RunEvents(store)
        self._waiting = Inbox(store)
        self._run_changes = RunChanges(store)
        self._run_versions = RunVersions(store)

    # Submitting.

    async def submit(self, wanted: Submission) -> Run:
        """Validate everything that can be validated, then store a queued run."""
        run_id = self._new_id()
        if wanted.archive is None:
            return await self._submit(run_id, await self._package(wanted), wanted)
        try:
            run = await self._submit(run_id, await self._unpacked(run_id, wanted.archive), wanted)
        except BaseException:
            await self.pools.files.run(self._workspaces.remove, run_id, admitted=True)
            raise
        if run.id != run_id:
            await self.pools.files.run(self._workspaces.remove, run_id, admitted=True)
        return run

    async def _unpacked(self, run_id: str, archive: Path) -> SkillPackage:
        """The skill of a zip, checked like one that is installed, in the folder of its run."""
        folder = self._workspaces.of(run_id).package
        return await self.pools.skills.run_abandonable(
            lambda checkpoint: self.skills.unpack(archive, folder, checkpoint)
        )

    async def _submit(self, run_id: str, package: SkillPackage, wanted: Submission) -> Run:
        source = None if wanted.origin is None else await self._inheritance.source(wanted.origin, wanted.engine)
        engine_name = wanted.engine
        if engine_name is None and source and wanted.origin and wanted.origin.session:
            engine_name = source.engine
        named = None if engine_name is None else await self.engines.choose(package, engine_name)
        if is_large(wanted.input, wanted.parameter, wanted.options) or not package.checks_quickly():
            checked = await self.pools.parsing.run(self._check, package, wanted)
        else:
            checked = self._check(package, wanted)
        engine = named or await self.engines.choose(package, None)
        await self._check_env(engine, wanted.env)
        profile = await self.engines.profile(engine, checked.mode, checked.options)
        now = self._clock()
        run = Run(
            id=run_id,
            state=RunState.QUEUED,
            skill=SkillRef(
                id=package.id,
                version=package.version,
                digest=package.digest,
                uploaded=wanted.archive is not None,
            ),
            engine=engine.name,
            mode=checked.mode,
            profile=profile,
            options=checked.options,
            max_attempt=package.max_attempt,
            next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
            owner=self._owner,
            created_by=wanted.created_by,
            summary=checked.summary,
            env_names=tuple(wanted.env),
            secret_inputs=checked.secret_inputs,
            origin=wanted.origin,
            created_at=now,
            updated_at=now,
        )
        named_effort = wanted.options.get("effort") is not None
        if (warning := await self.engines.ignored_effort(run, required=named_effort)) is not None:
            run = run.evolve(warnings=(warning,))
        data: dict[str, Json] = {
            "skill": package.id,
            "engine": engine.name,
            "mode": checked.mode,
            "interactive_profile": asdict(profile),
        }
        if source is not None and wanted.origin is not None:
            data["from_run"] = asdict(wanted.origin)
            run = self._inheritance.continued(run, wanted.origin, source)
        decision = lifecycle.create(run, data)
        if source is not None and wanted.origin is not None and wanted.origin.at is not None:
            decision = await self._inheritance.fork(decision, wanted.origin, source)
            decision = await self._answered(decision, wanted.answer)
        return await self._create(decision, wanted, source)

    async def _answered(self, asking: Decision, answer: Json) -> Decision:
        """A run that starts with a question and its answer, if there is one."""
        if answer is None or asking.asked is None:
            return asking
        if problems := await self._reply_problems(asking.asked, answer):
            raise Invalid(RefusalCode.REPLY_INVALID, "the answer does not match the question", problems)
        at, asked = asking.run.created_at, asking.asked
        replied = Replied(interaction_id=asked.interaction_id, response=answer, owner=self._owner, at=at)
        decision = lifecycle.decide(asking.run, replied)
        assert isinstance(decision, Decision)
        return replace(decision, events=(*asking.events, *decision.events), asked=asked)

    async def _package(self, wanted: Submission) -> SkillPackage:
        """Reading and copying a package may take a while, so a thread does it."""
        library = self.skills
        package = library.find_cached(wanted.skill, paths=wanted.by_path)
        if package is None:
            package = await self.pools.skills.run(
                lambda: library.keep(library.find(wanted.skill, paths=wanted.by_path))
            )
        return package

    async def _check_env(self, engine: Engine, env: Mapping[str, str]) -> None:
        if env and (problems := list(env_problems(env, await self.engines.env_words(engine)))):
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot have these variables", problems)

    def _check(self, package: SkillPackage, wanted: Submission) -> _Checked:
        """Report every problem at once, each with its path."""
        mode, problems = choose_mode(package, wanted.mode)
        options, option_problems = read_options(wanted.options, "options")
        given = wanted.given
        problems = (*problems, *option_problems)
        if wanted.origin is None or wanted.origin.at is None:
            problems += check_request(package, given, wanted.parameter, wanted.files.keys())
        elif given or wanted.parameter:
            problems += ("input: a fork has the input and the parameters of its source; leave them out",)
        problems += tuple(
            f"input.{key}: there is no file {path}" for key, path in wanted.files.items() if not path.is_file()
        )
        for place, webhook in enumerate(wanted.webhooks):
            problems += tuple(webhook_problems(webhook, f"webhooks[{place}]", allow_private=self._private_webhooks))
        if problems:
            raise Invalid(RefusalCode.INPUT_INVALID, f"skill '{package.id}' cannot be run with this request", problems)
        secrets = secret_inputs(given, package.input_schema)
        return _Checked(
            mode=mode,
            options=merge_options(package.options, options),
            summary=summarize(given, template=package.summary, schema=package.input_schema, secrets=secrets),
            # A large input would be read and sent with every look at the run.
            secret_inputs=None if is_large(given) else secrets,
        )

    async def _create(self, decision: Decision, wanted: Submission, source: Run | None) -> Run:
        """Store the run with its files. If no new run is created, its files are removed."""
        run_id = decision.run.id
        try:
            if source is not None and wanted.origin is not None:
                limits = self.engines.copy_limits(decision.run.engine)
                await self._inheritance.copy(source, wanted.origin, run_id, limits)
            request = await self._stage(run_id, wanted)
            run = await self.store.create(decision, request, wanted.key, wanted.webhooks, wanted.max_open)
        except (AskbackError, OSError):
            await self.pools.files.run(self._workspaces.remove, run_id, admitted=True)
            raise
        if run.id != run_id and (wanted.files or wanted.env or source is not None):
            await self.pools.files.run(self._workspaces.remove, run_id, admitted=True)
        return run

    async def _stage(self, run_id: str, wanted: Submission) -> RunRequest:
        if wanted.origin is not None and wanted.origin.at is not None:
            return await self.store.request(wanted.origin.run_id)
        stage = self._workspaces.of(run_id).stage_input
        staged = {key: await self.pools.files.run(stage, key, path) for key, path in wanted.files.items()}
        env = None
        if wanted.env:
            env = await self.pools.files.run(self._workspaces.of(run_id).seal_env, wanted.env)
        return RunRequest(input={**wanted.input, **staged}, parameter=dict(wanted.parameter), env=env)

    # Answering and ending.

    async def reply(self, run_id: str, response: Json, interaction_id: str | None = None) -> Run:
        """Answer the pending question. The second of two answers is refused and changes nothing."""
        run = await self._lost_if_owner_died(await self.store.get(run_id))
        pending = run.pending_interaction
        if pending is None:
            raise Conflict(
                RefusalCode.INTERACTION_NOT_PENDING,
                f"run {run.id} has no pending question; its state is {run.state}",
            )
        wanted = interaction_id or pending.interaction_id
        if wanted == pending.interaction_id and (problems := await self._reply_problems(pending, response)):
            raise Invalid(RefusalCode.REPLY_INVALID, "the answer does not match the question", problems)
        owner = run.owner if self.owned_elsewhere(run) else self._owner
        signal = Replied(interaction_id=wanted, response=response, owner=owner, at=self._clock())
        return await move(self.store, run_id, signal, seen=run)

    async def _reply_problems(self, pending: Interaction, response: Json) -> Sequence[str]:
        # Compiling a schema may take a while.
        if pending.response_schema is not None or is_large(response):
            return await self.pools.parsing.run(reply_problems, pending, response)
        return reply_problems(pending, response)

    async def _lost_if_owner_died(self, run: Run) -> Run:
        """The run, or what it becomes if the program that holds its resident process has died."""
        if not (run.sticky and run.pending_interaction and run.worker) or self._instances.is_alive(run.worker):
            return run
        run = await self._recovery.restart(run)
        if run.pending_interaction is not None:
            raise Conflict(
                RefusalCode.INTERACTION_NOT_PENDING,
                f"the program that holds the process of run {run.id} has died; the run can no longer be answered",
            )
        return run

    async def reply_with_file(self, run_id: str, file: Path, interaction_id: str) -> Run:
        """Answer with a file. It is copied to the run's inputs, and the engine gets its path."""
        run = await self.store.get(run_id)
        if run.pending_interaction is None or run.pending_interaction.interaction_id != interaction_id:
            return await self.reply(run_id, file.name, interaction_id)
        workspace = self._workspaces.of(run_id)
        # Two answers may have files of the same name; neither may overwrite the other.
        key = f"answer-{run.attempt_number}-{self._new_id()}"
        try:
            path = await self.pools.files.run(workspace.stage_input, key, file)
            return await self.reply(run_id, f"The answer is the file {path}", interaction_id)
        except (AskbackError, OSError):
            await self.pools.files.run(workspace.drop_input, key, admitted=True)
            raise

    async def cancel(self, run_id: str) -> Run:
        run = await move(self.store, run_id, CancelRequested(at=self._clock()))
        if run.state.final and run.env_names:
            await self.pools.files.run(self._workspaces.of(run_id).close, admitted=True)
        return run

    async def delete(self, run_id: str) -> None:
        """Delete a run that is over, with everything that belongs to it."""
        await self._deletion.delete(run_id)

    async def take_over(self, run_id: str) -> Run:
        """Execute the run in this program if its owner has died, also in the middle of a turn."""
        run = await self.store.get(run_id)
        if run.owner != self._owner and self._instances.is_alive(run.owner):
            raise Conflict(
                RefusalCode.RUN_HELD,
                f"run {run.id} belongs to another askback that is running; answer it there, or with `askback reply {run.id}`",
            )
        signal = Adopted(owner=self._owner, left_by=run.owner, at=self._clock())
        return await self._recovery.restart(await move(self.store, run_id, signal, seen=run))

    def owned_elsewhere(self, run: Run) -> bool:
        """Whether another program executes the run: one that is running, or any server."""
        return run.owner != self._owner and (run.owner == SHARED or self._instances.is_alive(run.owner))

    # Reading.

    async def inbox(
        self,
        cursor: str | None = None,
        limit: int = 50,
        where: InboxFilter = InboxFilter(),  # noqa: B008 a frozen value
        order: InboxOrder = InboxOrder.OLDEST,
    ) -> InboxPage:
        """Pending questions, with their total number."""
        return await read_inbox(self.store, cursor, limit, where, order)

    async def stats(self, days: int) -> RunStats:
        """The statistics of the last days, today included. Days are UTC days."""
        today = self._clock().astimezone(UTC).date()
        return await self.store.run_stats(today - timedelta(days=days - 1), today)

    async def shown_input(self, run: Run) -> dict[str, Json] | None:
        """The input of the run without secrets; None if it is large, or if it is unknown which parts are secret."""
        if run.secret_inputs is None:
            return None
        return masked((await self.store.request(run.id)).input, run.secret_inputs)

    async def result(self, run_id: str) -> Result:
        run = await self.store.get(run_id)
        if not run.state.final:
            raise Conflict(RefusalCode.RUN_NOT_FINAL, f"run {run.id} is {run.state}: it has no result yet")
        artifacts = tuple(await self.artifacts(run_id))
        return Result(run=run, data=await self.store.result(run_id), artifacts=artifacts)

    async def artifacts(self, run_id: str) -> Sequence[Artifact]:
        await self.store.get(run_id)
        workspace = self._workspaces.of(run_id)
        return await self.pools.files.run_abandonable(
            lambda checkpoint: list(itertools.islice(workspace.artifacts(checkpoint), MAX_LISTED))
        )

    async def open_artifact(self, run_id: str, path: str) -> BinaryIO:
        await self.store.get(run_id)
        opened = await self.pools.files.run(self._workspaces.of(run_id).open_artifact, path)
        if opened is None:
            raise NotFound(RefusalCode.ARTIFACT_NOT_FOUND, f"run {run_id} has no such artifact")
        return opened

    async def bundle(self, run_id: str, max_bytes: int) -> AsyncGenerator[bytes]:
        """All artifacts as one zip file, produced piece by piece on demand."""
        await self.store.get(run_id)
        workspace, pool = self._workspaces.of(run_id), self.pools.zipping
        bundle = await pool.run_abandonable(lambda checkpoint: workspace.bundle(max_bytes, checkpoint))
        return bundle.pieces(pool)

    def queue_reason(self, run: Run) -> str | None:
        """Why a queued run does not run yet."""
        return self._slots.reason(run.engine) if run.state is RunState.QUEUED else None

    async def follow(self, run_id: str, after: int = 0) -> AsyncIterator[Event]:
        """Every event of the run exactly once, past ones first; ends with the run."""
        async with aclosing(self._run_events.follow(run_id, after)) as following:
            async for events in following:
                for event in events:
                    yield event

    def follow_many(self, run_id: str, after: int = 0) -> AsyncGenerator[Sequence[Event]]:
        """Like `follow`, in batches."""
        return self._run_events.follow(run_id, after)

    def follow_pending(self) -> AsyncGenerator[InboxPage]:
        """The oldest pending questions, again after every change of the inbox."""
        return self._waiting.follow()

    def follow_runs(self) -> AsyncGenerator[Sequence[Run]]:
        """Runs as they are created or change their state; see `RunChanges.follow`."""
        return self._run_changes.follow()

    async def changed(self, run_id: str, version: int | None) -> Run:
        """Wait until the run has another version than this one or is final; without one, until it asks its user."""

        def is_new(run: Run) -> bool:
            return run.state.final or (run.settled if version is None else run.version != version)

        return await self._run_versions.wait(run_id, is_new)

    async def settled(self, run_id: str, interaction_id: str) -> None:
        """Wait until the question is closed, however that happens."""
        await self.closed_at(run_id, interaction_id)

    async def closed_at(self, run_id: str, interaction_id: str) -> int:
        """Wait until the question is closed; return the number of the event that closed it."""
        async for event in self.follow(run_id):
            if event.type is EventType.INTERACTION_CLOSED and event.data["interaction_id"] == interaction_id:
                return event.seq
        raise Conflict(RefusalCode.RUN_FINAL, f"run {run_id} ended without closing question {interaction_id!r}")
