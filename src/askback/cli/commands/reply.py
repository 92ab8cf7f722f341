"""`askback reply`: answers a question, through the server or on the data folder itself."""

from __future__ import annotations

import sys
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from askback.cli import connection, exit_codes, options, output
from askback.cli.commands.completion import complete_waiting_run
from askback.cli.exit_codes import run_async
from askback.cli.help import Command
from askback.core.errors import Conflict, Invalid, NotFound, RefusalCode
from askback.text.formatting import printable

if TYPE_CHECKING:
    from askback.app import App
    from askback.cli.terminal.conversation import Ending
    from askback.cli.terminal.live import Display
    from askback.cli.terminal.prompt import Settled
    from askback.client import AsyncClient, Run
    from askback.core.interactions import Interaction, Json
    from askback.settings.model import Settings


@click.command(
    "reply",
    cls=Command,
    examples=(
        'askback reply 1m7g "relaxed, please"',
        "askback reply 1m7g                   # asks here: for forms and secrets",
        "askback reply 1m7g < letter.txt",
        """askback reply 1m7g '{"pace": "relaxed", "nights": 3}'   # a form at once""",
    ),
)
@click.argument("run", cls=options.RunArgument, shell_complete=complete_waiting_run)
@click.argument("text", required=False)
@click.option("--interaction", metavar="ID", help="Answer only the question with this id.")
@options.common
@connection.server_options
def command(
    settings: Settings,
    as_json: bool,
    run: str,
    text: str | None,
    interaction: str | None,
    url: str | None,
    token: str | None,
) -> int:
    """Answer the question of RUN with TEXT. Without TEXT, ask for it on this terminal, or read it from a pipe.

    The answer goes to the server, if one is given or runs on the data folder. Otherwise this program works on the
    data folder itself: if the run's owner has ended, it executes the run until it ends or asks again.
    """
    from askback.cli.terminal.prompt import on_terminal

    can_ask = on_terminal() and not as_json
    text = options.text(text, "TEXT") if text is not None else None if can_ask else _piped()
    if connection.find(settings, url, token) is None:
        return run_async(_reply_here(settings, run, text, interaction, as_json=as_json, can_ask=can_ask))
    return run_async(_reply_to_server(settings, url, token, run, text, interaction, as_json=as_json))


def _piped() -> str:
    if sys.stdin.isatty():
        raise click.UsageError(
            "pipe the answer in: askback reply RUN < FILE; or, unless it is secret, give it: askback reply RUN TEXT"
        )
    from askback.skills.validation import MAX_REPLY_BYTES

    content = sys.stdin.buffer.read(MAX_REPLY_BYTES + 2)
    if len(content.removesuffix(b"\n")) > MAX_REPLY_BYTES:
        message = f"the answer from the pipe is too long: at most {MAX_REPLY_BYTES:,} bytes are allowed"
        raise Invalid(RefusalCode.REPLY_INVALID, message)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise Invalid(RefusalCode.INPUT_INVALID, "the answer from the pipe is not UTF-8 text") from None
    if not text:
        raise click.UsageError(
            "the pipe is empty; pipe the answer in, or, unless it is secret, give it: askback reply RUN TEXT"
        )
    return text.removesuffix("\n")


def _pending_question(run: Run, wanted: str | None) -> Interaction:
    """The question to answer; with `wanted`, no other."""
    pending = run.pending_interaction
    if pending is None:
        message = f"run {run.id} has no pending question; its state is {run.state}"
        raise Conflict(RefusalCode.INTERACTION_NOT_PENDING, message + _closing(run))
    if wanted is not None and wanted != pending.interaction_id:
        raise Conflict(
            RefusalCode.INTERACTION_NOT_PENDING,
            f"question {wanted!r} of run {run.id} is not pending; {pending.interaction_id!r} is",
        )
    return pending.as_core()


def _closing(run: Run) -> str:
    """Who closed the last question."""
    from askback.cli.terminal.render import who

    closed = run.closed_interaction
    if closed is None or closed.answered_with is None:
        return ""
    return f"; {closed.outcome} by {who(closed.answered_with)}"


async def _response(pending: Interaction, text: str | None, display: Display, settled: Settled, run_id: str) -> Json:
    """The answer in the text, or typed on this terminal; None if the question is closed elsewhere first."""
    from askback.cli.terminal import question
    from askback.cli.terminal.prompt import interrupt_leaves
    from askback.questions.typed_answers import read_answer, refusal
    from askback.questions.view import is_form

    if text is not None:
        response = read_answer(pending, text)
        if response == "":
            raise Invalid(RefusalCode.REPLY_INVALID, "the answer is empty, and the question has no default")
        if why_not := refusal(pending, text):
            raise Invalid(RefusalCode.REPLY_INVALID, why_not)
        if isinstance(response, str) and is_form(pending):
            message = f"this question is a form; answer it with: {question.reply_command(run_id, pending)}, or give a JSON object"
            raise Invalid(RefusalCode.REPLY_INVALID, message)
        return response
    display.pause()
    with interrupt_leaves(settled) as settled_or_left:
        response = await question.ask(pending, display.write, settled_or_left)
    display.resume()
    return response


