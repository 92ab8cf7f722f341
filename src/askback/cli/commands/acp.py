"""`askback acp`: lets editors and chat bridges that speak ACP run skills on a server."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TextIO

import click

from askback.cli import connection, exit_codes, options
from askback.cli.help import Command
from askback.core.actors import Channel

if TYPE_CHECKING:
    from pathlib import Path

    from askback.client import AsyncClient
    from askback.settings.model import Settings

INSTALL = "install it with: pip install 'askback[acp]' (with pipx: pipx inject askback 'askback[acp]')"


@click.command("acp", cls=Command, examples=("askback acp", "askback acp --engine codex --workdir"))
@click.option("--engine", metavar="NAME", help="Engine of every run; default: as the server chooses.")
@click.option("--workdir", is_flag=True, help="Let the engine work in the folder of the session (setting workdirs).")
@options.common
@connection.server_options
async def command(
    settings: Settings, as_json: bool, engine: str | None, workdir: bool, url: str | None, token: str | None
) -> int:
    """Speak the Agent Client Protocol (ACP) on stdin and stdout. An editor starts this command.

    Skills are slash commands, and questions are asked in the chat. The runs belong to the server: they continue if
    the editor is closed, and can be answered elsewhere.
    """
    options.refuse_json(as_json, "ACP")
    if not (_is_pipe(sys.stdin) and _is_pipe(sys.stdout)):
        raise click.UsageError(
            "an editor starts this command, and speaks ACP with it; add `askback acp` to the agents in its settings"
        )
    if missing_package():
        message = f"the package agent-client-protocol is not installed; {INSTALL}"
        raise exit_codes.CommandFailed("PACKAGE_MISSING", message, exit_code=exit_codes.FAILED)
    # An extra, and it loads a lot.
    from askback.acp.agent import ServerFailed, serve
    from askback.acp.conversation import RunChoices

    def connect() -> tuple[AsyncClient, Path | None]:
        server = connection.find(settings, url, token, named_alone=True)
        if server is None:
            raise connection.no_server(settings)
        local = connection.read_announcement(settings.data_dir)
        is_local = local is not None and local.url == server.url
        return server.async_client(Channel.ACP), settings.runs if is_local else None

    @contextmanager
    def reported() -> Iterator[None]:
        try:
            with connection.errors_reported():
                yield
        except exit_codes.CommandFailed as failed:
            raise ServerFailed(failed.code, failed.message) from None

    await serve(connect, RunChoices(engine=engine, in_folder=workdir), reported)
    return 0


def _is_pipe(stream: TextIO) -> bool:
    """Whether another program is at the other end. A terminal, a file or `/dev/null` cannot speak the protocol."""
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def missing_package() -> bool:
    return find_spec("acp") is None
