"""`askback show`: one run of a server's, on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import complete_run, connected

if TYPE_CHECKING:
    from askback.cli.connection import Server


@click.command("show", short_help="Show a run: state, question, warnings, error, usage, files.")
@click.argument("run", shell_complete=complete_run)
@connected
def command(server: Server, as_json: bool, run: str) -> int:
    """Show RUN: its state, what it asks and asked, warnings, error, usage, and the files it has left."""
    import msgspec

    from askback.cli import sheet

    with server.client() as client:
        found = client.get_run(run)
        interactions, artifacts = client.interactions(run), client.artifacts(run)
    if as_json:
        parts = {"interactions": interactions, "artifacts": artifacts}
        output.print_json(sheet.document(found) | msgspec.to_builtins(parts))
        return 0
    for line in sheet.page(found, interactions, artifacts):
        print(line)
    return 0
