"""Preparing a turn: its context, folders, prompt, credentials and launch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TypeVar, assert_never

from askback.background.pools import Abandoned, Checkpoint, unchecked
from askback.catalog.probes import EngineSetup, home_files, sign_in_of
from askback.core.errors import ErrorCode, RunError
from askback.core.interactions import AnsweredBy
from askback.core.outcomes import TurnError, engine_failure
from askback.core.run_env import secrets_in
from askback.core.runs import Mode, ProfileKind, Run, RunRequest, TurnKind
from askback.engines.base import Engine, HandleInvalid, Launch, Probe, Reply, Turn
from askback.fs.walk import TreeTooLarge
from askback.process.ask_socket import ask_tool_command, gate_command
from askback.runs.secrets import declares_secrets, texts_to_mask
from askback.skills import prompts
from askback.skills.package import SkillPackage
from askback.skills.validation import file_inputs
from askback.text.json_text import is_large
from askback.text.redaction import Redactor
from askback.worker.claimed_run import ClaimedRun
from askback.worker.turn.ask_tool import DeferredCall, deferred_call, has_ask_tool, has_decided_call
from askback.worker.turn.context import CannotStart, Stopped, TurnContext
from askback.workspace.layout import SKILL_DIR, Workspace
from askback.workspace.sign_ins import SignInCopies
from askback.workspace.snapshots import HomeChangedWhileSaving, HomeLost
from askback.workspace.workdirs import WorkdirUnavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTurn:
    """A turn that is ready to start."""

    package: SkillPackage
    workspace: Workspace
    engine: Engine
    setup: EngineSetup
    turn: Turn
    launch: Launch
    instructions: Instructions
    env: Mapping[str, str]
    """The secret variables of the run."""
    resident: bool
    """Whether the process stays for further turns."""
    deferred: DeferredCall | None
    """The call that the session has from its last turn."""
    sign_in_copies: SignInCopies | None
    """The sign-in in the run's home. Tokens that the engine renews are merged into the user's sign-in."""

    @property
    def conversing(self) -> bool:
        """Whether the process gets its prompt in a conversation, and not at its start."""
        return self.resident or self.engine.converses

    @property
    def has_secrets(self) -> bool:
        """Whether the run has secrets beside those of the settings."""
        return bool(self.instructions.secrets or self.env)

    @property
    def redactor(self) -> Redactor:
        env = (secret for value in self.env.values() for secret in secrets_in(value))
        answers = (*self.instructions.secrets, *env)
        return Redactor(self.setup.secrets, answers) if answers else _redactor(tuple(self.setup.secrets))


@lru_cache(maxsize=32)
def _redactor(secrets: tuple[str, ...]) -> Redactor:
    """A redactor for the secrets of the settings, shared by all turns without other secrets."""
    return Redactor(secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The process of a turn that was started before its run was submitted, in the run's workspace."""

    sign_in_copies: SignInCopies | None
    check: Callable[[PreparedTurn], None]
    """Raises `Unfit` if the turn would start another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SealedEnv:
    """The run's secret variables, and the key to them."""

    sealed: str
    pad: bytes | None
    """None: it is in the run's folder."""


async def prepare(
    context: TurnContext, run: Run, claim: ClaimedRun | None = None, started: Started | None = None
) -> PreparedTurn:
    """Restore the workspace to its state before the turn, and build the launch. Raises `Unfit` if `started` is not it.

    Raises `Stopped` if the claimed run is stopped meanwhile.
    """
    engine, setup = context.engines[run.engine], context.setups[run.engine]
    package = await context.secrets.package(run)
    installed = await context.probes.find(engine, setup)
    if installed is None:
        message = f"{setup.command[0]} is not installed; {engine.install}"
        raise CannotStart(engine_failure(ErrorCode.ENGINE_NOT_FOUND, message))
    instructions = await build_instructions(context, run, package)
    sealed = (await context.store.request(run.id)).env if run.env_names else None
    pad = None if sealed is None or context.archives is None else await context.archives.pad(run)
    env = None if sealed is None else _SealedEnv(sealed=sealed, pad=pad)

    def work(checkpoint: Checkpoint = unchecked) -> PreparedTurn:
        return _prepare_files(context, run, package, installed.probe, instructions, env, started, checkpoint)

    # One switch of threads for everything that touches the disk: many turns may start at once.
    if claim is None or run.starts_session:
        return await context.pools.turns.run(work)
    return await _unless_stopped(context, claim, work)


