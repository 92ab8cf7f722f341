"""The server that a command calls: how it is found and announced, and how its errors are reported.

Without a server, most commands work on the data folder itself; see `runs`.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from askback.cli import exit_codes
from askback.core.actors import Actor, Channel
from askback.process.locks import FileLock, is_held

if TYPE_CHECKING:
    from askback.client import AsyncClient
    from askback.settings.model import Settings

_HINT = "start one with: askback serve, or name one with --url"
_OTHER_URL = "check the address in --url or ASKBACK_URL"
_PROTOCOLS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    url: str
    token: str | None
    of_data_folder: bool = False
    """Whether it runs on this machine, and its own token was read from the data folder or from the settings."""
    withheld: bool = False
    """Whether the environment has a token, but for another server."""

    def async_client(self, via: Channel | None = None) -> AsyncClient:
        """A client of the server. `via`: the protocol that the command serves, for the audit log."""
        from askback.client import AsyncClient

        # The server's own token has no person: the log shows who typed the command.
        who = {"Askback-User": quote(system_user().name)} if self.of_data_folder else {}
        way = {} if via is None else {"Askback-Via": via.value}
        return AsyncClient(self.url, self.token, headers=who | way)


def system_user() -> Actor:
    """The user whose process this is. A user without an entry in the system's database, as in a container, is a number."""
    number = os.getuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = ""
    return Actor(name=name or f"uid {number}", via=Channel.CLI)


def server_options(function: Callable[..., Any]) -> Callable[..., Any]:
    by_url = click.option(
        "--url", metavar="URL", help="URL of the server; default: ASKBACK_URL, or the server on the data folder."
    )
    by_token = click.option(
        "--token",
        metavar="TOKEN",
        help="Token of the server; default: ASKBACK_TOKEN, which is sent only to the server in ASKBACK_URL, or without "
        "that to this machine.",
    )
    return by_url(by_token(function))


@asynccontextmanager
async def client_of(settings: Settings, url: str | None, token: str | None) -> AsyncIterator[AsyncClient]:
    """A client of the server in the options, in the environment or on the data folder. Raises if there is none."""
    server = find(settings, url, token)
    if server is None:
        raise no_server(settings)
    with errors_reported(server):
        async with server.async_client() as client:
            yield client


def no_server(settings: Settings, further: str = "") -> exit_codes.CommandFailed:
    message = f"no server runs on the data folder {settings.data_dir}; {_HINT}{further}"
    return exit_codes.CommandFailed("SERVER_UNREACHABLE", message, exit_code=exit_codes.NO_SERVER)


def find(settings: Settings, url: str | None, token: str | None, *, named_alone: bool = False) -> Server | None:
    """The server in the options, else in the environment, else the one that runs on the data folder.

    The token of the environment is for the server of the environment, and without one for this machine. `named_alone`: the
    configuration of a client names the server by `--url` and the token by ASKBACK_TOKEN.
    """
    from askback.settings.environment import client_environment

    env_url, env_token = client_environment()
    if token is None and url and not (named_alone and not env_url) and not _is_for(env_url, url):
        return Server(url=url, token=None, withheld=env_token is not None)
    token = token or env_token
    if named := url or env_url:
        return Server(url=named, token=token)
    announcement = read_announcement(settings.data_dir)
    if announcement is None:
        return None
    if token is not None:
        return Server(url=announcement.url, token=token)
    own = settings.server.token
    if announcement.token_path is not None:
        own = Path(announcement.token_path).read_text().strip()
    return Server(url=announcement.url, token=own, of_data_folder=True)


def _is_for(env_url: str | None, url: str) -> bool:
    """Whether the token of the environment is meant for this server."""
    from askback.core.webhooks import is_loopback

    origin = _origin(url)
    if env_url:
        return origin == _origin(env_url)
    host = "" if origin is None else origin[1] or ""
    return is_loopback(host) or host.endswith(".localhost")


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """The scheme, host and port that a token is for. None for an invalid URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PROTOCOLS.get(parts.scheme)
    except ValueError:
        return None


def check_url(url: str) -> None:
    """Raise what a call would for an invalid URL. Sends nothing."""
    from askback.client import ServerUnreachable

    reason = None
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PROTOCOLS:
            reason = "the address must begin with http:// or https://"
        elif not parts.hostname or parts.port == 0:
            reason = "the URL has no host, or no port that can exist"
    except ValueError as error:
        reason = str(error)
    if reason is not None:
        with errors_reported():
            raise ServerUnreachable(url, reason)


@contextmanager
def errors_reported(server: Server | None = None) -> Iterator[None]:
    """Raise the client's errors as `CommandFailed`."""
    from askback import client

    try:
        yield
    except client.ServerUnreachable as error:
        message = f"no server responds at {error.url}: {error.reason}; {_HINT}"
        raise exit_codes.CommandFailed("SERVER_UNREACHABLE", message, exit_code=exit_codes.NO_SERVER) from None
    except client.TokenUnusable as error:
        raise exit_codes.CommandFailed("TOKEN_UNUSABLE", f"{error.message}, with --token or ASKBACK_TOKEN") from None
    except client.Unauthorized as error:
        raise exit_codes.CommandFailed(error.code, f"the server {_token_problem(server)}") from None
    except client.Refused as error:
        hint = f"; {_OTHER_URL}" if error.code == "NOT_ASKBACK" else ""
        code = exit_codes.FAILED if isinstance(error, client.ServerFault) else exit_codes.BAD_INPUT
        raise exit_codes.CommandFailed(error.code, error.message + hint, error.problems, exit_code=code) from None
    except client.AnswerUnreadable as error:
        raise exit_codes.CommandFailed("ANSWER_UNREADABLE", error.message, exit_code=exit_codes.FAILED) from None


def _token_problem(server: Server | None) -> str:
    if server is not None and server.withheld:
        return (
            "requires a token; ASKBACK_TOKEN is for the server in ASKBACK_URL, or without that for this machine, and was not "
            "sent: set ASKBACK_URL to this server, or pass --token as well"
        )
    sent = server is None or server.token is not None
    problem = "rejects the token; pass a valid one" if sent else "requires a token; pass one"
    return f"{problem} with --token or ASKBACK_TOKEN"


FILE_NAME = "server.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    url: str
    pid: int
    token_path: str | None
    """None: the token is in the settings."""


@contextmanager
def announced(data_dir: Path, url: str, token_path: Path | None) -> Iterator[None]:
    """Announce a server on its data folder during the block. Of two on one folder, the first is announced."""
    lock = FileLock.take(data_dir / FILE_NAME)
    if lock is None:
        yield
        return
    announcement = Announcement(url=url, pid=os.getpid(), token_path=None if token_path is None else str(token_path))
    try:
        os.ftruncate(lock.fd, 0)
        os.write(lock.fd, json.dumps(asdict(announcement)).encode())
        yield
    finally:
        lock.path.unlink(missing_ok=True)
        lock.release()


def read_announcement(data_dir: Path) -> Announcement | None:
    """The server that runs on this folder now, if any."""
    path = data_dir / FILE_NAME
    try:
        return Announcement(**json.loads(path.read_text())) if is_held(path) else None
    except (OSError, ValueError, TypeError):
        # There is no file, or it is being written.
        return None
