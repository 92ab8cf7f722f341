"""`askback inbox`: every question that waits for an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import connected
from askback.cli.text import printable

if TYPE_CHECKING:
    from askback.cli.connection import Server


@click.command("inbox", short_help="List the questions that wait for an answer.")
@connected
def command(server: Server, as_json: bool) -> int:
    """List every pending question of a server's runs, the oldest first, with its age, its deadline, and how to answer."""
    import msgspec

    from askback.cli import sheet

    with server.client() as client:
        questions = list(client.inbox())
    if as_json:
        output.print_json(msgspec.to_builtins(questions))
        return 0
    for each in questions:
        print(f"run {printable(each.run_id)}: {printable(each.skill)} on {printable(each.engine)}")
        for line in sheet.question(each.run_id, each, each.wait_deadline_at):
            print(line)
    if not questions:
        output.tell("no question waits for an answer")
    return 0
