"""The commands on runs, of a server or of the data folder: `runs`, `show`, `watch`, `inbox`, `cancel`, `resume`, `delete`, `usage`, `audit`."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from askback.cli import exit_codes, options, output
from askback.cli.commands.completion import complete_engine, complete_open_run, complete_run, complete_skill
from askback.cli.help import Command
from askback.cli.runs import full_id, on_runs
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from askback.cli.runs import Runs
    from askback.cli.terminal.live import Display
    from askback.client import Artifact, AuditEntry, Event, Run

_STATES = ("queued", "running", "waiting_user", "succeeded", "failed", "canceled")
_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])


@click.command(
    "runs",
    cls=Command,
    examples=(
        "askback runs",
        "askback runs --state waiting_user",
        "askback runs --skill trip-planner --json",
        "askback runs --label customer=4711",
    ),
)
@click.option("--state", type=click.Choice(_STATES), help="Only runs in this state.")
@click.option("--skill", metavar="ID", shell_complete=complete_skill, help="Only runs of this skill.")
@click.option("--engine", metavar="E", shell_complete=complete_engine, help="Only runs on this engine.")
@options.label("Only runs with this label; repeatable: runs that have all of them.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of runs.")
@on_runs
async def runs_command(runs: Runs, as_json: bool, label: tuple[str, ...], limit: int, **where: Any) -> int:
    """List the runs, newest first: state, skill, engine, age, and the pending question or the error."""
    from askback.cli.terminal import render

    found: list[Run] = []
    labels = options.labels_of(label)
    async for run in runs.list_runs(**where, labels=labels, page_size=min(limit + 1, 200)):
        found.append(run)
        if len(found) > limit:
            break
    empty = "no run matches" if any(where.values()) or labels else "there are no runs yet"
    width = output.columns()
    if width is None or as_json:
        output.print_list(found[:limit], render.line, as_json=as_json, empty=empty)
    else:
        heading, *lines = render.table(found[:limit], width)
        output.print_list(lines, str, as_json=False, heading=heading, empty=empty)
    if len(found) > limit and not as_json:
        output.to_stderr(f"… there are more; list them with: --limit {2 * limit}")
    return 0


@click.command("show", cls=Command, examples=("askback show 1m7g                    # the start of an id is enough",))
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
async def show_command(runs: Runs, as_json: bool, run: str) -> int:
    """Show RUN: its state, questions and answers, warnings, error, usage and files."""
    import msgspec

    from askback.cli.terminal import render

    run_id = await full_id(runs, run)
    found = await runs.get_run(run_id)
    interactions, artifacts = await runs.interactions(run_id), await _artifacts(runs, run_id)
    unavailable = isinstance(artifacts, str)
    reads_changes = found.workdir and found.state.final and not unavailable
    changes = (await runs.result(run_id)).changes if reads_changes else None
    if as_json:
        listed = {"artifacts": None, "files_unavailable": artifacts} if unavailable else {"artifacts": artifacts}
        parts = {"interactions": interactions, **listed, **({} if changes is None else {"changes": changes})}
        output.print_json(msgspec.to_builtins(found) | msgspec.to_builtins(parts))
        return 0
    for line in render.page(found, interactions, artifacts, changes):
        output.print_line(line, indent=11)
    return 0


async def _artifacts(runs: Runs, run_id: str) -> list[Artifact] | str:
    """The files of the run; if they are in a store that cannot be used, why."""
    from askback.client import ServerFault
    from askback.core.errors import RefusalCode, Unavailable

    try:
        return await runs.artifacts(run_id)
    except (ServerFault, Unavailable) as error:
        if error.code != RefusalCode.FILES_UNAVAILABLE:
            raise
        return error.message


@click.command("watch", cls=Command, examples=("askback watch 1m7g",))
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
async def watch_command(runs: Runs, as_json: bool, run: str) -> int:
    """Follow RUN live until it ends, even if the server restarts. Its output goes to stdout.

    Ctrl-C stops watching; the run continues. Exit codes: 0 succeeded, 1 failed or canceled.
    """
    from askback.cli.terminal.live import choose
    from askback.wire.base import plain

    run_id = await full_id(runs, run)
    with choose(as_json=as_json) as display:
        found = await _watch(runs, run_id, display)
    result = await runs.result(run_id)
    if as_json:
        output.print_json(plain(found) | plain(result))
    elif result.status == "succeeded":
        output.print_output(result.data)
    return 0 if result.status == "succeeded" else exit_codes.FAILED


async def _watch(runs: Runs, run_id: str, display: Display) -> Run:
    from askback.cli.data_folder import LocalRuns
    from askback.cli.terminal import render

    run = await runs.get_run(run_id)
    display.write(f"▸ {printable(run.skill)} on {printable(run.engine)} ({run.mode}) · run {printable(run.id)}")
    if isinstance(runs, LocalRuns) and (advice := await runs.left_alone(run_id)):
        display.write(f"! {advice}")
    try:
        async for event in runs.follow(run_id):
            await _show_event(runs, event, display)
    except asyncio.CancelledError as left:
        left.add_note(f"stopped watching; run {run_id} continues")
        raise
    run = await runs.get_run(run_id)
    for line in render.ending(run):
        display.write(line)
    return run


async def _show_event(runs: Runs, event: Event, display: Display) -> None:
    from askback.cli.terminal import render

    if (shown := render.known_event(event)) is not None:
        display.event(shown)
    if event.type == "interaction.asked":
        run = await runs.get_run(event.run_id)
        pending = run.pending_interaction
        if pending is not None and pending.interaction_id == event.data.get("interaction_id"):
            for line in render.question(run.id, pending, run.wait_deadline_at):
                display.write(line)
            display.wait_until(run.wait_deadline_at)


@click.command(
    "inbox", cls=Command, examples=("askback inbox", "askback inbox --url https://askback.example --token TOKEN")
)
@options.label("Only questions of runs with this label; repeatable: runs that have all of them.")
@on_runs
async def inbox_command(runs: Runs, as_json: bool, label: tuple[str, ...]) -> int:
    """List the pending questions of all runs, oldest first, with age, deadline and how to answer."""
    from askback.cli.terminal import render

    labels = options.labels_of(label)
    questions = [each async for each in runs.inbox(labels=labels)]
    empty = "no question is pending" if not labels else "no question with these labels is pending"
    return output.print_list(questions, render.inbox_entry, as_json=as_json, indent=None, empty=empty)


@click.command("cancel", cls=Command, examples=("askback cancel 1m7g",))
@click.argument("run", cls=options.RunArgument, shell_complete=complete_open_run)
@on_runs
async def cancel_command(runs: Runs, as_json: bool, run: str) -> int:
    """Cancel RUN. Its engine is asked to end, then killed. The run is `canceled` when all its processes have ended."""
    from askback.wire.base import plain

    found = await runs.cancel(await full_id(runs, run))
    name = printable(found.id)
    message = f"… run {name} is being canceled; follow it with: askback watch {name}"
    if found.state.final:
        message = f"■ run {name} is {found.state}"
    return output.print_done(plain(found), message, as_json=as_json)


@click.command("resume", cls=Command, examples=("askback resume 1m7g",))
@click.argument("run", cls=options.RunArgument, shell_complete=complete_open_run)
@on_runs
async def resume_command(runs: Runs, as_json: bool, run: str) -> int:
    """Execute RUN now, which is parked until a limit of the model provider ends."""
    from askback.wire.base import plain

    found = await runs.resume(await full_id(runs, run))
    name = printable(found.id)
    message = f"▶ run {name} is queued; follow it with: askback watch {name}"
    return output.print_done(plain(found), message, as_json=as_json)


_USAGE_KEYS = ("day", "engine", "model", "skill", "token", "label")


@click.command(
    "usage", cls=Command, examples=("askback usage", "askback usage --by skill --days 7", "askback usage --csv")
)
@click.option("--by", type=click.Choice(_USAGE_KEYS), default="day", show_default=True, help="What to group by.")
@click.option("--days", type=click.IntRange(1, 366), default=30, show_default=True, help="Days, with today.")
@options.label("Only runs with this label; repeatable: runs that have all of them.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@on_runs
async def usage_command(runs: Runs, as_json: bool, by: str, days: int, label: tuple[str, ...], as_csv: bool) -> int:
    """Show the tokens of all turns, also of failed ones, and their cost where the engine reports one.

    A column is empty where no engine has reported it. Askback has no prices, so it never computes a cost.
    """
    from askback.cli.terminal import render
    from askback.wire.base import plain

    report = await runs.usage(by, days=days, labels=options.labels_of(label))
    if as_json:
        output.print_json(plain(report))
    elif as_csv:
        output.print_csv(render.USAGE_FIELDS, [render.usage_values(each) for each in report.items])
    elif report.items:
        output.print_heading(render.usage_heading(by))
        for each in (*report.items, report.total):
            output.print_line(render.usage_line(each))
    else:
        output.to_stderr(f"no turn has ended in the last {days} days")
    return 0


@click.command("delete", cls=Command, examples=("askback delete 1m7g",))
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
async def delete_command(runs: Runs, as_json: bool, run: str) -> int:
    """Delete RUN with everything that belongs to it: files, events, questions, links and unsent notifications.

    A run that is not over is refused; cancel it first.
    """
    run_id = await full_id(runs, run)
    await runs.delete_run(run_id)
    return output.print_done({"deleted": run_id}, f"✔ run {printable(run_id)} is deleted", as_json=as_json)


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
async def audit_command(
    runs: Runs,
    as_json: bool,
    action: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    **who: Any,
) -> int:
    """List changes and who made them, newest first: answers, runs, links, tokens, sessions, uploads and skills."""
    from askback.core.access import Action

    if action is not None and action not in list(Action):
        raise click.UsageError(f"--action {one_line(action, 40)!r}: choose one of {', '.join(Action)}")
    since, until = (None if each is None else each.replace(tzinfo=UTC) for each in (since, until))
    found: list[AuditEntry] = []
    async for entry in runs.audit(**who, action=action, since=since, until=until):
        found.append(entry)
        if len(found) > limit:
            break
    heading = "TIME, ACTION, WHO, WHAT, FROM WHERE"
    output.print_list(found[:limit], _audit_line, as_json=as_json, heading=heading, empty="no entry matches")
    if len(found) > limit and not as_json:
        output.to_stderr(f"… there are more; list them with: --limit {2 * limit}")
    return 0


def _audit_line(entry: AuditEntry) -> str:
    from askback.cli.terminal.render import who

    about = [
        f"run {entry.run_id}" if entry.run_id else "",
        f"question {entry.interaction_id}" if entry.interaction_id else "",
    ]
    what = ", ".join(part for part in (*about, entry.object or "") if part)
    parts = [who(entry.actor), one_line(what, 200), one_line(entry.address or "", 60)]
    return f"{entry.at:%Y-%m-%d %H:%M:%S}  {one_line(entry.action, 24):<18} {'  '.join(part for part in parts if part)}"
