"""`askback reply`: answer a run that waits, and carry it on here if nobody else does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from askback.cli import options
from askback.core.errors import Conflict, RefusalCode

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.cli.live import Display
    from askback.core.interactions import Interaction
    from askback.core.runs import Run
    from askback.settings import Settings


@click.command("reply", short_help="Answer the question of a run that waits.")
@click.argument("run")
@click.argument("text", required=False)
@click.option("--interaction", metavar="ID", help="Answer this question and no other.")
@options.common
def command(settings: Settings, as_json: bool, run: str, text: str | None, interaction: str | None) -> int:
    """Answer the question of RUN with TEXT; without TEXT, ask for it here, or read it from a pipe.

    If the program that kept the run is gone, the run goes on in this one, until it ends or asks again.
    """
    from askback.bootstrap import opened
    from askback.cli.conversation import in_program
    from askback.cli.live import choose

    if text is None and not sys.stdin.isatty():
        text = sys.stdin.read().removesuffix("\n")

    async def main() -> int:
        async with opened(settings) as app:
            pending = _pending(await app.service.get(run), interaction)
            with choose(as_json=as_json) as display:
                answered = await _answer(app, run, pending, text, display)
                return await _go_on(app, answered, display, pending, as_json=as_json)

    return in_program(main)


def _pending(run: Run, wanted: str | None) -> Interaction:
    pending = run.pending_interaction
    if pending is None:
        raise Conflict(
            RefusalCode.INTERACTION_NOT_PENDING, f"run {run.id} is {run.state}: it asks nothing at the moment"
        )
    if wanted is not None and wanted != pending.interaction_id:
        raise Conflict(
            RefusalCode.INTERACTION_NOT_PENDING,
            f"question {wanted!r} of run {run.id} is not pending; {pending.interaction_id!r} is",
        )
    return pending


async def _answer(app: App, run_id: str, pending: Interaction, text: str | None, display: Display) -> Run:
    from askback.cli import asking

    if text is not None:
        response = asking.read_answer(pending, text)
    else:
        display.pause()
        response = await asking.ask(pending, display.write, lambda: app.service.settled(run_id, pending.interaction_id))
        display.resume()
    return await app.service.reply(run_id, response, pending.interaction_id)


async def _go_on(app: App, run: Run, display: Display, answered: Interaction, *, as_json: bool) -> int:
    """Follow the run here if it is ours now; else it goes on where it is kept."""
    from askback.cli.conversation import Conversation, Ending, conclude, print_result
    from askback.core.views import run_view

    if app.service.keeps_elsewhere(run):
        display.write(f"✔ sent; run {run.id} goes on in the program that keeps it")
        print_result(Ending(run=run, exit_code=0, document=run_view(run)), as_json=as_json)
        return 0
    conversation = Conversation(app, run.id, answers=(), display=display, can_ask=sys.stdin.isatty() and not as_json)
    async with app.working():
        run = await conversation.hold(await app.service.closed_at(run.id, answered.interaction_id))
    ending = await conclude(app, run, display, interrupted=conversation.interrupted)
    print_result(ending, as_json=as_json)
    return ending.exit_code
