"""What a turn works with on this machine, and what one turn needs before its engine starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol, assert_never

from askback.core.errors import ErrorCode
from askback.core.interactions import Interaction
from askback.core.outcomes import engine_failure
from askback.core.runs import Run, TurnKind
from askback.engines.base import Engine, HandleInvalid, Launch, Probe, RenewingEngine, ResidentEngine, Turn
from askback.installed.probes import EngineSetup, Probes
from askback.process.child import OutputLimits, Spawner
from askback.process.credentials import Credentials, Loan
from askback.process.pools import Pools
from askback.process.workspace import SKILL_DIR, Workspace, Workspaces
from askback.skills import prompts
from askback.skills.package import SkillPackage
from askback.store.base import Store
from askback.text.json_text import is_large
from askback.text.redaction import Redactor, texts_in
from askback.work.turn.observe import Parsing
from askback.work.turn.shortage import CannotStart, Shortage


class Packages(Protocol):
    """Where skill packages are kept; the digest names one for good."""

    def package(self, digest: str) -> SkillPackage: ...

    def read_before(self, digest: str) -> SkillPackage | None:
        """The same without a wait, where it need not be read again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    store: Store
    packages: Packages
    workspaces: Workspaces
    locks: Path
    engines: Mapping[str, Engine]
    setups: Mapping[str, EngineSetup]
    probes: Probes
    spawner: Spawner
    limits: OutputLimits
    clock: Callable[[], datetime]
    pools: Pools
    parsing: Parsing = field(default_factory=Parsing)
    shortage: Shortage = field(default_factory=Shortage)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTurn:
    """A turn that is ready to start."""

    package: SkillPackage
    workspace: Workspace
    engine: Engine
    setup: EngineSetup
    turn: Turn
    launch: Launch
    loan: Loan | None
    """The sign-in that the turn was lent, until the turn is over; tokens that it renews are merged into the user's."""
    answers: tuple[str, ...] = ()
    """What the user gave as a secret so far."""

    @property
    def redactor(self) -> Redactor:
        return Redactor(self.setup.secrets, self.answers)


async def prepare(bench: TurnContext, run: Run) -> PreparedTurn:
    """Make the workspace ready, from before the turn's first try, and build what to start."""
    engine, setup = bench.engines[run.engine], bench.setups[run.engine]
    package = bench.packages.read_before(run.skill.digest)
    if package is None:
        package = await bench.pools.skills.run(bench.packages.package, run.skill.digest, admitted=True)
    installed = await bench.probes.find(engine, setup)
    if installed is None:
        message = f"{setup.command[0]} is not installed (any more); {engine.install}"
        raise CannotStart(engine_failure(ErrorCode.ENGINE_NOT_FOUND, message))
    prompt = await prompt_of(bench.store, run, package)
    answers = await secret_answers(bench.store, run)
    # All that touches the disk at one go: it costs one change of threads, also where many turns begin at once.
    return await bench.pools.turns.run(_prepare_files, bench, run, package, installed.probe, prompt, answers)


def _prepare_files(
    bench: TurnContext, run: Run, package: SkillPackage, probe: Probe, prompt: str, answers: tuple[str, ...]
) -> PreparedTurn:
    engine, setup = bench.engines[run.engine], bench.setups[run.engine]
    workspace = bench.workspaces.of(run.id)
    workspace.prepare(package.folder)
    if run.next_turn.kind is TurnKind.START:
        workspace.begin_first_turn(setup.home)
    else:
        workspace.begin_later_turn(run.attempt_number)
    loan = _lend(bench, engine, setup, workspace)
    try:
        prepared = _prepare_launch(bench, run, package, probe, prompt, answers, workspace, loan)
        if not run.sticky:
            workspace.write_prompt(turn_name(run), prepared.redactor.line(prepared.launch.stdin))
        return prepared
    except BaseException:
        if loan is not None:
            loan.end()
        raise


