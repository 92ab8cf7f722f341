"""A request to run a skill, and how it becomes a stored run: validated as a whole, with its files in place.

Nothing here executes a run, and nothing changes one that exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from askback.background.pools import Pools
from askback.catalog.engines import EngineCatalog
from askback.core import lifecycle
from askback.core.access import Action, audit_entry
from askback.core.actors import ASKBACK, Actor
from askback.core.approvals import RunPermissions
from askback.core.errors import AskbackError, FieldProblem, Forbidden, Invalid, RefusalCode, Unavailable
from askback.core.interactions import Interaction, Json
from askback.core.labels import INTERNAL, check_labels, label_problems, restricted
from askback.core.lifecycle import Decision
from askback.core.permissions import Policy, PolicySource, SourcedPolicy, read_policy
from askback.core.run_env import env_problems
from askback.core.runs import (
    Mode,
    Origin,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
    Workdir,
)
from askback.core.signals import Replied
from askback.core.trace_context import TraceParent
from askback.core.webhooks import Webhook, WebhookKind, webhook_problems
from askback.runs.continuation import Continuable, Continuation, check_workdir
from askback.runs.secrets import RunSecrets, names_of_secrets
from askback.skills.library import Library
from askback.skills.manifest import merge_options, read_options
from askback.skills.package import SkillPackage
from askback.skills.templates import summarize
from askback.skills.validation import check_request, choose_mode, reply_problems
from askback.store.pages import IdempotencyKey
from askback.store.visible import RunStore
from askback.text.json_text import is_large
from askback.workspace.archives import NotArchived, RunArchives
from askback.workspace.run_objects import uploaded_package_key
from askback.workspace.workdirs import Workdirs
from askback.workspace.workspaces import Workspaces

_ONLY_IN_SETTINGS = {
    WebhookKind.EMAIL: "e-mails are only sent to addresses in the server's settings",
    WebhookKind.TELEGRAM: "chats of the Telegram bot are only in the server's settings",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to run a skill. `files` are local files for inputs of type file."""

    skill: str = ""
    by_path: bool = True
    """Whether the caller is a user of this machine: `skill` may be a folder, and `workdir` any folder."""
    archive: Path | None = None
    """A zip with the skill, instead of `skill`."""
    engine: str | None = None
    mode: str | None = None
    input: Mapping[str, Json] = field(default_factory=dict)
    parameter: Mapping[str, Json] = field(default_factory=dict)
    options: Mapping[str, Json] = field(default_factory=dict)
    permissions: Json = None
    """A policy for the tool calls of the engine, as JSON or by its name."""
    token_permissions: Policy | None = None
    """That of the caller's token."""
    files: Mapping[str, Path] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret variables for the engine."""
    key: IdempotencyKey | None = None
    origin: Origin | None = None
    """The run that this one continues."""
    workdir: str | None = None
    """A folder of the user for the engine to work in: an absolute path."""
    answer: Json = None
    """The answer to the question of `origin.at`; None: the run waits for it."""
    webhooks: tuple[Webhook, ...] = ()
    by: Actor = ASKBACK
    labels: Mapping[str, str] | None = None
    """None: those of `origin`, or none."""
    fixed_labels: Mapping[str, str] = field(default_factory=dict)
    """Those to which the caller's token is restricted. The run gets them in any case."""
    created_by: str | None = None
    """The name of the caller's token."""
    trace_parent: TraceParent | None = None
    """The caller's span."""
    max_open: int | None = None
    """How many unfinished runs this caller may have."""

    @property
    def uploaded(self) -> tuple[Path, ...]:
        """Every file that came with the request."""
        return (*self.files.values(), *(() if self.archive is None else (self.archive,)))

    @property
    def starts_with_files(self) -> bool:
        """Whether something is written to the folder of the run before the run is stored."""
        copied = self.origin is not None and (self.origin.files is not None or self.origin.session)
        return copied or bool(self.uploaded or self.env)

    @property
    def given(self) -> dict[str, Json]:
        """The input, with the names of the files."""
        return {**self.input, **{key: path.name for key, path in self.files.items()}}


