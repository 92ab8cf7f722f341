"""`askback serve`: the HTTP API, the page and the worker in one process."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import json
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from askback.cli import logs, options
from askback.cli.connection import announced
from askback.cli.help import Command
from askback.core.errors import RefusalCode, Unavailable

if TYPE_CHECKING:
    import uvicorn

    from askback.bootstrap.server import WebServer
    from askback.settings import Settings

log = logging.getLogger("askback")

_TWINS = {"127.0.0.1": "::1", "localhost": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}
_FREE_PORT_TRIES = 20
_MAX_FILES = 65_536
_NEW_OBJECTS = 10_000
"""Threshold of the garbage collector. Requests and turns leave few cycles."""


@click.command(
    "serve",
    cls=Command,
    examples=(
        "askback serve",
        "askback serve --port 0 --json        # any free port, printed as JSON",
    ),
)
@click.option("--host", metavar="H", help="Address to listen on; default: 127.0.0.1.")
@click.option(
    "--port", metavar="P", type=click.IntRange(0, 65535), help="Port to listen on; default: 8765; 0: any free port."
)
@options.common
def command(settings: Settings, as_json: bool, host: str | None, port: int | None) -> int:
    """Serve the HTTP API and the page, and execute runs, until stopped. Everything but /healthz requires a token."""
    from askback.cli.exit_codes import run_async
    from askback.settings import unknown_variables

    if host == "":
        raise click.UsageError("--host is empty; name an address, such as 127.0.0.1")
    gc.disable()
    chosen = {"host": host, "port": port}
    server = settings.server.model_copy(update={key: value for key, value in chosen.items() if value is not None})
    settings = settings.model_copy(update={"server": server})
    logs.configure(settings.log)
    for message in unknown_variables():
        log.warning("%s", message)
    return run_async(lambda: _serve(settings, as_json=as_json))


async def _serve(settings: Settings, *, as_json: bool) -> int:
    import uvicorn

    from askback.bootstrap import opened
    from askback.bootstrap.server import web_server
    from askback.http.protocol import AcceptFaults, Connections, protocol_with
    from askback.process.isolation import release_large_blocks

    release_large_blocks()
    open_files = _raise_file_limit()
    asyncio.get_running_loop().set_exception_handler(AcceptFaults())
    listening = _listen(settings.server.host, settings.server.port)
    port: int = listening[0].getsockname()[1]
    async with opened(settings, serving=True) as app:
        await app.recovery.restart_all()
        web = web_server(app, port)
        # Engines and the database need open files, too.
        max_total = open_files // 2
        max_unauthenticated = min(settings.server.unauthenticated_connections, max_total // 2)
        connections = Connections(max_unauthenticated=max_unauthenticated, max_total=max_total)
        config = uvicorn.Config(
            web.application,
            http=protocol_with(connections),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Any local program could forge the address and the scheme of a request.
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(settings.server.grace_sec)),
        )
        async with app.working(), asyncio.TaskGroup() as group:
            watching = [group.create_task(each()) for each in web.tasks]
            token_path = None if settings.server.token else settings.data_dir / "token"
            # From the announcement on, the server can be stopped.
            server = _stopped_by_signals(config, [web.streams.close, app.worker.stop])
            with announced(settings.data_dir, _url(_near(settings.server.host), port), token_path):
                _start_garbage_collection()
                _announce(settings, web, port, as_json=as_json)
                await server.serve(sockets=listening)
            for each in watching:
                each.cancel()
            await asyncio.to_thread(web.flush)
    return 0


def _raise_file_limit() -> int:
    """Raise the limit of open files to what the system allows, up to a maximum. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MAX_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _start_garbage_collection() -> None:
    """Exclude what exists now, mostly modules, from collection."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
    gc.enable()


def _stopped_by_signals(config: uvicorn.Config, ends: Sequence[Callable[[], None]]) -> uvicorn.Server:
    """A server that stops on SIGTERM or Ctrl-C, and at once on the second. Calls `ends` to release what would delay it."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    server = Server(config)

    def stop() -> None:
        for end in ends:
            end()
        server.force_exit = server.should_exit
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return server


def _listen(host: str, port: int) -> list[socket.socket]:
    """The sockets to serve on: with a loopback address, also its twin of the other IP version.

    Browsers resolve `*.localhost`, the page's host, to both. They would send the page's cookie to a program that
    listens on the other address.
    """
    twin = _TWINS.get(host.lower())
    for tries_left in reversed(range(_FREE_PORT_TRIES if port == 0 else 1)):
        first = _bound(host, port)
        try:
            second = None if twin is None else _twin(twin, first.getsockname()[1])
        except Unavailable:
            first.close()
            if tries_left == 0:
                raise
            continue
        sockets = [first] if second is None else [first, second]
        for each in sockets:
            each.listen(1024)
        return sockets
    raise AssertionError("unreachable")


def _twin(address: str, port: int) -> socket.socket | None:
    """None if this machine lacks that IP version, so that nobody can listen there."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return None
    return _bound(address, port)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it a response takes 40 ms longer.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if host == "::":
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        listening.bind((host, port))
    except (OSError, UnicodeError) as error:
        listening.close()
        why = "it is not a valid host name" if isinstance(error, UnicodeError) else error.strerror
        message = f"cannot listen on {host}:{port}: {why}; choose another with {_option_to_change(error)}"
        raise Unavailable(RefusalCode.PORT_UNUSABLE, message) from None
    return listening


def _option_to_change(error: OSError | UnicodeError) -> str:
    of_host = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
    return "--host" if of_host else "--port"


def _announce(settings: Settings, web: WebServer, port: int, *, as_json: bool) -> None:
    """A token from the settings is not printed: its owner knows it, and output is often logged."""
    url, page = _url(settings.server.host, port), f"{_url(_near(settings.server.host), port)}/enter"
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
    if not _is_loopback(settings.server.host):
        print("  open to other machines: anyone who has the token can run engines here", file=sys.stderr, flush=True)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _near(host: str) -> str:
    """The loopback address of a server that listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
