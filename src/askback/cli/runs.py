"""`askback runs`: the runs of a server, newest first."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import connected

if TYPE_CHECKING:
    from askback.cli.connection import Server

_STATES = ("queued", "running", "waiting_user", "succeeded", "failed", "canceled")


@click.command("runs", short_help="List the runs of a server.")
@click.option("--state", type=click.Choice(_STATES), help="Only those in this state.")
@click.option("--skill", metavar="ID", help="Only those of this skill.")
@click.option("--engine", metavar="E", help="Only those on this engine.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many at the most.")
@connected
def command(server: Server, as_json: bool, state: str | None, skill: str | None, engine: str | None, limit: int) -> int:
    """List the runs of a server, newest first: state, skill, engine, age, and what a run asks or failed of."""
    from askback.cli import sheet

    with server.client() as client:
        chosen = client.list_runs(state=state, skill=skill, engine=engine, page_size=min(limit + 1, 200))
        runs = list(islice(chosen, limit + 1))
    if as_json:
        output.print_json([sheet.document(run) for run in runs[:limit]])
        return 0
    for run in runs[:limit]:
        print(sheet.line(run))
    if not runs:
        output.tell("there are no such runs" if state or skill or engine else "there are no runs yet")
    if len(runs) > limit:
        output.tell(f"… there are more; see them with: --limit {2 * limit}")
    return 0
