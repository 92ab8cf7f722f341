"""The difference between two texts as a unified diff, bounded in time and size whatever the texts are."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

MAX_COMPARED = 20_000
"""Lines of one text. Of a longer text, everything between the common beginning and the common end is replaced."""
MAX_LINES = 10_000
MAX_CHARS = 500_000
_MAX_STEPS = 5_000_000
_CONTEXT = 3
_NO_NEWLINE = "\\ No newline at end of file"

Opcode = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Each line starts with `+`, `-`, a space, `@@` or a backslash. There are none if the texts are the same."""

    lines: tuple[str, ...]
    cut: bool
    """Whether lines at the end are left out."""


def diff(before: str, after: str) -> Diff:
    """The difference, with three lines of context."""
    a, b = _lines(before), _lines(after)
    shown: list[str] = []
    left = MAX_CHARS
    for line in itertools.chain.from_iterable(_hunk(a, b, group) for group in _groups(a, b)):
        if len(shown) >= MAX_LINES or left <= 0:
            return Diff(lines=tuple(shown), cut=True)
        shown.append(line[:left])
        left -= len(line)
    return Diff(lines=tuple(shown), cut=left < 0)


def _lines(text: str) -> list[str]:
    """Lines with their ends. Only a line feed ends a line."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _groups(a: Sequence[str], b: Sequence[str]) -> Iterable[list[Opcode]]:
    if a == b:
        return []
    if max(len(a), len(b)) <= MAX_COMPARED:
        try:
            return list(SequenceMatcher(None, _Limited(a, b), b).get_grouped_opcodes(_CONTEXT))
        except _TooSlow:
            pass
    return [_replaced(a, b)]


def _replaced(a: Sequence[str], b: Sequence[str]) -> list[Opcode]:
    """One change from the first line that differs to the last."""
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    tail = next((at for at in range(shorter - head) if a[-1 - at] != b[-1 - at]), shorter - head)
    before, after = min(head, _CONTEXT), min(tail, _CONTEXT)
    end_a, end_b = len(a) - tail, len(b) - tail
    return [
        ("equal", head - before, head, head - before, head),
        ("replace", head, end_a, head, end_b),
        ("equal", end_a, end_a + after, end_b, end_b + after),
    ]


def _hunk(a: Sequence[str], b: Sequence[str], group: list[Opcode]) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
    for tag, a_from, a_to, b_from, b_to in group:
        if tag == "equal":
            yield from _marked(" ", a[a_from:a_to])
        else:
            yield from _marked("-", a[a_from:a_to])
            yield from _marked("+", b[b_from:b_to])


def _marked(sign: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield sign + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield _NO_NEWLINE


def _range(begin: int, end: int) -> str:
    """As `diff -u` writes it: an empty range names the line before it."""
    length = end - begin
    return f"{begin + 1 if length else begin},{length}"


class _TooSlow(Exception):
    pass


class _Limited(Sequence[str]):
    """Lines that can be looked at until the limit of steps. The matcher compares each with all equal lines of `b`, and
    a hostile text has many of them."""

    def __init__(self, lines: Sequence[str], b: Sequence[str]) -> None:
        self._lines = lines
        self._cost = Counter(b)
        self._left = _MAX_STEPS

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, at: Any) -> Any:
        line = self._lines[at]
        self._left -= 1 + self._cost[line]
        if self._left < 0:
            raise _TooSlow
        return line