class Prewarmed(Protocol):
    """The processes that were started for runs that do not exist yet."""

    def reserve(self, run: Run) -> str | None:
        """The id for this run, if a process is ready for it."""

    async def release(self, run_id: str, *, untouched: bool) -> None:
        """No run has this id after all. `untouched`: nothing was written to its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    store: RunStore
    library: Library
    engines: EngineCatalog
    workspaces: Workspaces
    continuation: Continuation
    pools: Pools
    owner: Callable[[], str]
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    private_webhooks: bool
    workdirs: Workdirs
    prewarmed: Prewarmed
    secrets: RunSecrets
    usual_options: RunOptions
    archives: RunArchives | None = None
    longest_turn_sec: float = 0
    permissions: Policy | None = None
    """The policy for all runs."""

    def reading(self, store: RunStore) -> Submissions:
        """The same on another view of the store."""
        return replace(self, store=store, continuation=replace(self.continuation, store=store))

    async def submit(self, wanted: Submission) -> Run:
        """Validate everything that can be validated, then store a queued run."""
        run_id = self.new_id()
        if wanted.archive is None:
            return await self._submit(run_id, await self._package(wanted), wanted)
        try:
            run = await self._submit(run_id, await self._unpacked(run_id, wanted.archive), wanted)
        except (AskbackError, OSError):
            # Not if the request was canceled: its run may have been stored. What is left is swept.
            await self.pools.files.run(self.workspaces.withdraw, run_id, admitted=True)
            raise
        if run.id != run_id:
            await self.pools.files.run(self.workspaces.withdraw, run_id, admitted=True)
        return run

    async def continuable(self, run: Run) -> Continuable:
        return await self.continuation.continuable(run)

    async def _unpacked(self, run_id: str, archive: Path) -> SkillPackage:
        """The skill of a zip, checked like one that is installed, in the folder of its run."""
        folder = self.workspaces.of(run_id).package
        package = await self.pools.skills.run_abandonable(
            lambda checkpoint: self.library.unpack(archive, folder, checkpoint)
        )
        await self.pools.skills.run(self.library.store_unpacked, package, uploaded_package_key(run_id), admitted=True)
        return package

    async def _submit(self, run_id: str, package: SkillPackage, wanted: Submission) -> Run:
        origin = wanted.origin
        source = None
        if origin is not None:
            answered = wanted.answer is not None
            source = await self.continuation.source(origin, wanted.engine, answered=answered)
        run = await self._run(run_id, package, wanted, source)
        data: dict[str, Json] = {
            "skill": package.id,
            "engine": run.engine,
            "mode": run.mode,
            "interactive_profile": asdict(run.profile),
        }
        if run.workdir is not None:
            data["workdir"] = run.workdir.path
        if run.labels:
            data["labels"] = run.labels
        if source is None or origin is None:
            reserved = self.prewarmed.reserve(run)
            run = run if reserved is None else run.evolve(id=reserved)
            return await self._create(lifecycle.create(run, data), wanted, None, reserved=reserved is not None)
        data["from_run"] = asdict(origin)
        run = self.continuation.continued(run, origin, source)
        if origin.at is None:
            decision = lifecycle.create(run, data)
        else:
            decision = await self.continuation.fork(run, data, origin, source)
            decision = await self._answered(decision, wanted.answer, wanted.by)
        return await self._create(decision, wanted, source)

    async def _run(self, run_id: str, package: SkillPackage, wanted: Submission, source: Run | None) -> Run:
        """The run that the request asks for. Raises an error if it cannot be executed here."""
        name = wanted.engine
        if name is None and source and wanted.origin and wanted.origin.session:
            name = source.engine
        named = None if name is None else await self.engines.choose(package, name)
        inherited: tuple[str, ...] = ()
        if source is not None:
            if source.skill.uploaded:
                await self.continuation.fetch(source)
            inherited = await self.secrets.inherited(source, await self.store.request(source.id))
        if is_large(wanted.input, wanted.parameter, wanted.options) or not package.checks_quickly():
            checked = await self.pools.parsing.run(self._check, package, wanted, inherited)
        else:
            checked = self._check(package, wanted, inherited)
        mode, options, summary, secret_inputs = checked
        engine = named or await self.engines.choose(package, None)
        if wanted.env and (wrong := list(env_problems(wanted.env, await self.engines.env_words(engine)))):
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot have these variables", wrong)
        workdir = await self._workdir(wanted, source)
        profile = await self.engines.profile(engine, mode, options)
        permissions = self._permissions_of(package, wanted, source)
        if permissions is not None:
            await self.engines.check_gate(engine, mode, profile)
        now = self.clock()
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
            mode=mode,
            profile=profile,
            options=options,
            max_attempt=package.max_attempt,
            next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
            owner=self.owner(),
            created_by=wanted.created_by,
            summary=summary,
            labels=_labels(wanted, source),
            env_names=tuple(wanted.env),
            secret_inputs=secret_inputs,
            inherited_secrets=inherited,
            origin=wanted.origin,
            trace_parent=None if wanted.trace_parent is None else str(wanted.trace_parent),
            workdir=workdir,
            permissions=permissions,
            created_at=now,
            updated_at=now,
        )
        named_effort = wanted.options.get("effort") is not None
        warning = await self.engines.ignored_effort(run, required=named_effort)
        return run if warning is None else run.evolve(warnings=(warning,))

    def _permissions_of(self, package: SkillPackage, wanted: Submission, source: Run | None) -> RunPermissions | None:
        """The policies of the run, the most trusted first. A session that is continued keeps those that it had."""
        given = {
            PolicySource.SETTINGS: self.permissions,
            PolicySource.TOKEN: wanted.token_permissions,
            PolicySource.RUN: read_policy(wanted.permissions, "permissions")[0],
            PolicySource.SKILL: package.permissions,
        }
        policies = [SourcedPolicy(source=name, policy=policy) for name, policy in given.items() if policy is not None]
        continued = wanted.origin is not None and wanted.origin.session and source is not None
        if continued and source is not None and source.permissions is not None:
            policies += [each for each in source.permissions.policies if each not in policies]
        return RunPermissions(policies=tuple(policies)) if policies else None

    async def _workdir(self, wanted: Submission, source: Run | None) -> Workdir | None:
        workdir = None
        if wanted.workdir is not None and wanted.fixed_labels:
            message = "a token that is restricted to labels cannot use a workdir: runs with other labels may work there"
            raise Forbidden(RefusalCode.SCOPE_MISSING, message)
        if wanted.workdir is not None:
            workdir = await self.pools.files.run(
                lambda: self.workdirs.admit(wanted.workdir or "", by_user=wanted.by_path)
            )
        if source is not None and wanted.origin is not None:
            check_workdir(workdir, wanted.origin, source)
        return workdir

    async def _answered(self, asking: Decision, answer: Json, by: Actor) -> Decision:
        """A run that starts with a question and its answer, if there is one."""
        if answer is None or asking.asked is None:
            return asking
        await check_answer(self.pools, asking.asked, answer)
        at, asked = asking.run.created_at, asking.asked
        replied = Replied(interaction_id=asked.interaction_id, response=answer, owner=self.owner(), by=by.plain, at=at)
        decision = lifecycle.decide(asking.run, replied)
        assert isinstance(decision, Decision)
        return replace(decision, events=(*asking.events, *decision.events), asked=asked)

    async def _package(self, wanted: Submission) -> SkillPackage:
        """Reading and copying a package may take a while, so a thread does it."""
        library = self.library
        package = library.find_cached(wanted.skill, paths=wanted.by_path)
        if package is None:
            package = await self.pools.skills.run(
                lambda: library.store(library.find(wanted.skill, paths=wanted.by_path))
            )
        return package

    def _check(
        self, package: SkillPackage, wanted: Submission, inherited: tuple[str, ...]
    ) -> tuple[Mode, RunOptions, str | None, tuple[str, ...] | None]:
        """The mode, the options, the summary and the secret inputs of the run. Reports every problem at once, each with its path."""
        mode, problems = choose_mode(package, wanted.mode)
        options, option_problems = read_options(wanted.options, "options")
        given = wanted.given
        problems = (*problems, *option_problems, *read_policy(wanted.permissions, "permissions")[1])
        if wanted.origin is None or wanted.origin.at is None:
            problems += check_request(package, given, wanted.parameter, wanted.files.keys())
        elif given or wanted.parameter:
            message = "a fork has the input and the parameters of its source; leave them out"
            problems += (FieldProblem.at(("input",), message),)
        problems += tuple(
            FieldProblem.at(("input", key), f"there is no file {path}")
            for key, path in wanted.files.items()
            if not path.is_file()
        )
        problems += tuple(label_problems(wanted.labels or {}))
        for place, webhook in enumerate(wanted.webhooks):
            problems += tuple(webhook_problems(webhook, "webhooks", place, allow_private=self.private_webhooks))
            if message := _ONLY_IN_SETTINGS.get(webhook.kind, ""):
                problems += (FieldProblem.at(("webhooks", place, "kind"), message),)
        if problems:
            raise Invalid(RefusalCode.INPUT_INVALID, f"skill '{package.id}' cannot be run with this request", problems)
        secrets = names_of_secrets(given, package.input_schema, inherited)
        merged = merge_options(
            package.options, options, usual=self.usual_options, longest_turn_sec=self.longest_turn_sec
        )
        summary = summarize(given, template=package.summary, schema=package.input_schema, secrets=secrets)
        # A large input would be read and sent with every look at the run.
        return mode, merged, summary, None if is_large(given) else secrets

    async def _create(
        self, decision: Decision, wanted: Submission, source: Run | None, *, reserved: bool = False
    ) -> Run:
        """Store the run with its files. If no new run is created, its files are removed."""
        run_id = decision.run.id
        try:
            if source is not None and wanted.origin is not None:
                limits = self.engines.copy_limits(decision.run.engine)
                await self.continuation.copy(source, wanted.origin, decision.run, limits)
            request = await self._stage(run_id, wanted)
            if source is not None:
                decision = await self._archive(decision)
            if wanted.starts_with_files:
                await self.pools.files.run(self.workspaces.sync, run_id)
            audit = audit_entry(wanted.by, Action.RUN_SUBMIT, decision.run.created_at, run_id=run_id)
            decision = replace(decision, audit=audit)
            run = await self.store.create(decision, request, wanted.key, wanted.webhooks, wanted.max_open)
        except (AskbackError, OSError):
            await self._withdraw(run_id, wanted, reserved=reserved)
            raise
        has_files = reserved or wanted.files or wanted.env or source is not None
        if run.id == run_id and (has_files or wanted.archive is not None):
            # The sweep repeats what fails here.
            with suppress(OSError, Unavailable):
                await self.pools.files.run(self.workspaces.of(run_id).record_database, admitted=True)
        if run.id != run_id and has_files:
            await self._withdraw(run_id, wanted, reserved=reserved)
        return run

    async def _archive(self, decision: Decision) -> Decision:
        """The first turn may start on another machine, which needs the copies."""
        if self.archives is None:
            return decision
        try:
            kept = await self.archives.save(decision.run, (), over=False, alive=False)
        except NotArchived as problem:
            raise Invalid(RefusalCode.INPUT_INVALID, "the run cannot continue another one", [str(problem)]) from None
        return replace(decision, run=decision.run.evolve(kept=kept))

    async def _withdraw(self, run_id: str, wanted: Submission, *, reserved: bool) -> None:
        if reserved:
            await self.prewarmed.release(run_id, untouched=not wanted.files)
            await self.pools.files.run(self.workspaces.withdraw_stored, run_id, admitted=True)
        else:
            await self.pools.files.run(self.workspaces.withdraw, run_id, admitted=True)

    async def _stage(self, run_id: str, wanted: Submission) -> RunRequest:
        if wanted.origin is not None and wanted.origin.at is not None:
            return await self.store.request(wanted.origin.run_id)
        stage = self.workspaces.of(run_id).stage_input
        staged = {key: await self.pools.files.run(stage, key, path) for key, path in wanted.files.items()}
        env = None
        if wanted.env:
            env = await self.pools.files.run(self.workspaces.of(run_id).seal_env, wanted.env)
            if self.archives is not None:
                await self.archives.save_pad(run_id)
        return RunRequest(input={**wanted.input, **staged}, parameter=dict(wanted.parameter), env=env)


def _labels(wanted: Submission, source: Run | None) -> dict[str, str]:
    """The given labels, else those of the source; with those to which the token is restricted."""
    given = wanted.labels
    if given is None:
        inherited = {} if source is None else source.labels
        given = {name: value for name, value in inherited.items() if name not in INTERNAL}
    labels = restricted(given, wanted.fixed_labels)
    check_labels(labels)
    return labels


async def check_answer(pools: Pools, question: Interaction, answer: Json) -> None:
    """Refuse an answer that the question does not allow. Compiling its schema may take a while."""
    if question.response_schema is not None or is_large(answer):
        problems = await pools.parsing.run(reply_problems, question, answer)
    else:
        problems = reply_problems(question, answer)
    if problems:
        raise Invalid(RefusalCode.REPLY_INVALID, "the answer does not match the question", problems)