async def _unless_stopped(context: TurnContext, claim: ClaimedRun, work: Callable[[Checkpoint], T]) -> T:
    """Work that saves a home, which can be large: if the run is stopped meanwhile, it ends early."""
    try:
        return await context.pools.storing.run_unless(claim.wait_stopped, work)
    except Abandoned:
        raise Stopped from None


async def prepare_next(context: TurnContext, run: Run, claim: ClaimedRun, earlier: PreparedTurn) -> PreparedTurn:
    """The next turn of a resident process, which only needs instructions. Raises `Unfit` or `Stopped`.

    The process of a resumable run is suspended meanwhile.
    """
    instructions = await build_instructions(context, run, earlier.package)
    prepared = replace(earlier, instructions=instructions)
    await _unless_stopped(context, claim, lambda checkpoint: _prepare_next_files(run, prepared, checkpoint))
    return prepared


class Unfit(Exception):
    """The next turn needs a new process: this one would not do what a new one does."""


def _prepare_next_files(run: Run, prepared: PreparedTurn, checkpoint: Checkpoint) -> None:
    if not run.sticky:
        # If this turn is interrupted, it restarts in a new process from the home that is saved here.
        copies = prepared.sign_in_copies
        if copies is not None and not copies.current():
            raise Unfit("the sign-in has changed")
        answers = run.next_turn.kind is TurnKind.REPLY
        try:
            prepared.workspace.begin_live_turn(run.attempt_number, answers=answers, checkpoint=checkpoint)
        except HomeChangedWhileSaving as error:
            raise Unfit(str(error)) from error
        except TreeTooLarge as error:
            raise _too_large(error) from None
    _write_prompt(run, prepared)


def turn_name(run: Run) -> str:
    """The file name of this attempt at this turn."""
    return f"{run.attempt_number:03d}-{run.epoch:03d}"


# Files.


def _prepare_files(
    context: TurnContext,
    run: Run,
    package: SkillPackage,
    probe: Probe,
    instructions: Instructions,
    sealed_env: _SealedEnv | None,
    started: Started | None,
    checkpoint: Checkpoint,
) -> PreparedTurn:
    engine, setup = context.engines[run.engine], context.setups[run.engine]
    workspace = context.workspaces.of(run.id)
    env = _opened(workspace, sealed_env)
    _check_workdir(context, run)
    workspace.prepare(package.folder)
    if started is not None:
        sign_in_copies = started.sign_in_copies
    else:
        _begin_turn(run, setup, workspace, checkpoint)
        sign_in_copies = copy_sign_in(context, engine, setup, workspace)
    try:
        plain = plain_turn(engine, setup, probe, workspace, run.mode)
        decided = has_decided_call(run, workspace)
        deferred = None if decided else deferred_call(run, engine, workspace, instructions.prompt)
        turn = replace(
            plain,
            prompt=instructions.prompt,
            attempt_number=run.attempt_number,
            cwd=str(workspace.engine_cwd(run.workdir)),
            users_cwd=run.workdir is not None,
            skill_dir=skill_dir(run, workspace),
            handle=run.handle,
            model=run.options.model or setup.model,
            effort=(run.options.effort or setup.effort) if run.process_profile in probe.effort else None,
            may_ask=run.sticky,
            # A call that is deferred can only be answered with the tool, also if it was switched off since.
            ask_tool=plain.ask_tool if deferred is None else ask_tool_command(workspace.tmp),
            output_schema=package.output_schema,
            env={**plain.env, **env},
            deferred=decided or (deferred is not None and deferred.answer is not None),
            gate=() if run.permissions is None else gate_command(workspace.tmp),
        )
        resident = run.sticky or context.warm_obstacle(run.engine, probe, run) is None
        launch = launch_of(engine, turn, resident=resident)
        prepared = PreparedTurn(
            package=package,
            workspace=workspace,
            engine=engine,
            setup=setup,
            turn=turn,
            launch=launch,
            instructions=instructions,
            env=env,
            resident=resident,
            deferred=deferred,
            sign_in_copies=sign_in_copies,
        )
        if started is None:
            workspace.write_home(home_files(launch, setup.home))
            _write_work(run, workspace, launch)
        else:
            started.check(prepared)
        _write_prompt(run, prepared)
        return prepared
    except BaseException:
        if sign_in_copies is not None and started is None:
            sign_in_copies.end()
        raise


