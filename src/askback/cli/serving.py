"""What `askback serve` and `askback worker` share: sockets, limits, the configuration of uvicorn, URLs, and the log."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from askback.core.errors import RefusalCode, Unavailable

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from askback.app import App
    from askback.http.protocol import Connections
    from askback.settings.sections import LogSettings

_TWINS = {"127.0.0.1": "::1", "localhost": "::1", "0.0.0.0": "::1", "::1": "127.0.0.1"}
_FREE_PORT_TRIES = 20
_MAX_FILES = 65_536
_BACKLOG = 2048
"""How many connections may wait in the system."""
_ACCEPTED = 16
"""How many are accepted in one pass of the event loop: about as many as it can read in one."""
_NEW_OBJECTS = 10_000
"""Threshold of the garbage collector. Requests and turns leave few cycles."""
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_FIELDS = ("run", "engine", "path", "error")
"""What a record may say beside its message, as `extra`."""
_CHATTY = ("httpx", "httpcore", "mcp", "uvicorn")
"""They log addresses and ids of sessions, which may be secret, and every step of a connection."""


def prepare_process() -> int:
    """Set this process up for many connections. Returns the limit of open files, which is raised to what is allowed."""
    from askback.http.protocol import AcceptFaults
    from askback.process.isolation import release_large_blocks

    release_large_blocks()
    asyncio.get_running_loop().set_exception_handler(AcceptFaults())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MAX_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


async def recover(app: App) -> None:
    """Warn of programs with other settings, and restart the runs of programs that have died."""
    from askback.cluster.instances import disagreements

    for message in await disagreements(app.instances):
        logging.getLogger("askback").warning("%s", message)
    await app.recovery.restart_all()


def start_garbage_collection() -> None:
    """Exclude what exists now, mostly modules, from collection."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
    gc.enable()


def make_server(application: ASGIApp, connections: Connections, *, grace_sec: float) -> uvicorn.Server:
    """A server that leaves signals to its caller."""
    import uvicorn

    from askback.http.protocol import protocol_with

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for each in sockets or ():
                each.listen(_BACKLOG)

    config = uvicorn.Config(
        application,
        http=protocol_with(connections),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        backlog=_ACCEPTED,
        access_log=False,
        server_header=False,
        # Any local program could forge the address and the scheme of a request.
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(grace_sec)),
    )
    return Server(config)


def listen(host: str, port: int) -> list[socket.socket]:
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
    """A socket of the other IP version; None if this machine does not support it."""
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
        of_host = isinstance(error, socket.gaierror | UnicodeError) or error.errno == errno.EADDRNOTAVAIL
        message = f"cannot listen on {host}:{port}: {why}; choose another with {'--host' if of_host else '--port'}"
        raise Unavailable(RefusalCode.PORT_UNUSABLE, message) from None
    return listening


def url_of(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def loopback_for(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


# The log: on standard error, as lines of text or as JSON objects.


def _details(record: logging.LogRecord) -> dict[str, str]:
    return {name: str(record.__dict__[name]) for name in _FIELDS if record.__dict__.get(name)}


class TextFormatter(logging.Formatter):
    """One line for each record, with its details at the end."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - of the base class
        details = "".join(f" {name}={' '.join(text.split())}" for name, text in _details(record).items())
        return super().formatMessage(record) + details


class JsonFormatter(logging.Formatter):
    """One JSON object per line, in ASCII: a message cannot forge another line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_details(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def configure_log(settings: LogSettings) -> None:
    """Send the log of this process to standard error, and warn of unknown variables. Other packages log nothing below `info`."""
    from askback.settings.files import unknown_variables

    level = logging.getLevelNamesMapping()[settings.level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger("askback").setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for name in ("uvicorn.error", "uvicorn.asgi"):
        logging.getLogger(name).addFilter(_rename)
    for message in unknown_variables():
        logging.getLogger("askback").warning("%s", message)


def _rename(record: logging.LogRecord) -> bool:
    """The HTTP library reports only problems, under our name: its start and stop are announced by the command."""
    record.name = "askback.http"
    return True
