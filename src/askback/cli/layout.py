"""How text looks on a terminal: its signs and colours, and lines that wrap at words and keep their indent.

Imported for every command, `--help` included, so it must import quickly.
"""

from __future__ import annotations

import locale
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import TextIO

STYLES = {"▸": "bold", "?": "bold cyan", "·": "dim", "!": "yellow", "✔": "green", "✘": "red", "■": "yellow"}
"""The colour of a line, by its first character."""
ASCII_SIGNS = {"▸": ">", "·": "-", "✔": "+", "✘": "x", "■": "#", "…": "...", "→": "->"}

_USUAL_WIDTH = 80
_MIN_TEXT = 20
"""The fewest columns for text behind an indent."""
_LEAD = re.compile(r"\s*(?:(?:[▸?·!✔✘■…→>+x#-]|\.{3}|->|\d+\))\s+)?")
"""The indent of a line and its sign or number. Further lines start below its text."""
_UNIT = re.compile(
    "(?<=: )askback .*|\\s+|[\u2e80-\uffef\U00020000-\U0003ffff]|[^\\s\u2e80-\uffef\U00020000-\U0003ffff]+"
)
"""What is not divided: a command at the end, spaces, a word, or one character of a script without spaces."""


@cache
def is_ascii_only() -> bool:
    """Whether the locale lacks our signs, as with `LC_ALL=C`. Python itself prints UTF-8 even then."""
    return locale.getencoding().lower().replace("-", "") != "utf8"


def signs(text: str) -> str:
    """The text with signs that the locale has."""
    return "".join(ASCII_SIGNS.get(each, each) for each in text) if is_ascii_only() else text


def columns(stream: TextIO | None = None) -> int | None:
    """The width of the terminal; None if the stream, by default stdout, is none."""
    stream = stream or sys.stdout
    return (os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH) if stream.isatty() else None


def cut(line: str, width: int) -> str:
    """The line, cut to the width of the terminal."""
    from rich.cells import cell_len, set_cell_size

    line, end = signs(line), signs("…")
    return line if cell_len(line) <= width else set_cell_size(line, width - len(end)).rstrip() + end


def wrapped(text: str, width: int, indent: int | None = None) -> str:
    """The lines of a text, each at most `width` columns wide. A word that is longer, such as a path, stays whole.

    The further lines of a line start at `indent`, by default below its text.
    """
    return "\n".join(part for line in signs(text).split("\n") for part in _wrap(line, width, indent))


def _wrap(line: str, width: int, indent: int | None) -> Iterator[str]:
    from rich.cells import cell_len

    lead = _LEAD.match(line)
    depth = indent if indent is not None else cell_len(lead[0]) if lead else 0
    width = max(width, depth + _MIN_TEXT)
    if cell_len(line) <= width:
        yield line
        return
    start = lead.end() if lead else 0
    current, used, is_empty = line[:start], cell_len(line[:start]), True
    for unit in _UNIT.findall(line[start:]):
        length = cell_len(unit)
        if used + length > width and not is_empty:
            yield current.rstrip()
            current, used, is_empty = " " * depth, depth, True
        if is_empty and unit.isspace():
            continue
        current, used, is_empty = current + unit, used + length, False
    yield current.rstrip()
