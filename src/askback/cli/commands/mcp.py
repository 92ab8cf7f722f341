"""`askback mcp`: an MCP server on stdio, and its entry in the configuration of MCP clients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from askback.cli import exit_codes, options, output
from askback.cli.connection import find, server_options
from askback.cli.help import Command, Group
from askback.cli.mcp_clients import CLIENTS, Change, command_line, planned

if TYPE_CHECKING:
    from askback.settings import Settings

_PASSED_ON = {"config": "--config", "data_dir": "--data-dir", "url": "--url"}
"""Never the token: it would be in the file of another program."""


@click.group(
    "mcp",
    cls=Group,
    invoke_without_command=True,
    examples=(
        "askback mcp install claude      # then ask Claude Code to run a skill",
        "askback mcp install codex --print",
        "askback mcp                     # what the client starts",
    ),
)
@click.option("--skill-tools", is_flag=True, help="Offer each skill as a separate tool, too.")
@server_options
@options.common
@click.pass_context
def command(
    ctx: click.Context, settings: Settings, as_json: bool, url: str | None, token: str | None, skill_tools: bool
) -> int:
    """Serve MCP on stdin and stdout, as a client of a running server. Runs continue when the MCP client leaves."""
    if ctx.invoked_subcommand is not None:
        return 0
    options.refuse_json(as_json, "MCP")
    _check_package()

    def server() -> tuple[str, str | None]:
        from askback.client import ServerUnreachable

        found = find(settings, url, token)
        if found is None:
            raise ServerUnreachable("this machine", f"no server runs on the data folder {settings.data_dir}")
        return found.url, found.token

    async def serve() -> int:
        from askback.mcp.stdio import serve_stdio

        await serve_stdio(server, skills_as_tools=skill_tools)
        return 0

    return exit_codes.run_async(serve)


@command.command(
    "install",
    cls=Command,
    examples=(
        "askback mcp install claude",
        "askback mcp --url https://askback.example.com install codex --print",
    ),
)
@click.argument("client", type=click.Choice(sorted(CLIENTS)))
@click.option("--print", "only_print", is_flag=True, help="Show what would be added, and write nothing.")
@click.option("--file", type=options.PathName(path_type=Path), metavar="F", help="The client's configuration file.")
@click.option("--yes", is_flag=True, help="Do not ask before the file is changed.")
@options.common
@click.pass_context
def install(
    ctx: click.Context,
    settings: Settings,
    as_json: bool,
    client: str,
    only_print: bool,
    file: Path | None,
    yes: bool,
) -> int:
    """Add Askback to the configuration of an MCP client. Everything else in the file stays, and a copy of it is kept."""
    # Otherwise the client would start a program that fails.
    _check_package()
    change = planned(CLIENTS[client], file, command_line(_passed_on(ctx)))
    written = not only_print and not change.present
    if written:
        if not yes and not as_json:
            _confirm(change)
        change.write()
    if as_json:
        shown = {"client": client, "path": str(change.path), "entry": change.entry}
        output.print_json({**shown, "written": written, "present": change.present})
    elif only_print:
        output.to_stderr(f"{change.path} would get:")
        print(change.entry)
    elif change.present:
        output.to_stderr(f"{change.path} has askback already; nothing was changed")
    else:
        output.to_stderr(f"added askback to {change.path}; restart {client}, and keep a server running: askback serve")
    return 0


def _check_package() -> None:
    """Raises `CommandFailed` without the extra `mcp`, with the command that installs it."""
    from askback.bootstrap.mcp import INSTALL, missing_package

    if missing_package():
        raise exit_codes.CommandFailed("MCP_MISSING", f"MCP is not installed; {INSTALL}", exit_code=exit_codes.FAILED)


def _confirm(change: Change) -> None:
    """Ask, if somebody is there."""
    from askback.cli.terminal.prompt import on_terminal

    if on_terminal():
        output.to_stderr(f"{change.path} gets:", change.entry)
        click.confirm("Add it?", default=True, abort=True, err=True)


def _passed_on(ctx: click.Context) -> list[str]:
    """The options that select the server, as they were given to `askback mcp` or `askback mcp install`."""
    assert ctx.parent is not None
    given = {**ctx.parent.params, **{key: value for key, value in ctx.params.items() if value is not None}}
    words: list[str] = []
    for name, option in _PASSED_ON.items():
        if (value := given.get(name)) is not None:
            words += [option, str(Path(value).absolute()) if isinstance(value, Path) else str(value)]
    return words + (["--skill-tools"] if given.get("skill_tools") else [])
