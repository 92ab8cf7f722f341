"""`askback serve`: the HTTP API and the page, and unless that is switched off the worker, in one process."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from askback.cli import options, serving
from askback.cli.connection import announced
from askback.cli.help import Command
from askback.core.webhooks import is_loopback

if TYPE_CHECKING:
    import uvicorn

    from askback.app.server import WebServer
    from askback.cluster.instances import Role
    from askback.settings.model import Settings


@click.command(
    "serve",
    cls=Command,
    examples=(
        "askback serve",
        "askback serve --port 0 --json        # any free port, printed as JSON",
        "askback serve --no-worker            # leave the runs to `askback worker`",
    ),
)
@click.option("--host", metavar="H", help="Address to listen on; default: 127.0.0.1.")
@click.option(
    "--port", metavar="P", type=click.IntRange(0, 65535), help="Port to listen on; default: 8765; 0: any free port."
)
@click.option(
    "--no-worker",
    is_flag=True,
    help="Execute no runs: leave them to other programs on the same PostgreSQL database, such as `askback worker`.",
)
@options.common
def command(settings: Settings, as_json: bool, host: str | None, port: int | None, no_worker: bool) -> int:
    """Serve the HTTP API and the page, and execute runs, until stopped. Everything but /healthz and /readyz requires a
    token.
    """
    from askback.app.opening import check_database
    from askback.cli.exit_codes import run_async
    from askback.cluster.instances import Role

    if host == "":
        raise click.UsageError("--host is empty; name an address, such as 127.0.0.1")
    role = Role.API_SERVER if no_worker else Role.SERVER
    check_database(settings, role)
    gc.disable()
    chosen = {"host": host, "port": port}
    server = settings.server.model_copy(update={key: value for key, value in chosen.items() if value is not None})
    settings = settings.model_copy(update={"server": server})
    serving.configure_log(settings.log)
    return run_async(_serve(settings, role, as_json=as_json))


async def _serve(settings: Settings, role: Role, *, as_json: bool) -> int:
    from askback.app import opened
    from askback.app.server import web_server
    from askback.http.protocol import Connections

    open_files = serving.prepare_process()
    listening = serving.listen(settings.server.host, settings.server.port)
    port: int = listening[0].getsockname()[1]
    async with opened(settings, role=role) as app:
        await serving.recover(app)
        web = web_server(app, port)
        # Engines and the database need open files, too.
        max_total = open_files // 2
        max_unauthenticated = min(settings.server.unauthenticated_connections, max_total // 2)
        connections = Connections(max_unauthenticated=max_unauthenticated, max_total=max_total)
        server = serving.make_server(web.application, connections, grace_sec=settings.server.grace_sec)
        async with app.working(), asyncio.TaskGroup() as group:
            watching = [group.create_task(each()) for each in web.tasks]
            token_path = None if settings.server.token else settings.data_dir / "token"
            # From the announcement on, the server can be stopped.
            _stop_by_signals(server, [web.streams.close, app.worker.stop])
            with announced(
                settings.data_dir, serving.url_of(serving.loopback_for(settings.server.host), port), token_path
            ):
                serving.start_garbage_collection()
                _announce(settings, web, port, as_json=as_json)
                await server.serve(sockets=listening)
            for each in watching:
                each.cancel()
            await asyncio.to_thread(web.flush)
    return 0


def _stop_by_signals(server: uvicorn.Server, ends: Sequence[Callable[[], None]]) -> None:
    """Stop the server on SIGTERM or Ctrl-C, and at once on the second. Calls `ends` to release what would delay it."""

    def stop() -> None:
        for end in ends:
            end()
        server.force_exit = server.should_exit
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)


def _announce(settings: Settings, web: WebServer, port: int, *, as_json: bool) -> None:
    """A token from the settings is not printed: its owner knows it, and output is often logged."""
    url, page = (
        serving.url_of(settings.server.host, port),
        f"{serving.url_of(serving.loopback_for(settings.server.host), port)}/enter",
    )
    token = None if settings.server.token else web.token
    if token is not None:
        page += f"?token={quote(token, safe='')}"
    if as_json:
        document = {"url": url, "token": token, "page": page, "data_dir": str(settings.data_dir)}
        print(json.dumps(document), flush=True)
        return
    print(f"askback serves {url} (data folder {settings.data_dir})", file=sys.stderr)
    print(f"  token: {token or 'from the settings (server.token or ASKBACK_SERVER__TOKEN)'}", file=sys.stderr)
    print(f"  page:  {page}", file=sys.stderr, flush=True)
    if not is_loopback(settings.server.host):
        print("  open to other machines: anyone who has the token can run engines here", file=sys.stderr, flush=True)
