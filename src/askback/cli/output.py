"""The standard streams: always open, safe to print any character to, and with one JSON document on stdout.

On a terminal, text has signs and colours, and lines wrap at words and keep their indent. Imported for every command,
`--help` included, so it must import quickly.
"""

from __future__ import annotations

import codecs
import io
import locale
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TextIO, TypeVar

T = TypeVar("T")

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


@cache
def is_ascii_only() -> bool:
    """Whether the locale lacks our signs, as with `LC_ALL=C`. Python itself prints UTF-8 even then."""
    return locale.getencoding().lower().replace("-", "") != "utf8"


def ascii_fallback(text: str) -> str:
    """The text, with its signs in ASCII if the locale lacks them."""
    return "".join(ASCII_SIGNS.get(each, each) for each in text) if is_ascii_only() else text


def columns(stream: TextIO | None = None) -> int | None:
    """The width of the terminal; None if the stream (default: stdout) is not a terminal."""
    stream = stream or sys.stdout
    return (os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH) if stream.isatty() else None


def cut(line: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    line, end = ascii_fallback(line), ascii_fallback("…")
    return line if cell_len(line) <= width else set_cell_size(line, width - len(end)).rstrip() + end


def wrapped(text: str, width: int, indent: int | None = None) -> str:
    """The lines of a text, each at most `width` columns wide. A word that is longer, such as a path, stays whole.

    The further lines of a line start at `indent`, by default below its text.
    """
    return "\n".join(part for line in ascii_fallback(text).split("\n") for part in _wrap(line, width, indent))


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


def print_line(line: str = "", *, indent: int | None = None) -> None:
    """A line on stdout. On a terminal its sign has a colour, unless NO_COLOR is set, and it wraps at words.

    What does not fit continues at `indent`, by default below the text.
    """
    width = columns()
    if width is None:
        print(ascii_fallback(line))
        return
    from rich.console import Console
    from rich.text import Text

    shown = Text(wrapped(line, width, indent))
    console, sign = Console(highlight=False), len(line) - len(line.lstrip())
    if not console.no_color:
        shown.stylize(STYLES.get(line[sign : sign + 1], ""), sign, sign + 1)
    console.print(shown, soft_wrap=True)


def print_heading(line: str) -> None:
    """The heading of a list, on a terminal only: programs that read the list expect none."""
    width = columns()
    if width is None:
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    style = "" if console.no_color else "bold"
    console.print(Text(cut(line.rstrip(), width), style=style), soft_wrap=True)


def print_json(document: Any) -> None:
    """One line, with control characters escaped, and with all but ASCII if the stream's encoding lacks a character."""
    import json

    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(document)
    print(text)


def print_list(
    items: Sequence[T],
    lines: Callable[[T], str | Iterable[str]],
    *,
    as_json: bool,
    document: Callable[[T], Any] | None = None,
    heading: str = "",
    indent: int | None = 2,
    empty: str = "",
) -> int:
    """A list: one JSON document, or a heading and the lines of each item. Without items, `empty` goes to stderr.

    By default, `document` is the JSON of the API. Lines that do not fit continue at `indent`.
    """
    if as_json:
        import msgspec

        print_json([(document or msgspec.to_builtins)(each) for each in items])
        return 0
    if heading and items:
        print_heading(heading)
    for each in items:
        shown = lines(each)
        for line in [shown] if isinstance(shown, str) else shown:
            print_line(line, indent=indent)
    if empty and not items:
        to_stderr(empty)
    return 0


def print_csv(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Comma-separated values. No value begins like a formula of a spreadsheet."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(heading)
    for row in rows:
        writer.writerow([f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value for value in row])


def print_done(document: Any, *lines: str, as_json: bool, indent: int | None = None, on_stderr: bool = False) -> int:
    if as_json:
        print_json(document)
    elif on_stderr:
        to_stderr(*lines)
    else:
        for line in lines:
            print_line(line, indent=indent)
    return 0


def print_output(data: Any) -> None:
    """A run's output: text as it is, anything else as indented JSON."""
    import json

    from askback.text.formatting import printable

    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, indent=2)
    print(printable(text) if sys.stdout.isatty() else text)


def to_stderr(*lines: str, end: str = "\n") -> None:
    """Print to stderr; if it is closed, do nothing. On a terminal, lines wrap at words."""
    width = columns(sys.stderr)
    shown = [ascii_fallback(line) if width is None else wrapped(line, width) for line in lines]
    try:
        print(*shown, sep="\n", end=end, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Drop buffered output, so that it is not written when the program ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
