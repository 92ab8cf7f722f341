"""`askback watch`: a run of a server's, live until it ends."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

import click

from askback.cli import exits, output
from askback.cli.connection import complete_run, connected
from askback.cli.text import printable

if TYPE_CHECKING:
    from askback.cli.connection import Server
    from askback.cli.live import Display
    from askback.client import AsyncClient, Event, Result, Run


@click.command("watch", short_help="Follow a run live until it ends.")
@click.argument("run", shell_complete=complete_run)
@connected
def command(server: Server, as_json: bool, run: str) -> int:
    """Follow RUN live until it ends, also through restarts of the server. Its result goes to stdout.

    Ctrl-C stops watching; the run goes on. Exit codes: 0 it succeeded, 1 it failed or was canceled.
    """
    from askback.cli.live import choose
    from askback.cli.program import in_program

    async def main() -> int:
        async with server.async_client() as client:
            with choose(as_json=as_json) as display:
                found = await _watch(client, run, display)
            result = await client.result(run)
        _print(found, result, as_json=as_json)
        return 0 if result.status == "succeeded" else exits.FAILED

    return in_program(main)


async def _watch(client: AsyncClient, run_id: str, display: Display) -> Run:
    from askback.cli import sheet

    run = await client.get_run(run_id)
    display.write(f"▸ {printable(run.skill)} on {printable(run.engine)} ({run.mode}) · run {printable(run.id)}")
    try:
        async for event in client.follow(run_id):
            await _tell(client, event, display)
    except asyncio.CancelledError as left:
        left.add_note(f"stopped watching; run {run_id} goes on")
        raise
    run = await client.get_run(run_id)
    for line in sheet.ending(run):
        display.write(line)
    return run


async def _tell(client: AsyncClient, event: Event, display: Display) -> None:
    from askback.cli import sheet

    if (shown := sheet.known(event)) is not None:
        display.event(shown)
    if event.type == "interaction.asked":
        run = await client.get_run(event.run_id)
        pending = run.pending_interaction
        if pending is not None and pending.interaction_id == event.data.get("interaction_id"):
            for line in sheet.question(run.id, pending, run.wait_deadline_at):
                display.write(line)


def _print(run: Run, result: Result, *, as_json: bool) -> None:
    import msgspec

    from askback.cli import sheet

    if as_json:
        output.print_json(sheet.document(run) | msgspec.to_builtins(result))
    elif result.status == "succeeded":
        text = result.data if isinstance(result.data, str) else json.dumps(result.data, ensure_ascii=False, indent=2)
        print(printable(text) if sys.stdout.isatty() else text)
