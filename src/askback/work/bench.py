"""What a turn works with on this machine, and what one turn needs before its engine starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol, assert_never

from askback.core.documents import is_large
from askback.core.errors import ErrorCode
from askback.core.interactions import Interaction
from askback.core.outcomes import TurnOutcome, engine_failure
from askback.core.runs import Run, TurnKind
from askback.engines.base import Engine, HandleInvalid, Launch, Probe, ResidentEngine, Turn
from askback.probes import EngineSetup, Probes
from askback.process.child import OutputLimits, Spawner
from askback.process.credentials import Credentials, Loan
from askback.process.pools import Pools
from askback.process.workspace import SKILL_DIR, Workspace, Workspaces
from askback.skills import instructions
from askback.skills.package import SkillPackage
from askback.store.base import Store


class Packages(Protocol):
    """Where skill packages are kept; the digest names one for good."""

    def package(self, digest: str) -> SkillPackage: ...

    def read_before(self, digest: str) -> SkillPackage | None:
        """The same without a wait, where it need not be read again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A turn that is ready to start."""

    package: SkillPackage
    workspace: Workspace
    engine: Engine
    setup: EngineSetup
    turn: Turn
    launch: Launch
    loan: Loan | None
    """The sign-in that the turn was lent; whatever it renews goes back when the turn is over."""


class CannotStart(Exception):
    """The turn ends before its engine runs; the outcome says why."""

    def __init__(self, outcome: TurnOutcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


async def prepare(bench: Bench, run: Run) -> Prepared:
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
    # All that touches the disk at one go: it costs one change of threads, also where many turns begin at once.
    return await bench.pools.turns.run(_prepare_files, bench, run, package, installed.probe, prompt)


def _prepare_files(bench: Bench, run: Run, package: SkillPackage, probe: Probe, prompt: str) -> Prepared:
    engine, setup = bench.engines[run.engine], bench.setups[run.engine]
    workspace = bench.workspaces.of(run.id)
    workspace.prepare(package.folder)
    if run.next_turn.kind is TurnKind.START:
        workspace.begin_first_turn(setup.home)
    else:
        workspace.begin_later_turn(run.attempt_number)
    loan = _lend(bench, engine, setup, workspace)
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
    if not run.sticky:
        workspace.write_prompt(turn_name(run), launch.stdin)
    return Prepared(
        package=package, workspace=workspace, engine=engine, setup=setup, turn=turn, launch=launch, loan=loan
    )


def _launch(engine: Engine, run: Run, turn: Turn) -> Launch:
    try:
        return resident(engine).reside(turn) if run.sticky else engine.launch(turn)
    except HandleInvalid as error:
        raise CannotStart(engine_failure(ErrorCode.SESSION_RESUME_FAILED, str(error))) from error


def _lend(bench: Bench, engine: Engine, setup: EngineSetup, workspace: Workspace) -> Loan | None:
    if setup.sign_in_home is None or not engine.credentials:
        return None
    lock = bench.locks / f"sign-in-{engine.name}.lock"
    return Credentials(source=setup.sign_in_home, names=engine.credentials, lock=lock).lend(workspace.home)


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
    match order.kind:
        case TurnKind.START:
            request = await store.request(run.id)
            made = partial(instructions.first_prompt, package, request, run.mode, SKILL_DIR)
            return await _aside(made, is_large(request.input, request.parameter))
        case TurnKind.REPAIR:
            return instructions.repair_prompt(package, order.problems, run.mode)
        case TurnKind.REPLY:
            question = await answered(store, run)
            made = partial(instructions.reply_prompt, package, question)
            return await _aside(made, is_large(question.response, question.prompt, question.context))
        case _:
            assert_never(order.kind)


async def _aside(made: Callable[[], str], large: bool) -> str:
    """A large text is not put together in the event loop."""
    return await asyncio.to_thread(made) if large else made()


async def answered(store: Store, run: Run) -> Interaction:
    """The question whose end the next turn brings."""
    asked = await store.interactions(run.id)
    return next(each for each in asked if each.interaction_id == run.next_turn.interaction_id)