def _begin_turn(run: Run, setup: EngineSetup, workspace: Workspace, checkpoint: Checkpoint) -> None:
    if run.starts_session:
        workspace.begin_first_turn(setup.home)
        return
    answers = run.next_turn.kind is TurnKind.REPLY
    try:
        workspace.begin_later_turn(run.attempt_number, answers=answers, checkpoint=checkpoint)
    except TreeTooLarge as error:
        raise _too_large(error) from None
    except HomeLost as error:
        message = f"the run's home, which has the engine's session, was removed: {error}"
        raise CannotStart(engine_failure(ErrorCode.SESSION_RESUME_FAILED, message)) from None


def _too_large(problem: TreeTooLarge) -> CannotStart:
    """As the watchdog reports what it measures: files that cannot be saved are a breach of the limit on disk."""
    message = f"the engine's home cannot be saved for this turn: {problem}"
    error = RunError(code=ErrorCode.RESOURCE_LIMIT_EXCEEDED, cause=ErrorCode.DISK_LIMIT, message=message)
    return CannotStart(TurnError(error=error))


def unavailable(problem: WorkdirUnavailable) -> CannotStart:
    return CannotStart(engine_failure(ErrorCode.WORKDIR_UNAVAILABLE, f"the run cannot work in its folder: {problem}"))


def _check_workdir(context: TurnContext, run: Run) -> None:
    """Immediately before a start: the folder may have been replaced since the run was submitted."""
    if run.workdir is None:
        return
    try:
        context.workdirs.prepare(run.workdir)
    except WorkdirUnavailable as problem:
        raise unavailable(problem) from None


def _write_work(run: Run, workspace: Workspace, launch: Launch) -> None:
    """Askback writes no files to a folder of the user."""
    if run.workdir is None:
        workspace.write_work(launch.work_files)
    elif launch.work_files:
        names = ", ".join(launch.work_files)
        raise unavailable(WorkdirUnavailable(f"engine '{run.engine}' needs to write its own files there: {names}"))


def _opened(workspace: Workspace, sealed_env: _SealedEnv | None) -> dict[str, str]:
    if sealed_env is None:
        return {}
    try:
        return workspace.open_env(sealed_env.sealed, sealed_env.pad)
    except (OSError, ValueError) as error:
        message = f"the secret variables of the run cannot be read: {error}; start the run again"
        raise CannotStart(engine_failure(ErrorCode.INTERNAL_ERROR, message)) from None


def plain_turn(engine: Engine, setup: EngineSetup, probe: Probe, workspace: Workspace, mode: Mode) -> Turn:
    """The first turn of a resumable run without options, in the folders of the run."""
    return Turn(
        prompt="",
        mode=mode,
        attempt_number=1,
        command=setup.command,
        cwd=str(workspace.cwd),
        home=str(workspace.home),
        skill_dir=SKILL_DIR,
        probe=probe,
        model=setup.model,
        effort=setup.effort if ProfileKind.RESUMABLE in probe.effort else None,
        may_ask=False,
        ask_tool=ask_tool_command(workspace.tmp) if has_ask_tool(engine, setup, mode) else (),
        extra_args=setup.extra_args,
        env=setup.env,
        credentials=workspace.present_in_home(engine.credentials),
    )


def launch_of(engine: Engine, turn: Turn, *, resident: bool) -> Launch:
    try:
        if not resident:
            return engine.launch(turn)
        if engine.can_stay:
            return engine.launch_resident(turn)
    except HandleInvalid as error:
        raise CannotStart(engine_failure(ErrorCode.SESSION_RESUME_FAILED, str(error))) from error
    # Only an engine whose profiles include `sticky_process` gets a sticky run.
    raise CannotStart(engine_failure(ErrorCode.INTERNAL_ERROR, f"{engine.name} cannot run as a resident process"))


