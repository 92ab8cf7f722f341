"""Answering a run's question through its server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING

from askback.cli import exit_codes, output
from askback.cli.exit_codes import in_program
from askback.cli.response import pending_question, response_to
from askback.cli.terminal import render
from askback.cli.terminal.live import Display, choose
from askback.cli.terminal.prompt import Abandoned
from askback.client import AsyncClient, CallFailed, Run

if TYPE_CHECKING:
    from askback.cli.connection import Server


def reply_there(server: Server, run_id: str, text: str | None, interaction: str | None, *, as_json: bool) -> int:
    """Send the answer; the server carries the run on."""

    async def main() -> int:
        async with server.async_client() as client:
            with choose(as_json=as_json) as display:
                run, code = await _answer(client, run_id, text, interaction, display)
        if as_json:
            output.print_json(render.document(run))
        return code

    return in_program(main)


async def _answer(
    client: AsyncClient, run_id: str, text: str | None, interaction: str | None, display: Display
) -> tuple[Run, int]:
    run = await client.get_run(run_id)
    pending = pending_question(run, interaction)
    gone = partial(_settled, client, run_id, pending.interaction_id)
    try:
        response = await response_to(pending, text, display, gone, run_id)
    except Abandoned:
        display.write(f"… run {run_id} waits for an answer; give it with: askback reply {run_id} TEXT")
        return run, exit_codes.WAITING
    answered = await client.reply(run_id, pending.interaction_id, response)
    display.write(f"✔ sent; see how run {run_id} goes on with: askback watch {run_id}")
    return answered, 0


async def _settled(client: AsyncClient, run_id: str, interaction_id: str) -> None:
    """Wait until that question is closed. When the server goes, the answer can still be typed."""
    with suppress(CallFailed):
        async with aclosing(client.follow(run_id)) as events:
            async for event in events:
                if event.type == "interaction.closed" and event.data.get("interaction_id") == interaction_id:
                    return
    await asyncio.Event().wait()
