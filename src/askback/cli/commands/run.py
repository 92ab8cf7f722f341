"""`askback run`: executes a skill in this program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options, output
from askback.cli.commands.completion import complete_engine, complete_open_run, complete_skill
from askback.cli.exit_codes import WAITING, run_async
from askback.cli.help import Command
from askback.core.errors import Invalid
from askback.core.runs import InheritedFiles, Origin, parse_run_id

if TYPE_CHECKING:
    from askback.app import App
    from askback.core.runs import Run
    from askback.runs.submission import Submission
    from askback.settings.model import Settings
    from askback.skills.package import SkillPackage


Start = Callable[["App"], Awaitable["Run"]]
"""Submits the run, or takes it over."""

_LIST = "?"
"""The value of `--continue` without a run."""


@click.command(
    "run",
    cls=Command,
    examples=(
        "askback run ./my-skill --input topic=search --input draft=@draft.md",
        "askback run trip-planner --engine scripted --answer balanced",
        "askback run --continue               # list the runs that can be continued",
    ),
)
@click.argument("skill", required=False, shell_complete=complete_skill)
@click.option(
    "--engine",
    metavar="E",
    shell_complete=complete_engine,
    help="Engine to use; default: the skill's first installed engine, signed-in ones first.",
)
@click.option("--mode", type=click.Choice(["auto", "interactive"]), help="Whether the skill may ask questions.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="K=V",
    help="An input; K=@FILE reads a file, K=@@TEXT is text that starts with @.",
)
@click.option("--param", "params", multiple=True, metavar="K=V", help="A parameter of the skill.")
@click.option(
    "--option", "run_options", multiple=True, metavar="K=V", help="A run option, such as turn_timeout_sec=60."
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A secret variable for the engine. NAME alone takes the value from here; a VALUE is visible in the process list.",
)
@click.option(
    "--env-file", "variable_files", multiple=True, metavar="FILE", help="Secret variables, as lines NAME=VALUE."
)
@click.option(
    "--workdir",
    type=options.PathName(),
    metavar="DIR",
    help="Work in this folder, such as a repository, instead of a new one. It is changed in place; output files go to "
    "DIR/artifacts/.",
)
@click.option(
    "--permissions",
    metavar="POLICY",
    help="Ask before tool calls: careful, read-only, workspace, or a JSON file.",
)
@click.option("--from", "source", metavar="RUN", help="Start with the files of another run, which stays as it is.")
@click.option(
    "--from-files",
    type=click.Choice(["artifacts", "workspace"]),
    help="Which files to copy: its output files, or its whole working directory (default with --from-session).",
)
@click.option(
    "--from-session", is_flag=True, help="Also continue the engine's session: the model sees the earlier conversation."
)
@click.option(
    "--from-question",
    metavar="ID",
    help="Fork at this question of RUN: ask it again, and continue with another answer.",
)
@options.label("A label of the run, to find it again; repeatable. With --from, the default is that of RUN.")
@click.option("--answer", "answers", multiple=True, metavar="TEXT", help="An answer in advance; repeatable.")
@click.option(
    "--continue",
    "continued",
    metavar="[RUN]",
    is_flag=False,
    flag_value=_LIST,
    shell_complete=complete_open_run,
    help="Continue a run that waits or was interrupted; without RUN, list these.",
)
@options.common
def command(
    settings: Settings,
    as_json: bool,
    skill: str | None,
    engine: str | None,
    mode: str | None,
    inputs: tuple[str, ...],
    params: tuple[str, ...],
    run_options: tuple[str, ...],
    variables: tuple[str, ...],
    variable_files: tuple[str, ...],
    workdir: str | None,
    permissions: str | None,
    source: str | None,
    from_files: str | None,
    from_session: bool,
    from_question: str | None,
    label: tuple[str, ...],
    answers: tuple[str, ...],
    continued: str | None,
) -> int:
    """Run SKILL (a folder, or the id of an installed skill) in this program, and ask on this terminal.

    The output goes to stdout, everything else to stderr. Exit codes: 0 succeeded, 1 failed, 2 bad input,
    4 waits for an answer, 130 interrupted.
    """
    given = engine or mode or inputs or params or run_options or variables or variable_files
    submitted = given or source or label or workdir is not None or permissions is not None
    _check_usage(skill, continued, source, submitted=submitted, inherited=from_files or from_session or from_question)
    answers = tuple(options.text(answer, "--answer") for answer in answers)

    from askback.app import open_library
    from askback.cli.commands.permissions import policy_value
    from askback.cli.run_arguments import run_variables, submission
    from askback.cli.terminal.prompt import on_terminal
    from askback.settings.environment import process_environment
    from askback.settings.sections import in_bytes

    if continued == _LIST:
        return run_async(_list_resumable(settings, as_json=as_json))
    can_ask = on_terminal() and not as_json
    start: Start = partial(_take_over, given=continued or "")
    if skill is not None:
        env = run_variables(variables, variable_files, process_environment())
        origin = _origin(source, from_files, from_question, session=from_session, workdir=workdir)
        policy = None if permissions is None else policy_value(permissions)
        labels = options.labels_of(label) or None
        package = open_library(settings).find(skill)
        wanted = submission(
            package,
            may_ask=can_ask or bool(answers) or from_question is not None,
            max_bytes=in_bytes(settings.limits.body),
            skill=skill,
            engine=engine,
            mode=mode,
            inputs=inputs,
            params=params,
            run_options=run_options,
            env=env,
            origin=origin,
            # What cannot be made absolute is refused later.
            workdir=None if workdir is None else str(Path.cwd() / options.path_of(workdir)),
            permissions=policy,
            labels=labels,
        )
        start = partial(_submit, wanted=wanted, package=package, can_ask=can_ask)
    return run_async(_execute(settings, start, answers, as_json=as_json, can_ask=can_ask))


def _check_usage(
    skill: str | None, continued: str | None, source: str | None, *, submitted: object, inherited: object
) -> None:
    """Refuse options that contradict each other. `submitted`, `inherited`: whether options of that kind are given."""
    if skill is not None and continued is not None:
        raise click.UsageError("--continue uses the skill of the run: name a SKILL or --continue RUN, not both")
    if skill is None and continued is None:
        raise click.UsageError("name a SKILL to run, or a run to continue: --continue RUN")
    if continued is not None and submitted:
        raise click.UsageError("--continue uses the run as it was submitted: only --answer can be added")
    if source is None and inherited:
        raise click.UsageError("--from-files, --from-session and --from-question need a run: --from RUN")


async def _execute(settings: Settings, start: Start, answers: tuple[str, ...], *, as_json: bool, can_ask: bool) -> int:
    """Start or continue a run, follow it to its end, and print the result."""
    from askback.app import opened
    from askback.cli.terminal.conversation import converse, print_result
    from askback.cli.terminal.live import choose, probing_shown

    async with opened(settings) as app:
        with nullcontext() if as_json else probing_shown(app.service.engines):
            run = await start(app)
        with choose(as_json=as_json) as display:
            opening = f"▸ {run.skill.id} on {run.engine} ({run.mode}) · run {run.id}"
            ending = await converse(app, run, display, answers=answers, can_ask=can_ask, opening=opening)
    print_result(ending, as_json=as_json)
    if ending.exit_code == WAITING and (settings.webhooks or settings.telegram.token):
        output.to_stderr("askback: nobody is notified of this question: the settings notify of runs of a server only")
    return ending.exit_code


async def _submit(app: App, *, wanted: Submission, package: SkillPackage, can_ask: bool) -> Run:
    """Required inputs that are missing are asked for, or described in the error."""
    from askback.cli.data_folder import LocalRuns
    from askback.cli.run_arguments import ask_missing, described
    from askback.cli.runs import full_id

    if wanted.origin is not None:
        # The user may have given the start of the run's id.
        run_id = await full_id(LocalRuns(app), wanted.origin.run_id)
        wanted = replace(wanted, origin=replace(wanted.origin, run_id=run_id))
    if can_ask and (wanted.origin is None or wanted.origin.at is None):
        await _require_engine(app, wanted, package)
        wanted = await ask_missing(wanted, package)
    try:
        return await app.service.submit(wanted)
    except Invalid as error:
        raise Invalid(error.code, error.message, described(error.problems, package)) from None


async def _require_engine(app: App, wanted: Submission, package: SkillPackage) -> None:
    """Nobody should type input for a run that no installed engine can execute."""
    from askback.cli.terminal.live import probing_shown
    from askback.core.runs import Mode, RunOptions

    if wanted.engine is None and wanted.origin is not None and wanted.origin.session:
        # It gets the engine of its source.
        return
    engine = await app.service.engines.choose(package, wanted.engine)
    # The progress ends here, before input is asked for below it.
    with probing_shown(app.service.engines):
        await app.service.engines.profile(engine, Mode.AUTO, RunOptions())


def _origin(
    source: str | None, files: str | None, question: str | None, *, session: bool, workdir: str | None
) -> Origin | None:
    if source is None:
        return None
    session = session or question is not None
    default = None if workdir is not None else InheritedFiles.WORKSPACE if session else InheritedFiles.ARTIFACTS
    chosen = default if files is None else InheritedFiles(files)
    return Origin(run_id=parse_run_id(source), files=chosen, session=session, at=question)


async def _take_over(app: App, *, given: str) -> Run:
    """Make this program the owner of the run, unless the run is over."""
    from askback.cli.runs import find_run

    run = await find_run(app, given)
    return run if run.state.final else await app.service.take_over(run.id)


async def _list_resumable(settings: Settings, *, as_json: bool) -> int:
    from askback.app import opened
    from askback.cli.runs import resumable, resumable_line
    from askback.wire.base import plain
    from askback.wire.runs import Run as WireRun

    async with opened(settings) as app:
        runs = await resumable(app)
    output.print_list(runs, resumable_line, as_json=as_json, document=lambda run: plain(WireRun.of(run)))
    if not as_json:
        output.to_stderr("continue one with: askback run --continue RUN" if runs else "no run can be continued")
    return 0
