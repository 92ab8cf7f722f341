"""`askback demo`: the whole story in a minute, with no account and no network."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import options
from askback.text.terminal import printable

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.core.runs import Run
    from askback.settings import Settings

_ANSWER = "balanced"


@click.command("demo", short_help="A tour: a skill runs, asks, gets its answer, and prints its checked result.")
@click.option("--answer", "answers", multiple=True, metavar="TEXT", help="The answer, instead of asking for it here.")
@options.common
def command(settings: Settings, as_json: bool, answers: tuple[str, ...]) -> int:
    """A skill is started, asks you something, waits, goes on in a new process and prints its checked result.

    Played by the bundled engine `scripted`: no account, no network. Runs in a folder of its own, which is removed,
    unless --data-dir is given.
    """
    from askback.cli.terminal.prompt import on_terminal

    answers = tuple(options.text(answer, "--answer") for answer in answers)
    if not answers and (as_json or not on_terminal()):
        answers = (_ANSWER,)
    if click.get_current_context().params.get("data_dir") is not None:
        return _tour(settings, answers, as_json=as_json, kept=True)
    with tempfile.TemporaryDirectory(prefix="askback-demo-") as folder:
        private = settings.model_copy(update={"data_dir": Path(folder)})
        return _tour(private, answers, as_json=as_json, kept=False)


def _tour(settings: Settings, answers: tuple[str, ...], *, as_json: bool, kept: bool) -> int:
    from askback.bootstrap import opened
    from askback.cli.exit_codes import in_program, print_result
    from askback.cli.terminal.conversation import converse
    from askback.cli.terminal.live import choose
    from askback.cli.terminal.prompt import on_terminal
    from askback.service import Submission
    from askback.skills.library import DEMO

    wanted = Submission(
        skill=str(DEMO),
        engine="scripted",
        mode="interactive",
        input={"destination": "Lisbon", "days": 3},
    )

    async def main() -> int:
        async with opened(settings) as app:
            with choose(as_json=as_json) as display:
                display.write("Askback runs agent skills that can ask back. Here is one, from start to end.\n")
                display.write(f"▸ askback run {DEMO.name} --engine scripted --input destination=Lisbon --input days=3")
                run = await app.service.submit(wanted)
                can_ask = on_terminal() and not as_json
                ending = await converse(app, run, display, answers=answers, can_ask=can_ask, kept=kept)
                for line in await _lesson(app, ending.run):
                    display.write(line)
        print_result(ending, as_json=as_json)
        return ending.exit_code

    return in_program(main)


async def _lesson(app: App, run: Run) -> list[str]:
    """What there was to see."""
    from askback.core.runs import RunState

    if run.handle is None or run.state is not RunState.SUCCEEDED:
        return []
    answer = (await app.service.store.interactions(run.id))[0].response
    return [
        "",
        "  What happened: the first engine process ended when it had asked. While it",
        "  waited, the run was a row in a database: no process, no slot. Your answer",
        f"  ({printable(str(answer))}) started a new process, which went on in the same session,",
        f"  {run.handle.handle_value}. The output below passed its schema.",
        "",
        "  Next: askback engines · askback skills check FOLDER · askback run FOLDER",
        "",
    ]
