"""`askback worker` executes runs of the shared queue, without an API. `askback workers` lists who does."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import TYPE_CHECKING

import click

from askback.cli import options, output, serving
from askback.cli.help import Command
from askback.cli.runs import on_runs
from askback.text.formatting import one_line, printable

if TYPE_CHECKING:
    from askback.app import App
    from askback.cli.runs import Runs
    from askback.settings.model import Settings
    from askback.wire.server import Worker, WorkerEngine
    from askback.worker.membership import Draining

_MAX_CONNECTIONS = 64
_GRACE_SEC = 1.0


@click.command(
    "worker",
    cls=Command,
    examples=(
        "askback worker",
        "askback worker --engines codex,claude --slots 8",
        "askback worker --label zone=eu --port 0",
    ),
)
@click.option(
    "--engines",
    metavar="NAMES",
    help="Only turns of these engines, separated by commas; default: all that are installed.",
)
@click.option(
    "--slots", metavar="N", type=click.IntRange(1, 10_000), help="How many engine processes may run at a time."
)
@click.option(
    "--label", "labels", metavar="NAME=VALUE", multiple=True, help="Shown in the list of workers; repeatable."
)
@click.option("--host", metavar="H", help="Address for /healthz, /readyz and /metrics; default: 127.0.0.1.")
@click.option(
    "--port", metavar="P", type=click.IntRange(0, 65535), help="Port for them; default: 8766; 0: any free port."
)
@options.common
def worker_command(
    settings: Settings,
    as_json: bool,
    engines: str | None,
    slots: int | None,
    labels: Sequence[str],
    host: str | None,
    port: int | None,
) -> int:
    """Execute runs of the servers on the same PostgreSQL database, until stopped.

    SIGTERM or Ctrl-C: no more turns are started, and those in progress have `worker.drain_sec` to end. A second one
    puts them back into the queue at once.
    """
    from askback.app.opening import check_database
    from askback.cli.exit_codes import run_async
    from askback.cluster.instances import Role
    from askback.core.labels import read_labels

    if host == "":
        raise click.UsageError("--host is empty; name an address, such as 127.0.0.1")
    names = None if engines is None else tuple(name.strip() for name in engines.split(",") if name.strip())
    if names == ():
        raise click.UsageError("--engines names no engine; leave it out to execute turns of all that are installed")
    check_database(settings, Role.WORKER)
    gc.disable()
    chosen = {
        "host": host,
        "port": port,
        "engines": names,
        "labels": read_labels(labels, "=", "--label") or None,
    }
    worker = settings.worker.model_copy(update={key: value for key, value in chosen.items() if value is not None})
    settings = settings.model_copy(update={"worker": worker} | ({} if slots is None else {"slots": slots}))
    serving.configure_log(settings.log)
    return run_async(_work(settings, as_json=as_json))


async def _work(settings: Settings, *, as_json: bool) -> int:
    from askback.app import opened
    from askback.app.server import worker_site
    from askback.cluster.instances import Role
    from askback.http.protocol import Connections

    serving.prepare_process()
    listening = serving.listen(settings.worker.host, settings.worker.port)
    async with opened(settings, role=Role.WORKER) as app:
        await serving.recover(app)
        site = worker_site(app)
        connections = Connections(max_unauthenticated=_MAX_CONNECTIONS // 2, max_total=_MAX_CONNECTIONS)
        server = serving.make_server(site.application, connections, grace_sec=_GRACE_SEC)
        async with app.working(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(each()) for each in site.tasks]
            served = group.create_task(server.serve(sockets=listening))
            draining = _drained_by_signals(app)
            serving.start_garbage_collection()
            _announce(app, serving.url_of(settings.worker.host, listening[0].getsockname()[1]), as_json=as_json)
            await draining.wait()
            server.should_exit = server.force_exit = True
            await served
            for each in tasks:
                each.cancel()
    return 0


def _drained_by_signals(app: App) -> Draining:
    from askback.worker.membership import Draining

    draining = Draining(app.worker, app.store, max_sec=app.settings.worker.drain_sec)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, draining.request)
    return draining


def _announce(app: App, url: str, *, as_json: bool) -> None:
    settings, engines = app.settings, sorted(app.slots.only or ())
    missing = sorted(set(settings.worker.engines) - set(engines))
    if as_json:
        document = {"url": url, "slots": settings.slots, "data_dir": str(settings.data_dir), "engines": engines}
        print(json.dumps(document), flush=True)
        return
    print(f"askback executes runs, {settings.slots} at a time (data folder {settings.data_dir})", file=sys.stderr)
    print(f"  engines: {', '.join(engines) or 'none is installed here; it waits for one'}", file=sys.stderr)
    if missing:
        print(f"  not installed here: {', '.join(missing)}; it looks for them every few seconds", file=sys.stderr)
    print(f"  health: {url}/healthz", file=sys.stderr, flush=True)


_SIGNS = {"alive": "✔", "draining": "!", "unready": "!", "gone": "✘"}


@click.command("workers", cls=Command, examples=("askback workers", "askback workers --json"))
@on_runs
async def workers_command(runs: Runs, as_json: bool) -> int:
    """List the programs that execute runs: their machines, slots and engines. What is shown is a few seconds old."""
    empty = "no program executes runs; start one with: askback serve, or askback worker"
    return output.print_list(await runs.workers(), _worker_lines, as_json=as_json, indent=4, empty=empty)


def _worker_lines(worker: Worker) -> Iterator[str]:
    labels = "".join(f", {name}={value}" for name, value in sorted(worker.labels.items()))
    problem = f" ({printable(worker.problem)})" if worker.problem else ""
    yield (
        f"{_SIGNS.get(worker.state, '?')} {printable(worker.host)} ({worker.kind}, pid {worker.pid}): {worker.state}{problem},"
        f" {worker.slots.taken} of {worker.slots.total} slots taken"
    )
    about = f"{printable(worker.name)}, version {printable(worker.version)}, since {worker.started_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    engines = ", ".join(_engine(each) for each in worker.engines) or "no engine"
    yield f"    {about}{one_line(labels, 500)}"
    yield f"    {engines}"


def _engine(engine: WorkerEngine) -> str:
    version = f" {printable(engine.version)}" if engine.version else ""
    slots = "" if engine.slots is None else f" ({engine.taken} of {engine.slots})"
    signed = ", not signed in" if engine.signed_in is False else ""
    return f"{printable(engine.name)}{version}{slots}{signed}"
