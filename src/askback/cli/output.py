"""The program's standard streams: always open, safe to print any character to, and with one JSON document on stdout."""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from typing import Any, TextIO

from askback.cli import layout
from askback.cli.layout import ASCII_SIGNS

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Control characters, and those that hide or reorder text. JSON itself escapes everything below 32."""


def open_streams() -> None:
    """Open streams that the caller has closed: a database opened as descriptor 1 would be printed into."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SIGNS_IN_ASCII)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Our own signs have a look-alike in ASCII; every other character is escaped."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if character in ASCII_SIGNS:
        return ASCII_SIGNS[character], error.start + 1
    alone = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(alone)


_SIGNS_IN_ASCII = "askback.signs_in_ascii"
codecs.register_error(_SIGNS_IN_ASCII, _in_ascii)


def print_line(line: str = "", *, indent: int | None = None) -> None:
    """A line on stdout. On a terminal its sign has a colour, unless NO_COLOR is set, and it wraps at words.

    What does not fit continues at `indent`, by default below the text.
    """
    width = layout.columns()
    if width is None:
        print(layout.signs(line))
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text(layout.wrapped(line, width, indent))
    console, sign = Console(highlight=False), len(line) - len(line.lstrip())
    if not console.no_color:
        shown.stylize(layout.STYLES.get(line[sign : sign + 1], ""), sign, sign + 1)
    console.print(shown, soft_wrap=True)


def print_command(line: str) -> None:
    """A command to copy: never wrapped."""
    print(f"    {line}")


def print_heading(line: str) -> None:
    """The heading of a list, on a terminal only: programs that read the list expect none."""
    width = layout.columns()
    if width is None:
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    style = "" if console.no_color else "bold"
    console.print(Text(layout.cut(line.rstrip(), width), style=style), soft_wrap=True)


def print_json(document: Any) -> None:
    """One line. Characters that could move a cursor or hide text are escaped, as JSON allows.

    If the stream's encoding lacks a character, everything but ASCII is escaped.
    """
    import json

    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(document)
    print(text)


def print_output(data: Any) -> None:
    """A run's output: text as it is, anything else as indented JSON."""
    import json

    from askback.text.formatting import printable

    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
    print(printable(text) if sys.stdout.isatty() else text)


def to_stderr(*lines: str, end: str = "\n") -> None:
    """Print to stderr; if it is closed, do nothing. On a terminal, lines wrap at words."""
    width = layout.columns(sys.stderr)
    shown = [layout.signs(line) if width is None else layout.wrapped(line, width) for line in lines]
    try:
        print(*shown, sep="\n", end=end, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def flush() -> None:
    """Write what is still buffered, while an error can be reported."""
    to_stderr(end="")
    sys.stdout.flush()


def discard(stream: TextIO) -> None:
    """Do not try again to write what is buffered when the program ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
