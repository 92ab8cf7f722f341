"""`askback run`: a skill, here and now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from askback.cli import options

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.core.runs import Run
    from askback.service import Submission
    from askback.settings import Settings


@click.command("run", short_help="Run a skill here and now, asking on this terminal.")
@click.argument("skill", required=False)
@click.option("--engine", metavar="E", help="The engine to use; default: the skill's first that is installed.")
@click.option("--mode", type=click.Choice(["auto", "interactive"]), help="Whether the skill may ask.")
@click.option(
    "--input", "inputs", multiple=True, metavar="K=V", help="An input; K=@FILE takes a file, K=@@… a text with @."
)
@click.option("--param", "params", multiple=True, metavar="K=V", help="A parameter of the skill.")
@click.option("--option", "run_options", multiple=True, metavar="K=V", help="A run option, as turn_timeout_sec=60.")
@click.option("--answer", "answers", multiple=True, metavar="TEXT", help="An answer in advance; may be repeated.")
@click.option("--continue", "continued", metavar="RUN", help="Take up a run that was left, instead of a new one.")
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
    answers: tuple[str, ...],
    continued: str | None,
) -> int:
    """Run SKILL (a folder, or an installed id) here and now, asking on this terminal.

    The result goes to stdout, everything else to stderr. Exit codes: 0 it succeeded, 1 it failed, 2 bad input,
    4 it waits for an answer, 130 interrupted.
    """
    if (skill is None) == (continued is None):
        raise click.UsageError("name a SKILL to run, or a run to take up with --continue RUN")
    if continued is not None and (engine or mode or inputs or params or run_options):
        raise click.UsageError("--continue goes on with the run as it was submitted: only --answer may be added")
    answers = tuple(options.text(answer, "--answer") for answer in answers)

    from askback.bootstrap import open_library
    from askback.cli.line import on_terminal
    from askback.cli.request import Words, submission

    can_ask = on_terminal() and not as_json
    wanted = None
    if skill is not None:
        words = Words(skill=skill, engine=engine, mode=mode, inputs=inputs, params=params, run_options=run_options)
        package = open_library(settings).find(skill)
        may_ask = can_ask or bool(answers)
        wanted = submission(words, package, may_ask=may_ask, most_bytes=settings.limits.body_bytes)
    return _carry(settings, wanted, continued or "", answers, as_json=as_json, can_ask=can_ask)


def _carry(
    settings: Settings,
    wanted: Submission | None,
    continued: str,
    answers: tuple[str, ...],
    *,
    as_json: bool,
    can_ask: bool,
) -> int:
    """Submit a run or take one up, hold the conversation, print the result."""
    from askback.bootstrap import opened
    from askback.cli.conversation import converse
    from askback.cli.ending import print_result
    from askback.cli.live import choose
    from askback.cli.program import in_program

    async def main() -> int:
        async with opened(settings) as app:
            run = await app.service.submit(wanted) if wanted else await _take_up(app, continued)
            with choose(as_json=as_json) as display:
                opening = f"▸ {run.skill.id} on {run.engine} ({run.mode}) · run {run.id}"
                ending = await converse(app, run, display, answers=answers, can_ask=can_ask, opening=opening)
        print_result(ending, as_json=as_json)
        return ending.exit_code

    return in_program(main)


async def _take_up(app: App, run_id: str) -> Run:
    """The run, from now on carried by this program; one that is over is only told."""
    from askback.cli.left_runs import find_run

    run = await find_run(app.service, run_id)
    return run if run.state.final else await app.take_over(run_id)
