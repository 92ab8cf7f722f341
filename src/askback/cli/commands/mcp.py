"""`askback mcp`: an MCP server on stdio, and its entry in the configuration of MCP clients."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from askback.cli import exit_codes, options, output
from askback.cli.connection import check_url, find, server_options
from askback.cli.help import Command, Group
from askback.cli.mcp_config import CLIENTS, NAME, ConfigFile, McpClient, command_line, entry_text
from askback.mcp import INSTALL, missing_package

if TYPE_CHECKING:
    from askback.settings.model import Settings

_NOTHING = "nothing was changed"


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
async def command(settings: Settings, as_json: bool, url: str | None, token: str | None, skill_tools: bool) -> int:
    """Serve MCP on stdin and stdout, as a client of a running server. Runs continue when the MCP client leaves."""
    options.refuse_json(as_json, "MCP")
    if sys.stdin.isatty():
        raise click.UsageError(
            "an MCP client starts this command, and speaks MCP with it; add it to one with: askback mcp install CLIENT"
        )
    _check_package()

    def server() -> tuple[str, str | None]:
        from askback.client import ServerUnreachable

        found = find(settings, url, token, named_alone=True)
        if found is None:
            raise ServerUnreachable("this machine", f"no server runs on the data folder {settings.data_dir}")
        return found.url, found.token

    from askback.mcp.stdio import serve_stdio

    await serve_stdio(server, skills_as_tools=skill_tools)
    return 0


@command.command(
    "install",
    cls=Command,
    examples=(
        "askback mcp install claude",
        "askback mcp install codex --url https://askback.example.com --print",
        "askback mcp install claude --force   # replace an entry that differs",
    ),
)
@click.argument("client", type=click.Choice(sorted(CLIENTS)))
@click.option("--print", "only_print", is_flag=True, help="Show what would be added, and write nothing.")
@click.option("--file", type=options.PathName(path_type=Path), metavar="F", help="The client's configuration file.")
@click.option("--yes", is_flag=True, help="Do not ask before the file is changed.")
@click.option("--force", is_flag=True, help="Replace an entry that differs. Implies --yes.")
@click.option("--url", metavar="URL", help="URL of the server for the entry; default: as for `askback mcp`.")
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
    force: bool,
    url: str | None,
) -> int:
    """Add Askback to the configuration of an MCP client. Everything else in the file stays, and a copy of it is kept.

    The entry has the server or the data folder that is in effect now, but never a token.
    """
    # Otherwise the client would start a program that fails.
    _check_package()
    chosen = CLIENTS[client]
    path = file or chosen.path()
    entry = chosen.entry(command_line(_passed_on(ctx, settings)))
    text = entry_text(chosen, entry)
    shown = {"client": client, "path": str(path), "entry": text}
    if only_print:
        return _print_entry(shown, present=_is_present(chosen, path), as_json=as_json)
    config = ConfigFile.read(chosen, path, f"add this by hand: {text}")
    present = config.existing is not None
    if config.has(entry):
        message = f"{path} has this entry already; nothing is to be done"
        return output.print_done(
            {**shown, "written": False, "present": True, "backup": None}, message, as_json=as_json, on_stderr=True
        )
    wanted = config.with_entry(entry)
    if not (force or _may_install(config, text, yes=yes, as_json=as_json)):
        output.to_stderr(_NOTHING)
        return exit_codes.FAILED
    backup = config.write(wanted)
    done = "replaced the entry of askback in" if present else "added askback to"
    message = f"{done} {path}{_about_backup(backup)}; restart {client}, and keep a server running: askback serve"
    document = {**shown, "written": True, "present": present, "backup": backup and str(backup)}
    return output.print_done(document, message, as_json=as_json, on_stderr=True)


@command.command("uninstall", cls=Command, examples=("askback mcp uninstall claude",))
@click.argument("client", type=click.Choice(sorted(CLIENTS)))
@click.option("--file", type=options.PathName(path_type=Path), metavar="F", help="The client's configuration file.")
@click.option("--yes", is_flag=True, help="Do not ask before the file is changed.")
@options.common
def uninstall(settings: Settings, as_json: bool, client: str, file: Path | None, yes: bool) -> int:
    """Remove Askback from the configuration of an MCP client. Everything else in the file stays, and a copy of it is kept."""
    chosen = CLIENTS[client]
    path = file or chosen.path()
    config = ConfigFile.read(chosen, path, f"remove {NAME} from {chosen.section} by hand")
    shown = {"client": client, "path": str(path)}
    if config.existing is None:
        message = f"{path} has no {NAME}; nothing is to be done"
        return output.print_done({**shown, "removed": False, "backup": None}, message, as_json=as_json, on_stderr=True)
    wanted = config.without_entry()
    lines = (f"{path} loses:", config.existing_text)
    if not yes and not _confirmed("Remove it?", *lines, path=path, as_json=as_json):
        output.to_stderr(_NOTHING)
        return exit_codes.FAILED
    backup = config.write(wanted)
    message = f"removed askback from {path}{_about_backup(backup)}; restart {client}"
    return output.print_done(
        {**shown, "removed": True, "backup": backup and str(backup)}, message, as_json=as_json, on_stderr=True
    )


def _check_package() -> None:
    """Raises `CommandFailed` without the extra `mcp`, with the command that installs it."""
    if missing_package():
        raise exit_codes.CommandFailed("MCP_MISSING", f"MCP is not installed; {INSTALL}", exit_code=exit_codes.FAILED)


def _print_entry(shown: dict[str, Any], *, present: bool, as_json: bool) -> int:
    if as_json:
        output.print_json({**shown, "written": False, "present": present})
    else:
        output.to_stderr(f"{shown['path']} would get:")
        print(shown["entry"])
    return 0


def _is_present(client: McpClient, path: Path) -> bool:
    """Whether the file has an entry. False if the file cannot be read."""
    with suppress(exit_codes.CommandFailed):
        return ConfigFile.read(client, path, "").existing is not None
    return False


def _may_install(config: ConfigFile, text: str, *, yes: bool, as_json: bool) -> bool:
    """Whether the user agrees. `--yes` does not replace an entry that somebody may have written by hand."""
    from askback.cli.terminal.prompt import on_terminal

    if config.existing is None:
        return yes or _confirmed("Add it?", f"{config.path} gets:", text, path=config.path, as_json=as_json)
    if yes or as_json or not on_terminal():
        message = f"{config.path} has another entry {NAME}, and {_NOTHING}; replace it with --force"
        problems = (f"it has: {config.existing_text}", f"it would get: {text}")
        raise exit_codes.CommandFailed("ENTRY_DIFFERS", message, problems)
    output.to_stderr(f"{config.path} has another entry {NAME}:", config.existing_text, "it would get:", text)
    return click.confirm("Replace it?", default=False, err=True)


def _confirmed(question: str, *lines: str, path: Path, as_json: bool) -> bool:
    """Whether the user agrees. Without somebody to ask, a file of another program is not changed."""
    from askback.cli.terminal.prompt import on_terminal

    if as_json or not on_terminal():
        raise click.UsageError(f"{_NOTHING}: {path} is changed only if you agree; pass --yes")
    output.to_stderr(*lines)
    return click.confirm(question, default=True, err=True)


def _about_backup(backup: Path | None) -> str:
    return "" if backup is None else f" (the old file is {backup})"


def _passed_on(ctx: click.Context, settings: Settings) -> list[str]:
    """The options that select the current server, but never the token: another program's file would contain it."""
    from askback.settings.environment import client_environment, environment_moves_data

    assert ctx.parent is not None
    given = {**ctx.parent.params, **{key: value for key, value in ctx.params.items() if value is not None}}
    words: list[str] = []
    if (config := given.get("config")) is not None:
        words += ["--config", str(Path(config).absolute())]
    if given.get("data_dir") is not None or environment_moves_data():
        words += ["--data-dir", str(settings.data_dir.absolute())]
    if url := given.get("url") or client_environment()[0]:
        words += ["--url", _without_secret(url)]
    return words + (["--skill-tools"] if given.get("skill_tools") else [])


def _without_secret(url: str) -> str:
    """The URL. Raises if it is invalid, or contains a user name or password."""
    check_url(url)
    if "@" in urlsplit(url).netloc:
        raise click.UsageError("the URL has a name or password, which would be in the file of another program")
    return url
