"""`askback reply`: answer a run that waits, and carry it on here if nobody else does."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from askback.cli import connection, options
from askback.core.errors import Invalid, NotFound, RefusalCode

if TYPE_CHECKING:
    from askback.bootstrap import App
    from askback.cli.exit_codes import Ending
    from askback.cli.terminal.live import Display
    from askback.core.interactions import Interaction
    from askback.core.runs import Run
    from askback.settings import Settings


@click.command("reply", short_help="Answer the question of a run that waits.")
@click.argument("run", shell_complete=connection.complete_run)
@click.argument("text", required=False)
@click.option("--interaction", metavar="ID", help="Answer this question and no other.")
@options.common
@connection.chosen
def command(
    settings: Settings,
    as_json: bool,
    run: str,
    text: str | None,
    interaction: str | None,
    url: str | None,
    token: str | None,
) -> int:
    """Answer the question of RUN with TEXT; without TEXT, ask for it here, or read it from a pipe.

    Goes through the server, if one is named or runs on the data folder; else it works on the data folder itself. If the program that kept the run is gone, the run goes on in this one, until it ends or asks again.
    """
    from askback.cli.terminal.prompt import on_terminal

    can_ask = on_terminal() and not as_json
    text = options.text(text, "TEXT") if text is not None else None if can_ask else _piped()
    server = connection.find(settings, url, token)
    if server is None:
        return _reply_here(settings, run, text, interaction, as_json=as_json, can_ask=can_ask)

    from askback.cli.commands.served_reply import reply_there

    with connection.telling():
        return reply_there(server, run, text, interaction, as_json=as_json)


def _reply_here(
    settings: Settings, run: str, text: str | None, interaction: str | None, *, as_json: bool, can_ask: bool
) -> int:
    from askback.bootstrap import opened
    from askback.cli.exit_codes import in_program, print_result
    from askback.cli.response import pending_question
    from askback.cli.terminal.live import choose

    async def main() -> int:
        async with opened(settings) as app:
            pending = pending_question(await _find_here(app, settings, run), interaction)
            with choose(as_json=as_json) as display:
                ending = await _answer(app, run, pending, text, display, can_ask=can_ask)
        print_result(ending, as_json=as_json)
        return ending.exit_code

    return in_program(main)


async def _find_here(app: App, settings: Settings, run_id: str) -> Run:
    """The run, if it lies in the data folder; where nothing waits at all, a server was meant that does not run."""
    from askback.cli.resumable_runs import find_run

    try:
        return await find_run(app.service, run_id)
    except NotFound as missing:
        if missing.problems:
            raise
        raise connection.nowhere(settings, f"; here {missing.message}") from None


def _piped() -> str:
    if sys.stdin.isatty():
        raise click.UsageError("name the answer: askback reply RUN TEXT, or pipe it in")
    from askback.skills.validation import MAX_REPLY_BYTES

    content = sys.stdin.buffer.read(MAX_REPLY_BYTES + 2)
    if len(content.removesuffix(b"\n")) > MAX_REPLY_BYTES:
        message = f"the answer from the pipe is too long: at most {MAX_REPLY_BYTES:,} bytes are allowed"
        raise Invalid(RefusalCode.REPLY_INVALID, message)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Invalid(RefusalCode.INPUT_INVALID, "the answer from the pipe is not text in UTF-8") from None
    if not text:
        raise click.UsageError("there is no answer: name it, askback reply RUN TEXT, or pipe it in")
    return text.removesuffix("\n")


async def _answer(
    app: App, run_id: str, pending: Interaction, text: str | None, display: Display, *, can_ask: bool
) -> Ending:
    """Send the answer, then follow the run if it goes on here."""
    from askback.cli.exit_codes import conclude
    from askback.cli.response import response_to
    from askback.cli.terminal.prompt import Abandoned

    try:
        gone = partial(app.service.settled, run_id, pending.interaction_id)
        response = await response_to(pending, text, display, gone, run_id)
    except Abandoned:
        return await conclude(app, await app.service.store.get(run_id), display, interrupted=False)
    answered = await app.service.reply(run_id, response, pending.interaction_id)
    return await _go_on(app, answered, display, pending, can_ask=can_ask)


async def _go_on(app: App, run: Run, display: Display, answered: Interaction, *, can_ask: bool) -> Ending:
    """Follow the run here if it is ours now; else it goes on where it is kept."""
    from askback.cli.exit_codes import Ending
    from askback.cli.terminal.conversation import converse
    from askback.core.runs import SHARED
    from askback.wire.base import plain
    from askback.wire.runs import Run as WireRun

    if app.service.owned_elsewhere(run):
        place = "its server" if run.owner == SHARED else "the program that keeps it"
        display.write(f"✔ sent; run {run.id} goes on in {place}")
        return Ending(run=run, exit_code=0, document=plain(WireRun.of(run)))
    after = await app.service.closed_at(run.id, answered.interaction_id)
    return await converse(app, run, display, can_ask=can_ask, after=after)
