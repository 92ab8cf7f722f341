"""`askback demo`: a complete run in a minute, without an account or a network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options
from askback.cli.exit_codes import run_async
from askback.cli.help import Command, program
from askback.text.formatting import printable

if TYPE_CHECKING:
    from askback.app import App
    from askback.core.runs import Run
    from askback.settings.model import Settings

_ANSWER = "balanced"


@click.command(
    "demo",
    cls=Command,
    examples=(
        "askback demo",
        "askback demo --answer packed        # without a terminal",
    ),
)
@click.option(
    "--answer", "answers", multiple=True, metavar="TEXT", help="The answer, instead of asking on this terminal."
)
@options.common
def command(settings: Settings, as_json: bool, answers: tuple[str, ...]) -> int:
    """A skill starts, asks you a question, waits, resumes in a new process and prints its validated output.

    Uses the bundled engine `scripted`, so it needs no account and no network. Without --data-dir it runs in a
    temporary folder.
    """
    from askback.cli.terminal.prompt import on_terminal

    answers = tuple(options.text(answer, "--answer") for answer in answers)
    if not answers and (as_json or not on_terminal()):
        answers = (_ANSWER,)
    if click.get_current_context().params.get("data_dir") is not None:
        return run_async(_tour(settings, answers, as_json=as_json, kept=True))
    with tempfile.TemporaryDirectory(prefix="askback-demo-") as folder:
        private = settings.model_copy(
            update={"data_dir": Path(folder), "database": None, "files": None, "runs_dir": None}
        )
        return run_async(_tour(private, answers, as_json=as_json, kept=False))


async def _tour(settings: Settings, answers: tuple[str, ...], *, as_json: bool, kept: bool) -> int:
    from askback.app import opened
    from askback.cli.connection import system_user
    from askback.cli.terminal.conversation import converse, print_result
    from askback.cli.terminal.live import choose
    from askback.cli.terminal.prompt import on_terminal
    from askback.runs.submission import Submission
    from askback.skills.library import DEMO

    wanted = Submission(
        by=system_user(),
        skill=str(DEMO),
        engine="scripted",
        mode="interactive",
        input={"destination": "Lisbon", "days": 3},
    )
    async with opened(settings) as app:
        with choose(as_json=as_json) as display:
            display.write("Askback runs agent skills that can ask back. Here is a complete run.\n")
            display.write(f"▸ askback run {DEMO.name} --engine scripted --input destination=Lisbon --input days=3")
            run = await app.service.submit(wanted)
            can_ask = on_terminal() and not as_json
            ending = await converse(app, run, display, answers=answers, can_ask=can_ask, kept=kept)
            for line in await _explanation(app, ending.run):
                display.write(line)
    print_result(ending, as_json=as_json)
    return ending.exit_code


async def _explanation(app: App, run: Run) -> list[str]:
    from askback.core.runs import RunState

    if run.handle is None or run.state is not RunState.SUCCEEDED:
        return []
    answer = (await app.service.store.interactions(run.id))[0].response
    return [
        "",
        "  What happened: the first engine process ended after its question. While the",
        "  run waited, it was a row in a database, without a process or a slot. The answer",
        f"  ({printable(str(answer))}) started a new process, which resumed the same session,",
        f"  {run.handle.handle_value}. The output below matches the skill's schema.",
        "",
        "  Next:",
        *(f"    {program()} {command}" for command in ("engines", "skills new my-skill", "run FOLDER")),
        "",
    ]