def _settled_elsewhere(pending: Interaction, run: Run) -> Conflict:
    message = f"question {pending.interaction_id!r} of run {run.id} was settled elsewhere in the meantime"
    return Conflict(RefusalCode.INTERACTION_NOT_PENDING, message + _closing(run))


def _sent(run: Run, *, lacks_worker: bool) -> str:
    follow = f"askback watch {run.id}"
    if lacks_worker:
        return f"✔ sent; run {run.id} waits for a server or worker that has {printable(run.engine)}; follow it with: {follow}"
    return f"✔ sent; follow run {run.id} with: {follow}"


async def _reply_here(
    settings: Settings, given: str, text: str | None, interaction: str | None, *, as_json: bool, can_ask: bool
) -> int:
    from askback.app import opened
    from askback.cli.runs import find_run
    from askback.cli.terminal.conversation import print_result
    from askback.cli.terminal.live import choose
    from askback.wire.runs import Run

    async with opened(settings) as app:
        try:
            found = await find_run(app, given)
        except NotFound as missing:
            if missing.problems:
                raise
            # No run waits in the data folder: the user probably meant a server that is not running.
            raise connection.no_server(settings, f"; in the data folder, {missing.message}") from None
        pending = _pending_question(Run.of(found), interaction)
        with choose(as_json=as_json) as display:
            ending = await _answer_here(app, found.id, pending, text, display, can_ask=can_ask)
    print_result(ending, as_json=as_json)
    return ending.exit_code


async def _answer_here(
    app: App, run_id: str, pending: Interaction, text: str | None, display: Display, *, can_ask: bool
) -> Ending:
    """Store the answer, and execute the run here unless another program owns it."""
    from askback.cli.connection import system_user
    from askback.cli.terminal.conversation import Ending, conclude, converse
    from askback.cli.terminal.prompt import Abandoned
    from askback.core.runs import SHARED, RunState
    from askback.wire.base import plain
    from askback.wire.runs import Run

    try:
        settled = partial(app.service.settled, run_id, pending.interaction_id)
        response = await _response(pending, text, display, settled, run_id)
    except Abandoned:
        return await conclude(app, await app.service.store.get(run_id), display, interrupted=False)
    if response is None:
        raise _settled_elsewhere(pending, Run.of(await app.service.store.get(run_id)))
    run = await app.service.reply(run_id, response, pending.interaction_id, by=system_user())
    if await app.service.owned_elsewhere(run):
        shown = Run.of(run)
        if run.owner != SHARED:
            display.write(f"✔ sent; run {run.id} continues in the program that owns it")
        else:
            # With SQLite there is no worker: its server would have been asked.
            alive = [each for each in await app.workers() if each.state not in ("draining", "gone")]
            has_worker = any(run.engine == offered.name for each in alive for offered in each.engines)
            display.write(_sent(shown, lacks_worker=run.state is RunState.QUEUED and not has_worker))
        return Ending(run=run, exit_code=0, document=plain(shown))
    after = await app.service.closed_at(run.id, pending.interaction_id)
    return await converse(app, run, display, can_ask=can_ask, after=after)


async def _reply_to_server(
    settings: Settings,
    url: str | None,
    token: str | None,
    given: str,
    text: str | None,
    interaction: str | None,
    *,
    as_json: bool,
) -> int:
    from askback.cli.runs import full_id
    from askback.cli.terminal.live import choose
    from askback.cli.terminal.prompt import Abandoned
    from askback.cli.terminal.question import how_to_answer
    from askback.wire.base import plain

    async with connection.client_of(settings, url, token) as client:
        with choose(as_json=as_json) as display:
            run_id, code = await full_id(client, given), 0
            run = await client.get_run(run_id)
            pending = _pending_question(run, interaction)
            settled = partial(_settled, client, run_id, pending.interaction_id)
            try:
                response = await _response(pending, text, display, settled, run_id)
            except Abandoned:
                display.write(f"… {how_to_answer(run_id, pending)}")
                code = exit_codes.WAITING
            else:
                if response is None:
                    raise _settled_elsewhere(pending, await client.get_run(run_id))
                run = await client.reply(run_id, pending.interaction_id, response)
                display.write(_sent(run, lacks_worker=run.queue_reason == "no_worker"))
    if as_json:
        output.print_json(plain(run))
    return code


async def _settled(client: AsyncClient, run_id: str, interaction_id: str) -> None:
    """Return when the question is closed. If the server stops responding, the answer can still be typed."""
    import asyncio

    from askback.client import CallFailed

    with suppress(CallFailed):
        async with aclosing(client.follow(run_id)) as events:
            async for event in events:
                if event.type == "interaction.closed" and event.data.get("interaction_id") == interaction_id:
                    return
    await asyncio.Event().wait()
