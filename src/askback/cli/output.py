"""The program's standard streams: always open, safe to print any character to, and with one JSON document on stdout."""

from __future__ import annotations

import codecs
import io
import os
import re
import shutil
import sys
from typing import Any, TextIO

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Control characters, and those that hide or reorder text. JSON itself escapes everything below 32."""


STYLES = {"▸": "bold", "?": "bold cyan", "·": "dim", "!": "yellow", "✔": "green", "✘": "red", "■": "yellow"}
"""The colour of a line, by its first character."""
_ASCII = {"▸": ">", "·": "-", "✔": "+", "✘": "x", "■": "#", "…": "...", "→": "->"}


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
    if character in _ASCII:
        return _ASCII[character], error.start + 1
    alone = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    return codecs.backslashreplace_errors(alone)


_SIGNS_IN_ASCII = "askback.signs_in_ascii"
codecs.register_error(_SIGNS_IN_ASCII, _in_ascii)


def columns() -> int | None:
    """The width of the terminal; None if stdout is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_line(line: str, *, indent: int = 4) -> None:
    """A line on stdout. On a terminal its sign has a colour, unless NO_COLOR is set, and what is too long is indented."""
    width = columns()
    if width is None:
        print(line)
        return
    import textwrap

    from rich.console import Console
    from rich.text import Text

    wrapped = [
        part
        for given in line.split("\n")
        for part in textwrap.wrap(
            given,
            max(width, indent + 20),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
    ]
    shown = Text("\n".join(wrapped))
    console, sign = Console(highlight=False), len(line) - len(line.lstrip())
    if not console.no_color:
        shown.stylize(STYLES.get(line[sign : sign + 1], ""), sign, sign + 1)
    console.print(shown, soft_wrap=True)


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
    """Print to stderr; if it is closed, do nothing."""
    try:
        print(*lines, sep="\n", end=end, file=sys.stderr, flush=True)
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
