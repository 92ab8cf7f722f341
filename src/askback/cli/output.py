"""The program's own streams: always open, never stopped by a character they cannot show, and one JSON document on stdout."""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, TextIO

_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
"""Control characters, and those that hide text or turn it around. What lies below 32 is escaped by JSON itself."""


def open_streams() -> None:
    """See that all three are there: a database that is opened as number 1 would be printed into."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _take_number(number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _take_number(number: int) -> None:
    descriptor = os.open(os.devnull, os.O_RDWR)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)


def print_json(document: Any) -> None:
    """One line, in which no character can move a cursor or hide text: those are escaped, as JSON allows.

    Where the stream cannot have a character, all that are not ASCII are escaped.
    """
    import json

    text = _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(document, ensure_ascii=False))
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(document)
    print(text)


def tell(*lines: str, end: str = "\n") -> None:
    """On stderr, if there is still somebody to read it."""
    try:
        print(*lines, sep="\n", end=end, file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def finish() -> None:
    """Write out what is still held back; it must not fail behind our back."""
    tell(end="")
    sys.stdout.flush()


def drop(stream: TextIO) -> None:
    """What could not be written is not tried again when the program ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
