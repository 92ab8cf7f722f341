"""The command `askback`. It imports a subcommand only when it is called, so that help is fast.

Exit codes: 0 success, 1 the run failed or this machine cannot do it, 2 usage or bad input, 3 no server responds,
4 the run waits for an answer, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from askback import __version__
from askback.cli import exit_codes, output
from askback.cli.help import WIDTH, Group
from askback.core.errors import AskbackError, Unavailable
from askback.text.formatting import nearest

_GROUPS = {
    "Start here": {
        "demo": "Take a tour: a skill asks a question and gets an answer.",
        "run": "Run a skill in this program, and ask on this terminal.",
        "reply": "Answer the question of a waiting run.",
    },
    "Runs": {
        "inbox": "List the pending questions.",
        "runs": "List the runs.",
        "show": "Show a run: input, state, questions, error, usage, files.",
        "watch": "Follow a run live until it ends.",
        "cancel": "Cancel a run.",
        "resume": "Execute a run now that is parked for a limit.",
        "delete": "Delete a run that is over.",
        "usage": "Show what runs have used: tokens and reported costs.",
    },
    "Skills and engines": {
        "skills": "List, make, check and install skills.",
        "engines": "List the engines: installed or not, signed in or not.",
        "permissions": "Explain what a policy decides of a tool call.",
    },
    "Server": {
        "serve": "Serve the HTTP API and the page, and execute runs.",
        "worker": "Execute runs of a server on another machine.",
        "workers": "List the programs that execute runs.",
        "mcp": "Connect Claude Code, Codex and other MCP clients.",
        "acp": "Let an editor that speaks ACP run skills on a server.",
        "database": "Create and upgrade the tables in PostgreSQL.",
        "files": "Show the file store, and whether it is the right one.",
        "tokens": "List, create and revoke tokens of a server.",
        "invitations": "Invite a device: a URL that signs it in, once.",
        "sessions": "List and revoke browser sessions of a server.",
        "audit": "List who wrote what: answers, runs, links, tokens.",
        "webhooks": "List the webhooks of the settings, and send test messages.",
    },
    "This machine": {
        "doctor": "Check this machine, and say how to fix what is wrong.",
        "config": "Show the settings, and where each value comes from.",
        "trust": "Trust the settings file of a folder.",
        "completion": "Print the completion script for your shell.",
    },
}
_COMMANDS = {name: about for group in _GROUPS.values() for name, about in group.items()}
_EXAMPLES = (
    "askback demo",
    "askback run trip-planner --engine scripted",
    "askback skills new my-skill && askback run ./my-skill --engine scripted",
)

_MODULES = {
    **dict.fromkeys(("runs", "show", "watch", "inbox", "cancel", "resume", "delete", "usage", "audit"), "runs"),
    **dict.fromkeys(("tokens", "sessions", "invitations"), "access"),
    **dict.fromkeys(("worker", "workers"), "worker"),
    **dict.fromkeys(("config", "trust"), "settings"),
}
"""Commands that share a module. Every other command has a module with its name."""


class _LazyGroup(Group):
    """Imports a command's module when the command is called. Help lists the texts above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"askback.cli.commands.{_MODULES.get(cmd_name, cmd_name)}"),
            "command" if cmd_name not in _MODULES else f"{cmd_name}_command",
        )
        # Shell completion shows it, too.
        command.short_help = _COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        longest = max(map(len, _COMMANDS))
        for heading, commands in _GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), about) for name, about in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            near = nearest(args[0], _COMMANDS)
            hint = f"did you mean '{near}'?" if near else f"known: {', '.join(_COMMANDS)}"
            raise click.UsageError(f"command {args[0]!r} is unknown; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH},
    examples=_EXAMPLES,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(__version__, "-V", "--version", prog_name="askback")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Askback runs agent skills that can ask back.

    A skill is a folder with a SKILL.md. A coding-agent CLI carries it out. It may ask you a question, waits as long
    as necessary, and resumes the same session with your answer.
    """
    if ctx.invoked_subcommand is None:
        output.to_stderr(ctx.get_help())
        return exit_codes.BAD_INPUT
    return 0


def main() -> None:
    """Run the command line. Every error is one message, never a traceback."""
    output.open_streams()
    try:
        words = sys.argv[1:]
        # An invalid command line gets its error as JSON, too, if it has `--json`.
        code = _run(as_json="--json" in (words[: words.index("--")] if "--" in words else words))
        # While an error can still be reported.
        output.to_stderr(end="")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output is gone.
        output.discard(sys.stdout)
        code = exit_codes.FAILED
    except OSError as error:
        output.discard(sys.stdout)
        code = _fail(False, "MACHINE", f"the output cannot be written: {error.strerror}", exit_code=exit_codes.FAILED)
    sys.exit(code)


def _run(*, as_json: bool) -> int:
    try:
        code = cli.main(prog_name="askback", standalone_mode=False)
    except click.exceptions.Abort:
        return _fail(as_json, "INTERRUPTED", "interrupted", exit_code=exit_codes.INTERRUPTED)
    except exit_codes.CommandFailed as error:
        return _fail(as_json, error.code, error.message, error.problems, exit_code=error.exit_code)
    except click.ClickException as error:
        usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        return _fail(as_json, "USAGE", error.format_message(), usage=usage)
    except AskbackError as error:
        kind = exit_codes.FAILED if isinstance(error, Unavailable) else exit_codes.BAD_INPUT
        return _fail(as_json, error.code, error.message, error.problems, exit_code=kind)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(as_json, "MACHINE", f"{where}{error.strerror or error}", exit_code=exit_codes.FAILED)
    return code if isinstance(code, int) else 0


def _fail(
    as_json: bool,
    code: str,
    message: str,
    problems: Sequence[str] = (),
    *,
    usage: str = "",
    exit_code: int = exit_codes.BAD_INPUT,
) -> int:
    if as_json:
        output.print_json({"error": {"code": code, "message": message, "problems": list(problems)}})
        return exit_code
    from askback.text.formatting import printable

    # A message may already contain its only problem.
    listed = [problem for problem in problems if problem not in message]
    lines = [f"askback: {printable(message)}", *(f"  - {printable(problem)}" for problem in listed)]
    output.to_stderr(*([usage] if usage else []), *lines)
    return exit_code
