"""`askback workers`: the programs that execute runs, as a server or the database knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from askback.cli import output
from askback.cli.connection import on_runs
from askback.cli.help import Command
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from askback.cli.connection import Access
    from askback.wire.server import Worker, WorkerEngine

_SIGNS = {"alive": "✔", "draining": "!", "unready": "!", "gone": "✘"}


@click.command("workers", cls=Command, examples=("askback workers", "askback workers --json"))
@on_runs
def command(access: Access, as_json: bool) -> int:
    """List the programs that execute runs: their machines, slots and engines. What is shown is a few seconds old."""
    from askback.cli.exit_codes import run_async
    from askback.wire.base import plain

    found: list[Worker] = []

    async def read() -> int:
        async with access() as source:
            found.extend(await source.workers())
        return 0

    run_async(read)
    if as_json:
        output.print_json([plain(each) for each in found])
        return 0
    for each in found:
        for line in _lines(each):
            output.print_line(line, indent=4)
    if not found:
        output.to_stderr("no program executes runs; start one with: askback serve, or askback worker")
    return 0


def _lines(worker: Worker) -> list[str]:
    labels = "".join(f", {name}={value}" for name, value in sorted(worker.labels.items()))
    since = worker.started_at.astimezone(UTC) if isinstance(worker.started_at, datetime) else worker.started_at
    problem = f" ({printable(worker.problem)})" if worker.problem else ""
    head = (
        f"{_SIGNS.get(worker.state, '?')} {printable(worker.host)} ({worker.kind}, pid {worker.pid}): {worker.state}{problem},"
        f" {worker.slots.taken} of {worker.slots.total} slots taken"
    )
    about = f"{printable(worker.name)}, version {printable(worker.version)}, since {since:%Y-%m-%d %H:%M} UTC"
    engines = ", ".join(_engine(each) for each in worker.engines) or "no engine"
    return [head, f"    {about}{one_line(labels, 500)}", f"    {engines}"]


def _engine(engine: WorkerEngine) -> str:
    version = f" {printable(engine.version)}" if engine.version else ""
    slots = "" if engine.slots is None else f" ({engine.taken} of {engine.slots})"
    signed = ", not signed in" if engine.signed_in is False else ""
    return f"{printable(engine.name)}{version}{slots}{signed}"
