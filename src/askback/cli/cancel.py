"""`askback cancel`: ask a run of a server's to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import complete_run, connected
from askback.cli.text import printable

if TYPE_CHECKING:
    from askback.cli.connection import Server


@click.command("cancel", short_help="Cancel a run.")
@click.argument("run", shell_complete=complete_run)
@connected
def command(server: Server, as_json: bool, run: str) -> int:
    """Cancel RUN. Its engine is asked to end, then ended; the run is canceled once nothing of it lives."""
    from askback.cli import sheet

    with server.client() as client:
        found = client.cancel(run)
    if as_json:
        output.print_json(sheet.document(found))
    elif found.state.final:
        print(f"■ run {printable(run)} is {found.state}")
    else:
        print(f"… run {printable(run)} is being canceled; see it end with: askback watch {printable(run)}")
    return 0
