"""Strict JSON, limited in the number of values as well as in bytes.

A body of a few megabytes can describe millions of objects, each far larger than its text. So values are counted in the
text, before any object is created.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

_STRUCTURE = (b",", b"[", b"{")
"""Each adds a value. There are never more names than values."""
LONGEST_NUMBER = 100
"""In characters: the time to parse a number grows with the square of its length."""
_NUMBER = b"0123456789+-.eE"
_AS_NINES = bytes(b"9"[0] if each in _NUMBER else b" "[0] for each in range(256))
_TOO_LONG = b"9" * (LONGEST_NUMBER + 1)


class TooManyValues(Exception):
    """The body contains more values than allowed."""


class NumberTooLong(Exception):
    """The body contains a number that is too long."""


class Counter:
    """Counts values and names in JSON text that arrives in pieces.

    Exact up to the first syntax error, which the decoder reports.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._carry = b""
        self._in_string = False
        self._number = b""
        self.count = 1
        self.names = 0

    def feed(self, piece: bytes) -> None:
        """Raises `TooManyValues` or `NumberTooLong`."""
        text = self._without_escapes(piece)
        parts = text.split(b'"')
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.names += outside.count(b":")
        self.count += sum(outside.count(sign) for sign in _STRUCTURE)
        if self.count > self._most:
            raise TooManyValues
        self._measure(outside)

    def _measure(self, outside: bytes) -> None:
        numbers = self._number + outside.translate(_AS_NINES)
        if _TOO_LONG in numbers:
            raise NumberTooLong
        # The last number may continue in the next piece.
        self._number = numbers[len(numbers.rstrip(b"9")) :]

    def _without_escapes(self, piece: bytes) -> bytes:
        """Without escaped quotes and backslashes: every remaining quote starts or ends a string."""
        text = self._carry + piece
        backslashes = len(text) - len(text.rstrip(b"\\"))
        # The last backslash escapes the start of the next piece.
        self._carry = b"\\" if backslashes % 2 else b""
        text = text[: len(text) - len(self._carry)]
        return text.replace(b"\\\\", b"").replace(b'\\"', b"")


def decode(body: bytes, names: int) -> Any:
    """The document. Raises `ValueError` for NaN, lone surrogates, numbers out of range, deep nesting and duplicate names.

    `names` is the number of names in the text.
    """
    try:
        document = msgspec.json.decode(body)
        if _names_in(document) != names:
            # Finds the duplicate name; slower, and keeps no objects.
            json.loads(body, object_pairs_hook=_refuse_doubles)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return document


def _names_in(document: Any) -> int:
    count, pending = 0, [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            count += len(value)
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return count


def _refuse_doubles(pairs: list[tuple[str, Any]]) -> None:
    """Readers differ in which of two values with the same name they use."""
    if len(dict(pairs)) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name!r} is used twice")
            seen.add(name)
