"""The commands on a server's runs: `runs`, `show`, `watch`, `inbox`, `cancel`."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

import click

from askback.cli import exit_codes, output
from askback.cli.connection import complete_run, connected
from askback.text.formatting import printable

if TYPE_CHECKING:
    from askback.cli.connection import Server
    from askback.cli.terminal.live import Display
    from askback.client import AsyncClient, Event, Run

_STATES = ("queued", "running", "waiting_user", "succeeded", "failed", "canceled")


@click.command("runs", short_help="List the runs of a server.")
@click.option("--state", type=click.Choice(_STATES), help="Only runs in this state.")
@click.option("--skill", metavar="ID", help="Only runs of this skill.")
@click.option("--engine", metavar="E", help="Only runs on this engine.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of runs.")
@connected
def runs_command(
    server: Server, as_json: bool, state: str | None, skill: str | None, engine: str | None, limit: int
) -> int:
    """List the runs of a server, newest first: state, skill, engine, age, and the pending question or the error."""
    from askback.cli.terminal import render

    with server.client() as client:
        chosen = client.list_runs(state=state, skill=skill, engine=engine, page_size=min(limit + 1, 200))
        runs = list(islice(chosen, limit + 1))
    if as_json:
        output.print_json([render.document(run) for run in runs[:limit]])
        return 0
    for run in runs[:limit]:
        print(render.line(run))
    if not runs:
        output.to_stderr("no run matches" if state or skill or engine else "there are no runs yet")
    if len(runs) > limit:
        output.to_stderr(f"… there are more; list them with: --limit {2 * limit}")
    return 0


@click.command("show", short_help="Show a run: state, questions, warnings, error, usage, files.")
@click.argument("run", shell_complete=complete_run)
@connected
def show_command(server: Server, as_json: bool, run: str) -> int:
    """Show RUN: its state, questions and answers, warnings, error, usage and files."""
    import msgspec

    from askback.cli.terminal import render

    with server.client() as client:
        found = client.get_run(run)
        interactions, artifacts = client.interactions(run), client.artifacts(run)
    if as_json:
        parts = {"interactions": interactions, "artifacts": artifacts}
        output.print_json(render.document(found) | msgspec.to_builtins(parts))
        return 0
    for line in render.page(found, interactions, artifacts):
        print(line)
    return 0


@click.command("watch", short_help="Follow a run live until it ends.")
@click.argument("run", shell_complete=complete_run)
@connected
def watch_command(server: Server, as_json: bool, run: str) -> int:
    """Follow RUN live until it ends, even if the server restarts. Its output goes to stdout.

    Ctrl-C stops watching; the run continues. Exit codes: 0 succeeded, 1 failed or canceled.
    """
    import msgspec

    from askback.cli.exit_codes import run_async
    from askback.cli.terminal import render
    from askback.cli.terminal.live import choose

    async def main() -> int:
        async with server.async_client() as client:
            with choose(as_json=as_json) as display:
                found = await _watch(client, run, display)
            result = await client.result(run)
        if as_json:
            output.print_json(render.document(found) | msgspec.to_builtins(result))
        elif result.status == "succeeded":
            output.print_output(result.data)
        return 0 if result.status == "succeeded" else exit_codes.FAILED

    return run_async(main)


async def _watch(client: AsyncClient, run_id: str, display: Display) -> Run:
    from askback.cli.terminal import render

    run = await client.get_run(run_id)
    display.write(f"▸ {printable(run.skill)} on {printable(run.engine)} ({run.mode}) · run {printable(run.id)}")
    try:
        async for event in client.follow(run_id):
            await _show_event(client, event, display)
    except asyncio.CancelledError as left:
        left.add_note(f"stopped watching; run {run_id} continues")
        raise
    run = await client.get_run(run_id)
    for line in render.ending(run):
        display.write(line)
    return run


async def _show_event(client: AsyncClient, event: Event, display: Display) -> None:
    from askback.cli.terminal import render

    if (shown := render.known(event)) is not None:
        display.event(shown)
    if event.type == "interaction.asked":
        run = await client.get_run(event.run_id)
        pending = run.pending_interaction
        if pending is not None and pending.interaction_id == event.data.get("interaction_id"):
            for line in render.question(run.id, pending, run.wait_deadline_at):
                display.write(line)


@click.command("inbox", short_help="List the pending questions.")
@connected
def inbox_command(server: Server, as_json: bool) -> int:
    """List the pending questions of all runs, oldest first, with age, deadline and how to answer."""
    import msgspec

    from askback.cli.terminal import render

    with server.client() as client:
        questions = list(client.inbox())
    if as_json:
        output.print_json(msgspec.to_builtins(questions))
        return 0
    for each in questions:
        print(f"run {printable(each.run_id)}: {printable(each.skill)} on {printable(each.engine)}")
        for line in render.question(each.run_id, each, each.wait_deadline_at):
            print(line)
    if not questions:
        output.to_stderr("no question is pending")
    return 0


@click.command("cancel", short_help="Cancel a run.")
@click.argument("run", shell_complete=complete_run)
@connected
def cancel_command(server: Server, as_json: bool, run: str) -> int:
    """Cancel RUN. Its engine is asked to end, then killed. The run is `canceled` when all its processes have ended."""
    from askback.cli.terminal import render

    with server.client() as client:
        found = client.cancel(run)
    if as_json:
        output.print_json(render.document(found))
    elif found.state.final:
        print(f"■ run {printable(run)} is {found.state}")
    else:
        print(f"… run {printable(run)} is being canceled; follow it with: askback watch {printable(run)}")
    return 0