def _prepare_launch(
    bench: TurnContext,
    run: Run,
    package: SkillPackage,
    probe: Probe,
    prompt: str,
    answers: tuple[str, ...],
    workspace: Workspace,
    loan: Loan | None,
) -> PreparedTurn:
    engine, setup = bench.engines[run.engine], bench.setups[run.engine]
    turn = Turn(
        prompt=prompt,
        mode=run.mode,
        attempt_number=run.attempt_number,
        command=setup.command,
        cwd=str(workspace.cwd),
        home=str(workspace.home),
        skill_dir=SKILL_DIR,
        probe=probe,
        handle=run.handle,
        model=run.options.model or setup.model,
        output_schema=package.output_schema,
        extra_args=setup.extra_args,
        env=setup.env,
        credentials=tuple(name for name in engine.credentials if (workspace.home / name).is_file()),
    )
    launch = _launch(engine, run, turn)
    workspace.write_home(launch.files)
    workspace.write_work(launch.work_files)
    return PreparedTurn(
        package=package,
        workspace=workspace,
        engine=engine,
        setup=setup,
        turn=turn,
        launch=launch,
        loan=loan,
        answers=answers,
    )


def _launch(engine: Engine, run: Run, turn: Turn) -> Launch:
    try:
        return resident(engine).launch_resident(turn) if run.sticky else engine.launch(turn)
    except HandleInvalid as error:
        raise CannotStart(engine_failure(ErrorCode.SESSION_RESUME_FAILED, str(error))) from error


def _lend(bench: TurnContext, engine: Engine, setup: EngineSetup, workspace: Workspace) -> Loan | None:
    if setup.sign_in_home is None or not engine.credentials:
        return None
    lock = bench.locks / f"sign-in-{engine.name}.lock"
    return Credentials(
        source=setup.sign_in_home,
        names=engine.credentials,
        lock=lock,
        renewals=engine.renewals if setup.renew_sign_in and isinstance(engine, RenewingEngine) else (),
    ).lend(workspace.home)


def turn_name(run: Run) -> str:
    """What the files of this try of this turn are called."""
    return f"{run.attempt_number:03d}-{run.epoch:03d}"


def resident(engine: Engine) -> ResidentEngine:
    """The engine as one that stays; a run keeps its process only where the engine's profiles say that it can."""
    if not isinstance(engine, ResidentEngine):
        raise CannotStart(engine_failure(ErrorCode.INTERNAL_ERROR, f"{engine.name} cannot be kept as a process"))
    return engine


async def prompt_of(store: Store, run: Run, package: SkillPackage) -> str:
    """What the run's next turn tells the engine, in words."""
    order = run.next_turn
    # A prompt shows an output that was checked against the skill's schema.
    slow = not package.checks_quickly()
    match order.kind:
        case TurnKind.START:
            request = await store.request(run.id)
            made = partial(prompts.first_prompt, package, request, run.mode, SKILL_DIR)
            return await _aside(made, slow or is_large(request.input, request.parameter))
        case TurnKind.REPAIR:
            return await _aside(partial(prompts.repair_prompt, package, order.problems, run.mode), slow)
        case TurnKind.REPLY:
            question = await answered(store, run)
            made = partial(prompts.reply_prompt, package, question)
            return await _aside(made, slow or is_large(question.response, question.prompt, question.context))
        case _:
            assert_never(order.kind)


async def secret_answers(store: Store, run: Run) -> tuple[str, ...]:
    """What the run's user gave as a secret; kept in the store until the run is over."""
    if run.next_turn.kind is TurnKind.START:
        return ()
    secret = [each.response for each in await store.interactions(run.id) if each.secret]
    return tuple(text for response in secret for text in texts_in(response))


async def _aside(made: Callable[[], str], large: bool) -> str:
    """A text that is large, or takes long to make, is not put together in the event loop."""
    return await asyncio.to_thread(made) if large else made()


async def answered(store: Store, run: Run) -> Interaction:
    """The question whose end the next turn brings."""
    asked = await store.interactions(run.id)
    return next(each for each in asked if each.interaction_id == run.next_turn.interaction_id)