def copy_sign_in(context: TurnContext, engine: Engine, setup: EngineSetup, workspace: Workspace) -> SignInCopies | None:
    credentials = sign_in_of(engine, setup, context.locks)
    return None if credentials is None else credentials.copy_into(workspace.home)


def _write_prompt(run: Run, prepared: PreparedTurn) -> None:
    """Record what the engine is given, without secrets."""
    if prepared.conversing or prepared.turn.deferred:
        record = prepared.redactor.text(prepared.instructions.prompt).encode("utf-8", "replace")
    else:
        record = prepared.redactor.line(prepared.launch.stdin)
    prepared.workspace.write_prompt(turn_name(run), record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    """What the engine is asked to do in one turn."""

    prompt: str
    reply: Reply | None = None
    """The outcome of the question that this turn answers."""
    secrets: tuple[str, ...] = ()
    """The secrets of the run so far, without its variables."""


async def build_instructions(context: TurnContext, run: Run, package: SkillPackage) -> Instructions:
    """The instructions for the run's next turn. A prompt shows an example that is validated against the schema."""
    store, order, slow = context.store, run.next_turn, not package.checks_quickly()
    in_workdir = run.workdir is not None
    if order.kind is TurnKind.START:
        request = await store.request(run.id)
        first = partial(prompts.first_prompt, _assignment(context, run, package, request))
        prompt = await _render(first, slow or is_large(request.input, request.parameter))
        return Instructions(prompt=prompt, secrets=texts_to_mask(run, package, request, (), {}))
    interactions = await store.interactions(run.id)
    given = await store.request(run.id) if declares_secrets(package) else RunRequest()
    secrets = texts_to_mask(run, package, given, interactions, {})
    match order.kind:
        case TurnKind.REPAIR if order.continues:
            return Instructions(prompt=prompts.CONTINUE_PROMPT, secrets=secrets)
        case TurnKind.REPAIR:
            repair = partial(prompts.repair_prompt, package, order.problems, run.mode)
            return Instructions(prompt=await _render(repair, slow), secrets=secrets)
        case TurnKind.REPLY:
            closed = next(each for each in interactions if each.interaction_id == order.interaction_id)
            large = is_large(closed.response, closed.prompt, closed.context)
            ask_tool = _has_ask_tool(context, run)
            render = partial(prompts.reply_prompt, package, closed, in_workdir=in_workdir, ask_tool=ask_tool)
            prompt = await _render(render, slow or large)
            reply = Reply(response=closed.response, answered=closed.answered_by is AnsweredBy.USER)
            return Instructions(prompt=prompt, reply=reply, secrets=secrets)
        case TurnKind.REBUILD:
            request = await store.request(run.id)
            assignment = _assignment(context, run, package, request)
            rebuilt = partial(prompts.rebuilt_prompt, assignment, interactions, order.problems)
            return Instructions(prompt=await _render(rebuilt, slow=True), secrets=secrets)
        case _:
            assert_never(order.kind)


def _assignment(context: TurnContext, run: Run, package: SkillPackage, request: RunRequest) -> prompts.Assignment:
    workspace = context.workspaces.of(run.id)
    if run.workdir is not None:
        # The engine does not work in the folder that has the files of the input.
        staged = {key: f"{workspace.cwd}/{request.input[key]}" for key in file_inputs(package) if key in request.input}
        request = replace(request, input={**request.input, **staged})
    return prompts.Assignment(
        package=package,
        request=request,
        mode=run.mode,
        skill_dir=skill_dir(run, workspace),
        origin=run.origin,
        engine=run.engine,
        in_workdir=run.workdir is not None,
        ask_tool=_has_ask_tool(context, run),
    )


def _has_ask_tool(context: TurnContext, run: Run) -> bool:
    return has_ask_tool(context.engines[run.engine], context.setups[run.engine], run.mode)


async def _render(prompt: Callable[[], str], slow: bool) -> str:
    return await asyncio.to_thread(prompt) if slow else prompt()


def skill_dir(run: Run, workspace: Workspace) -> str:
    """As the engine sees it from its working directory."""
    return SKILL_DIR if run.workdir is None else str(workspace.cwd / SKILL_DIR)
