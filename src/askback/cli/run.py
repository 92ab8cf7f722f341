"""`askback run`: a skill, here and now."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options
from askback.core.errors import Invalid, RefusalCode

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.cli.live import Display
    from askback.core.interactions import Json
    from askback.service import Submission
    from askback.settings import Settings
    from askback.skills.package import SkillPackage


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

    from askback.bootstrap import open_library

    submission = None
    if skill is not None:
        package = open_library(settings).find(skill)
        submission = _submission(package, skill, engine, _mode(package, mode, answers), inputs, params, run_options)
    return carry(settings, submission, continued, answers, as_json=as_json)


def carry(
    settings: Settings,
    submission: Submission | None,
    run_id: str | None,
    answers: Iterable[str],
    *,
    as_json: bool,
) -> int:
    """Submit a run or take one up, hold the conversation, print the result."""
    from askback.bootstrap import opened
    from askback.cli.conversation import Conversation, conclude, in_program, print_result
    from askback.cli.live import choose

    async def main() -> int:
        async with opened(settings) as app:
            run = await app.service.submit(submission) if submission else await app.take_over(run_id or "")
            with choose(as_json=as_json) as display:
                introduce(display, app, run.id, run.skill.id, run.engine, run.mode)
                conversation = Conversation(
                    app, run.id, answers=answers, display=display, can_ask=sys.stdin.isatty() and not as_json
                )
                async with app.working():
                    run = await conversation.hold()
                ending = await conclude(app, run, display, interrupted=conversation.interrupted)
        print_result(ending, as_json=as_json)
        return ending.exit_code

    return in_program(main)


def introduce(display: Display, app: App, run_id: str, skill: str, engine: str, mode: str) -> None:
    display.write(f"▸ {skill} on {engine} ({mode}) · run {run_id}")


def _mode(package: SkillPackage, wanted: str | None, answers: tuple[str, ...]) -> str | None:
    """On a terminal, or with answers at hand, a skill that may ask is allowed to."""
    if wanted is None and "interactive" in package.execution_modes and (answers or sys.stdin.isatty()):
        return "interactive"
    return wanted


def _submission(
    package: SkillPackage,
    skill: str,
    engine: str | None,
    mode: str | None,
    inputs: tuple[str, ...],
    params: tuple[str, ...],
    run_options: tuple[str, ...],
) -> Submission:
    from askback.service import Submission

    values, files = _inputs(package, options.pairs(inputs, "--input"))
    return Submission(
        skill=skill,
        engine=engine,
        mode=mode,
        input=values,
        parameter=_typed(package.parameter_schema, options.pairs(params, "--param"), "--param"),
        options=options.typed_options(options.pairs(run_options, "--option")),
        files=files,
    )


def _inputs(package: SkillPackage, given: dict[str, str]) -> tuple[dict[str, Json], dict[str, Path]]:
    from askback.skills.schemas import file_inputs

    wanted = file_inputs(package)
    files = {
        key: Path(value[1:]).expanduser() for key, value in given.items() if key in wanted and value.startswith("@")
    }
    problems = [
        f"input.{key}: is to be a file; write --input {key}=@FILE"
        for key in given
        if key in wanted and key not in files
    ]
    problems += [f"input.{key}: there is no file {path}" for key, path in files.items() if not path.is_file()]
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"skill '{package.id}' cannot be run like this", problems)
    values = {key: value for key, value in given.items() if key not in files}
    return _typed(package.input_schema, values, "--input"), files


def _typed(schema: dict[str, Json] | None, given: dict[str, str], option: str) -> dict[str, Json]:
    """Texts as the schema wants them: a number where it says number. Without a schema a text stays a text."""
    from askback.skills.schemas import typed_value

    properties = (schema or {}).get("properties", {})
    return {key: typed_value(_text(value, f"{option} {key}"), properties.get(key)) for key, value in given.items()}


def _text(value: str, option: str) -> str:
    if value.startswith("@@"):
        return value[1:]
    return options.read_file(value[1:], option) if value.startswith("@") else value
