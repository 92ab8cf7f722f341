"""The layout of help: commands in groups, examples, headings in bold on a terminal, at most 80 columns.

Imported for every command, so it must import quickly.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from askback.cli import output

WIDTH = 80


class Formatter(click.HelpFormatter):
    """Headings are bold on a terminal, unless NO_COLOR is set."""

    def write_heading(self, heading: str) -> None:
        text = f"{heading}:"
        if sys.stdout.isatty():
            # Only here, because it takes longer to import than everything else that help needs.
            from rich.console import Console

            console = Console()
            if not console.no_color and console.color_system is not None:
                text = click.style(text, bold=True)
        self.write(f"{'':>{self.current_indent}}{text}\n")


class Context(click.Context):
    formatter_class = Formatter


class Command(click.Command):
    """A command with examples in its help: lines as they are typed, with `# …` behind them."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(output.ascii_fallback(f"  {line}\n"))


class Group(Command, click.Group):
    command_class = Command


def program() -> str:
    """`askback`, or what to type where it is not on the PATH."""
    started = Path(sys.argv[0])
    if "archive-v0" in Path(sys.prefix).parts:
        # An environment of uvx, which is on the PATH of this process only.
        return "uvx askback"
    if started.stem != "askback":
        return f"{shlex.quote(sys.executable)} -m askback"
    found = shutil.which("askback")
    on_path = found is not None and Path(found).resolve() == started.resolve()
    return "askback" if on_path else shlex.quote(sys.argv[0])
