"""The program's own streams: always open, never stopped by a character they cannot show, and one JSON document on stdout."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Any


def open_streams() -> None:
    """See that all three are there: a database that is opened as number 1 would be printed into."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _take_number(number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _take_number(number: int) -> None:
    descriptor = os.open(os.devnull, os.O_RDWR)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)


def print_json(document: Any) -> None:
    """One line. Where the stream cannot have a character, all that are not ASCII are escaped."""
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        text = json.dumps(document)
    print(text)


def flush() -> None:
    sys.stdout.flush()


def drop_stdout() -> None:
    """What could not be written is not tried again when the program ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)
