"""`askback audit`: who wrote what, through which channel and when. Of a server, or of the data folder."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import on_runs
from askback.cli.exit_codes import run_async
from askback.cli.help import Command
from askback.text.formatting import one_line

if TYPE_CHECKING:
    from askback.cli.connection import Access
    from askback.wire.access import AuditEntry

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]
_TIME = click.DateTime(_TIMES)


@click.command(
    "audit",
    cls=Command,
    examples=(
        "askback audit",
        "askback audit --actor anna --since 2026-03-01",
        "askback audit --action token.create --json",
    ),
)
@click.option("--actor", metavar="NAME", help="Only what was written under this name.")
@click.option("--action", metavar="ACTION", help="Only this action, such as interaction.reply.")
@click.option("--run", "run_id", metavar="ID", help="Only entries about this run, also if it was deleted.")
@click.option("--since", type=_TIME, metavar="TIME", help="Only entries from this time on, in UTC.")
@click.option("--until", type=_TIME, metavar="TIME", help="Only entries before this time, in UTC.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number.")
@on_runs
def command(
    access: Access,
    as_json: bool,
    actor: str | None,
    action: str | None,
    run_id: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> int:
    """List who wrote what, newest first: answers, runs, links, tokens, sessions, uploads and skills."""
    import msgspec

    from askback.core.access import Action

    if action is not None and action not in list(Action):
        raise click.UsageError(f"--action {one_line(action, 40)!r}: choose one of {', '.join(Action)}")
    found: list[AuditEntry] = []

    async def read() -> int:
        async with access() as source:
            entries = source.audit(actor=actor, action=action, run_id=run_id, since=_utc(since), until=_utc(until))
            async for each in entries:
                found.append(each)
                if len(found) > limit:
                    break
        return 0

    run_async(read)
    if as_json:
        output.print_json([msgspec.to_builtins(each) for each in found[:limit]])
        return 0
    if found:
        output.print_heading("TIME, ACTION, WHO, WHAT, FROM WHERE")
    for each in found[:limit]:
        output.print_line(_line(each), indent=2)
    if not found:
        output.to_stderr("no entry matches")
    if len(found) > limit:
        output.to_stderr(f"… there are more; list them with: --limit {2 * limit}")
    return 0


def _utc(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(tzinfo=UTC)


def _line(entry: AuditEntry) -> str:
    from askback.cli.terminal.people import who

    about = [
        f"run {entry.run_id}" if entry.run_id else "",
        f"question {entry.interaction_id}" if entry.interaction_id else "",
    ]
    what = ", ".join(part for part in (*about, entry.object or "") if part)
    parts = [who(entry.actor), one_line(what, 200), one_line(entry.address or "", 60)]
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  {one_line(entry.action, 24):<18} {'  '.join(part for part in parts if part)}"
