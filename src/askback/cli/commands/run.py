"""`askback run`: a skill, here and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options
from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Json
from askback.service import Submission
from askback.skills.package import SkillPackage
from askback.skills.validation import file_inputs, typed_value

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
    from askback.cli.terminal.prompt import on_terminal

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
    from askback.cli.exit_codes import in_program, print_result
    from askback.cli.terminal.conversation import converse
    from askback.cli.terminal.live import choose

    async def main() -> int:
        async with opened(settings) as app:
            run = await app.service.submit(wanted) if wanted else await _restart(app, continued)
            with choose(as_json=as_json) as display:
                opening = f"▸ {run.skill.id} on {run.engine} ({run.mode}) · run {run.id}"
                ending = await converse(app, run, display, answers=answers, can_ask=can_ask, opening=opening)
        print_result(ending, as_json=as_json)
        return ending.exit_code

    return in_program(main)


async def _restart(app: App, run_id: str) -> Run:
    """The run, from now on carried by this program; one that is over is only told."""
    from askback.cli.resumable_runs import find_run

    run = await find_run(app.service, run_id)
    return run if run.state.final else await app.service.take_over(run_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The command line as it was typed."""

    skill: str
    engine: str | None
    mode: str | None
    inputs: Sequence[str]
    params: Sequence[str]
    run_options: Sequence[str]


def submission(words: Words, package: SkillPackage, *, may_ask: bool, most_bytes: int) -> Submission:
    """Values as the skill's schemas want them. `may_ask`: somebody is there, or has answered in advance."""
    mode = words.mode
    if mode is None and may_ask and "interactive" in package.execution_modes:
        mode = "interactive"
    given = options.pairs(words.inputs, "--input")
    files = _files(package, given)
    values = {key: value for key, value in given.items() if key not in files}
    params = options.pairs(words.params, "--param")
    return Submission(
        skill=words.skill,
        engine=words.engine,
        mode=mode,
        input=_typed(package.input_schema, values, "--input", most_bytes),
        parameter=_typed(package.parameter_schema, params, "--param", most_bytes),
        options=options.typed_options(options.pairs(words.run_options, "--option")),
        files=files,
    )


def _files(package: SkillPackage, given: Mapping[str, str]) -> dict[str, Path]:
    """The inputs that the skill wants as files."""
    wanted = [key for key in given if key in file_inputs(package)]
    files = {key: options.path_of(given[key][1:]) for key in wanted if given[key].startswith("@")}
    problems = [f"input.{key}: is to be a file; write --input {key}=@FILE" for key in wanted if key not in files]
    problems += [f"input.{key}: there is no file {path}" for key, path in files.items() if not options.is_file(path)]
    if problems:
        raise Invalid(RefusalCode.INPUT_INVALID, f"skill '{package.id}' cannot be run like this", problems)
    return files


def _typed(schema: dict[str, Json] | None, given: Mapping[str, str], option: str, most_bytes: int) -> dict[str, Json]:
    """Texts as the schema wants them: a number where it says number. Without a schema a text stays a text."""
    properties = (schema or {}).get("properties", {})
    texts = {key: _text(value, f"{option} {key}", most_bytes) for key, value in given.items()}
    return {key: typed_value(text, properties.get(key)) for key, text in texts.items()}


def _text(value: str, option: str, most_bytes: int) -> str:
    if value.startswith("@@"):
        return value[1:]
    return options.read_file(value[1:], option, most_bytes) if value.startswith("@") else value
