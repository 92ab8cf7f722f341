"""docs/reference/cli.md: the help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from askback.cli.help import WIDTH
from askback.cli.main import cli
from pages.markdown import fenced

INTRODUCTION = """# The command line

The output of `--help` for every command.

`askback completion` sets up [shell completion](../guides/run-a-skill.md#complete-with-tab).

"""


def page() -> str:
    sections = (
        f"## `{context.command_path}`\n\n{fenced(_help(context))}" for context in _contexts(cli, "askback", None)
    )
    return INTRODUCTION + "\n".join(sections)


def _contexts(command: click.Command, name: str, parent: click.Context | None) -> Iterator[click.Context]:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=name, parent=parent, **settings)
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None, child
            if not found.hidden:
                yield from _contexts(found, child, context)


def _help(context: click.Context) -> str:
    return "\n".join(line.rstrip() for line in context.get_help().splitlines())
