"""How help looks: commands in groups, examples, headings in bold on a terminal, at most 80 columns.

Imported for every command, so it must import quickly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from askback.cli import layout

WIDTH = 80


class Formatter(click.HelpFormatter):
    """Headings are bold on a terminal, unless NO_COLOR is set."""

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{_bold(f'{heading}:')}\n")


def _bold(text: str) -> str:
    if not sys.stdout.isatty():
        return text
    # Only here, because it takes longer to import than everything else that help needs.
    from rich.console import Console

    console = Console()
    return text if console.no_color or console.color_system is None else click.style(text, bold=True)


class Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    """A command with examples in its help: lines as they are typed, with `# …` behind them."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)


class Group(Command, click.Group):
    command_class = Command


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples:
                formatter.write(layout.signs(f"  {line}\n"))
