"""The commands on runs, of a server or of the data folder: `runs`, `show`, `watch`, `inbox`, `cancel`, `delete`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from askback.cli import exit_codes, layout, options, output
from askback.cli.completion import complete_engine, complete_open_run, complete_run, complete_skill
from askback.cli.connection import on_runs
from askback.cli.exit_codes import run_async
from askback.cli.help import Command
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from askback.cli.connection import Access
    from askback.cli.local_runs import LocalRuns
    from askback.cli.terminal.live import Display
    from askback.client import Artifact, AsyncClient, Event, PendingQuestion, Run

_STATES = ("queued", "running", "waiting_user", "succeeded", "failed", "canceled")


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
def runs_command(
    access: Access,
    as_json: bool,
    state: str | None,
    skill: str | None,
    engine: str | None,
    label: tuple[str, ...],
    limit: int,
) -> int:
    """List the runs, newest first: state, skill, engine, age, and the pending question or the error."""
    from askback.cli.terminal import render

    runs: list[Run] = []
    labels = options.labels_of(label)

    async def read() -> int:
        async with access() as source:
            page_size = min(limit + 1, 200)
            async for run in source.list_runs(
                state=state, skill=skill, engine=engine, labels=labels, page_size=page_size
            ):
                runs.append(run)
                if len(runs) > limit:
                    break
        return 0

    run_async(read)
    if as_json:
        output.print_json([render.document(run) for run in runs[:limit]])
        return 0
    width = layout.columns()
    if width is None:
        for run in runs[:limit]:
            output.print_line(render.line(run))
    elif runs:
        heading, *lines = render.table(runs[:limit], width)
        output.print_heading(heading)
        for line in lines:
            output.print_line(line)
    if not runs:
        output.to_stderr("no run matches" if state or skill or engine or labels else "there are no runs yet")
    if len(runs) > limit:
        output.to_stderr(f"… there are more; list them with: --limit {2 * limit}")
    return 0


@click.command(
    "show",
    cls=Command,
    examples=("askback show 1m7g                    # the start of an id is enough",),
)
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
def show_command(access: Access, as_json: bool, run: str) -> int:
    """Show RUN: its state, questions and answers, warnings, error, usage and files."""
    import msgspec

    from askback.cli.run_ids import full_id
    from askback.cli.terminal import render

    async def main() -> int:
        async with access() as runs:
            run_id = await full_id(runs, run)
            found = await runs.get_run(run_id)
            interactions, artifacts = await runs.interactions(run_id), await _artifacts(runs, run_id)
            reads_changes = found.workdir and found.state.final and not isinstance(artifacts, str)
            changes = (await runs.result(run_id)).changes if reads_changes else None
        if as_json:
            unavailable = isinstance(artifacts, str)
            listed = {"artifacts": None, "files_unavailable": artifacts} if unavailable else {"artifacts": artifacts}
            parts = {"interactions": interactions, **listed, **({} if changes is None else {"changes": changes})}
            output.print_json(render.document(found) | msgspec.to_builtins(parts))
            return 0
        for line in render.page(found, interactions, artifacts, changes):
            output.print_line(line, indent=11)
        return 0

    return run_async(main)


async def _artifacts(runs: AsyncClient | LocalRuns, run_id: str) -> list[Artifact] | str:
    """The files of the run; if they are in a store that cannot be used, why."""
    from askback.client import ServerFault
    from askback.core.errors import RefusalCode, Unavailable

    try:
        return await runs.artifacts(run_id)
    except (ServerFault, Unavailable) as error:
        if error.code != RefusalCode.FILES_UNAVAILABLE:
            raise
        return error.message


@click.command(
    "watch",
    cls=Command,
    examples=("askback watch 1m7g",),
)
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
def watch_command(access: Access, as_json: bool, run: str) -> int:
    """Follow RUN live until it ends, even if the server restarts. Its output goes to stdout.

    Ctrl-C stops watching; the run continues. Exit codes: 0 succeeded, 1 failed or canceled.
    """
    import msgspec

    from askback.cli.run_ids import full_id
    from askback.cli.terminal import render
    from askback.cli.terminal.live import choose

    async def main() -> int:
        async with access() as runs:
            run_id = await full_id(runs, run)
            with choose(as_json=as_json) as display:
                found = await _watch(runs, run_id, display)
            result = await runs.result(run_id)
        if as_json:
            output.print_json(render.document(found) | msgspec.to_builtins(result))
        elif result.status == "succeeded":
            output.print_output(result.data)
        return 0 if result.status == "succeeded" else exit_codes.FAILED

    return run_async(main)


async def _watch(runs: AsyncClient | LocalRuns, run_id: str, display: Display) -> Run:
    from askback.cli.local_runs import LocalRuns
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


async def _show_event(runs: AsyncClient | LocalRuns, event: Event, display: Display) -> None:
    from askback.cli.terminal import render

    if (shown := render.known(event)) is not None:
        display.event(shown)
    if event.type == "interaction.asked":
        run = await runs.get_run(event.run_id)
        pending = run.pending_interaction
        if pending is not None and pending.interaction_id == event.data.get("interaction_id"):
            for line in render.question(run.id, pending, run.wait_deadline_at):
                display.write(line)
            display.wait_until(run.wait_deadline_at)


@click.command(
    "inbox",
    cls=Command,
    examples=(
        "askback inbox",
        "askback inbox --url https://askback.example --token TOKEN",
    ),
)
@options.label("Only questions of runs with this label; repeatable: runs that have all of them.")
@on_runs
def inbox_command(access: Access, as_json: bool, label: tuple[str, ...]) -> int:
    """List the pending questions of all runs, oldest first, with age, deadline and how to answer."""
    import msgspec

    from askback.cli.terminal import render

    questions: list[PendingQuestion] = []
    labels = options.labels_of(label)

    async def read() -> int:
        async with access() as runs:
            questions.extend([each async for each in runs.inbox(labels=labels)])
        return 0

    run_async(read)
    if as_json:
        output.print_json(msgspec.to_builtins(questions))
        return 0
    for each in questions:
        about = f" · {one_line(each.summary, 200)}" if each.summary else ""
        about += f" · {shown}" if (shown := render.labels_text(each.labels)) else ""
        output.print_line(f"run {printable(each.run_id)}: {printable(each.skill)} on {printable(each.engine)}{about}")
        for line in render.question(each.run_id, each, each.wait_deadline_at):
            output.print_line(line)
    if not questions:
        output.to_stderr("no question is pending" if not labels else "no question with these labels is pending")
    return 0


@click.command(
    "cancel",
    cls=Command,
    examples=("askback cancel 1m7g",),
)
@click.argument("run", cls=options.RunArgument, shell_complete=complete_open_run)
@on_runs
def cancel_command(access: Access, as_json: bool, run: str) -> int:
    """Cancel RUN. Its engine is asked to end, then killed. The run is `canceled` when all its processes have ended."""
    from askback.cli.run_ids import full_id
    from askback.cli.terminal import render

    async def main() -> int:
        async with access() as runs:
            found = await runs.cancel(await full_id(runs, run))
        name = printable(found.id)
        if as_json:
            output.print_json(render.document(found))
        elif found.state.final:
            output.print_line(f"■ run {name} is {found.state}")
        else:
            output.print_line(f"… run {name} is being canceled; follow it with: askback watch {name}")
        return 0

    return run_async(main)


@click.command(
    "delete",
    cls=Command,
    examples=("askback delete 1m7g",),
)
@click.argument("run", cls=options.RunArgument, shell_complete=complete_run)
@on_runs
def delete_command(access: Access, as_json: bool, run: str) -> int:
    """Delete RUN with everything that belongs to it: files, events, questions, links and unsent notifications.

    A run that is not over is refused; cancel it first.
    """
    from askback.cli.run_ids import full_id

    async def main() -> int:
        async with access() as runs:
            run_id = await full_id(runs, run)
            await runs.delete_run(run_id)
        if as_json:
            output.print_json({"deleted": run_id})
        else:
            output.print_line(f"✔ run {printable(run_id)} is deleted")
        return 0

    return run_async(main)
