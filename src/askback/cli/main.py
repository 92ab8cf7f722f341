"""The command `askback`: finds its subcommands only when they are called, so that help is quick.

Exit codes: 0 done, 1 the run failed or this machine cannot do it, 2 usage or bad input, 3 no server answers,
4 the run waits for an answer, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

from askback import __version__
from askback.cli import exit_codes, output
from askback.core.errors import AskbackError, Unavailable
from askback.text.suggestions import nearest

_COMMANDS = {
    "demo": "A tour: a skill runs, asks, gets its answer, goes on and prints its checked result.",
    "run": "Run a skill here and now, asking on this terminal.",
    "reply": "Answer the question of a run that waits.",
    "serve": "Serve the HTTP API, and carry its runs out.",
    "runs": "List the runs of a server.",
    "show": "Show a run: state, question, warnings, error, usage, files.",
    "watch": "Follow a run live until it ends.",
    "inbox": "List the questions that wait for an answer.",
    "cancel": "Cancel a run.",
    "tokens": "List, make and revoke tokens for a server.",
    "sessions": "List and end browser sessions of a server.",
    "skills": "List, install and check skills.",
    "trust": "Allow the settings file of a folder to be used.",
    "engines": "Show each engine: found or not, version, what it can do.",
    "doctor": "Say whether this machine is fit, and what to do if it is not.",
}

_MODULES = dict.fromkeys(("runs", "show", "watch", "inbox", "cancel"), "runs")
"""Commands that share a module; each other one has a module with its name."""


class _LateGroup(click.Group):
    """Imports a command's module when it is needed; the list shows the texts above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"askback.cli.commands.{_MODULES.get(cmd_name, cmd_name)}"),
            "command" if cmd_name not in _MODULES else f"{cmd_name}_command",
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _COMMANDS:
            raise click.UsageError(_unknown(args[0]), ctx)
        return super().resolve_command(ctx, args)


def _unknown(name: str) -> str:
    near = nearest(name, _COMMANDS)
    hint = f"; did you mean '{near}'?" if near else f"; there are: {', '.join(_COMMANDS)}"
    return f"there is no command {name!r}{hint}"


@click.command(
    cls=_LateGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
)
@click.version_option(__version__, "-V", "--version", prog_name="askback")
@click.pass_context
def cli(ctx: click.Context) -> int:
    """Askback runs agent skills that can ask back.

    A skill is a folder with a SKILL.md. A coding-agent program carries it out; it may stop to ask you something,
    waits as long as it takes, and goes on in the same session when you answer.

    Begin with: askback demo
    """
    if ctx.invoked_subcommand is None:
        output.tell(ctx.get_help())
        return exit_codes.BAD_INPUT
    return 0


def main() -> None:
    """Run the command line; every error is one clear message, never a traceback."""
    output.open_streams()
    try:
        code = _run(as_json=_wants_json(sys.argv[1:]))
        output.finish()
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody to tell.
        output.drop(sys.stdout)
        code = exit_codes.FAILED
    except OSError as error:
        output.drop(sys.stdout)
        code = _fail(False, "MACHINE", f"the output cannot be written: {error.strerror}", exit_code=exit_codes.FAILED)
    sys.exit(code)


def _wants_json(words: Sequence[str]) -> bool:
    """Also a command line that cannot be read is answered in JSON, if it asks for that."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _run(*, as_json: bool) -> int:
    try:
        code = cli.main(prog_name="askback", standalone_mode=False)
    except click.exceptions.Abort:
        return _fail(as_json, "INTERRUPTED", "interrupted", exit_code=exit_codes.INTERRUPTED)
    except exit_codes.EndedBySignal as error:
        return _fail(as_json, "INTERRUPTED", str(error), exit_code=error.exit_code)
    except exit_codes.Told as error:
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
    from askback.text.terminal import printable

    # A message that says it all in one line is not said again.
    further = [problem for problem in problems if problem not in message]
    lines = [f"askback: {printable(message)}", *(f"  - {printable(problem)}" for problem in further)]
    output.tell(*([usage] if usage else []), *lines)
    return exit_code
