"""Which server a command talks to, and how its answers and its silence are told on the command line."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from askback.cli import exit_codes, options
from askback.process.locks import FileLock, is_held

if TYPE_CHECKING:
    from askback.client import AsyncClient, Client
    from askback.settings import Settings

_HINT = "start one with: askback serve, or give --url"
_COMPLETIONS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An address and what opens it."""

    url: str
    token: str | None

    def client(self) -> Client:
        from askback.client import Client

        return Client(self.url, self.token)

    def async_client(self) -> AsyncClient:
        from askback.client import AsyncClient

        return AsyncClient(self.url, self.token)


def chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--url` and `--token`."""
    by_url = click.option("--url", metavar="URL", help="The server; default: ASKBACK_URL, or the one running here.")
    by_token = click.option("--token", metavar="TOKEN", help="Its token; default: ASKBACK_TOKEN.")
    return by_url(by_token(function))


def connected(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a command that needs a server: the common options, `--url` and `--token`. The command gets the `server`."""

    @functools.wraps(function)
    def with_server(*args: Any, settings: Settings, url: str | None, token: str | None, **rest: Any) -> Any:
        server = find(settings, url, token)
        if server is None:
            raise nowhere(settings)
        with telling():
            return function(*args, server=server, **rest)

    return options.common(chosen(with_server))


def nowhere(settings: Settings, further: str = "") -> exit_codes.Told:
    """That no server runs on the data folder, and what else is not there."""
    message = f"no server answers on the data folder {settings.data_dir}; {_HINT}{further}"
    return exit_codes.Told("SERVER_UNREACHABLE", message, exit_code=exit_codes.NO_SERVER)


def find(settings: Settings, url: str | None, token: str | None) -> Server | None:
    """The one that is named, else the environment's, else the one running on the data folder, if it does."""
    from askback.settings import client_environment

    env_url, env_token = client_environment()
    if named := url or env_url:
        return Server(url=named, token=token or env_token)
    return _local(settings, token or env_token)


def _local(settings: Settings, token: str | None) -> Server | None:

    told = read(settings.data_dir)
    if told is None:
        return None
    if token is None and told.token_path is not None:
        token = Path(told.token_path).read_text().strip()
    return Server(url=told.url, token=token or settings.server.token)


@contextmanager
def telling() -> Iterator[None]:
    """A call that failed, as the command line tells it."""
    from askback import client

    try:
        yield
    except client.ServerUnreachable as error:
        message = f"no server answers on {error.url}; {_HINT} ({error.reason})"
        raise exit_codes.Told("SERVER_UNREACHABLE", message, exit_code=exit_codes.NO_SERVER) from None
    except client.TokenUnusable as error:
        raise exit_codes.Told("TOKEN_UNUSABLE", f"{error.message}, with --token or ASKBACK_TOKEN") from None
    except client.Unauthorized as error:
        message = "the server does not take the token; give it with --token or ASKBACK_TOKEN"
        raise exit_codes.Told(error.code, message) from None
    except client.Refused as error:
        code = exit_codes.FAILED if isinstance(error, client.ServerFault) else exit_codes.BAD_INPUT
        raise exit_codes.Told(error.code, error.message, error.problems, exit_code=code) from None
    except client.AnswerUnreadable as error:
        raise exit_codes.Told("ANSWER_UNREADABLE", error.message, exit_code=exit_codes.FAILED) from None


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids for the Tab key, from a server that is near; silent about everything else."""
    with suppress(Exception):
        return _ids(ctx.params, incomplete)
    return []


def _ids(given: dict[str, Any], incomplete: str) -> list[CompletionItem]:
    from itertools import islice

    from askback.client import Client
    from askback.settings import load

    server = find(load(given.get("config"), data_dir=given.get("data_dir")), given.get("url"), given.get("token"))
    if server is None:
        return []
    with Client(server.url, server.token, timeout_sec=1.0) as client:
        runs = [run for run in islice(client.list_runs(), _COMPLETIONS) if run.id.startswith(incomplete)]
    return [CompletionItem(run.id, help=f"{run.state} {run.skill}") for run in runs]


FILE_NAME = "server.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    url: str
    pid: int
    token_path: str | None
    """None: the token stands in the settings."""


@contextmanager
def announced(data_dir: Path, url: str, token_path: Path | None) -> Iterator[None]:
    """Tell of a server for as long as the block lasts; of two on one folder the first is told."""
    lock = FileLock.take(data_dir / FILE_NAME)
    if lock is None:
        yield
        return
    told = Announcement(url=url, pid=os.getpid(), token_path=None if token_path is None else str(token_path))
    try:
        os.ftruncate(lock.fd, 0)
        os.write(lock.fd, json.dumps(asdict(told)).encode())
        yield
    finally:
        lock.path.unlink(missing_ok=True)
        lock.release()


def read(data_dir: Path) -> Announcement | None:
    """The server that runs on this folder now, if one does."""
    path = data_dir / FILE_NAME
    try:
        return Announcement(**json.loads(path.read_text())) if is_held(path) else None
    except (OSError, ValueError, TypeError):
        # No file, or one that is just being written.
        return None
