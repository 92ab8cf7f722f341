"""Problems of packages and requests: where each one is, what is wrong, and how to fix it.

Values and names in messages are shortened and printable, whatever a package or a request contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from askback.core.errors import FieldCode, FieldProblem
from askback.core.interactions import Json
from askback.text.formatting import cut, nearest

SHOWN = 3
"""How many problems a one-line message lists before it only counts them."""
MAX_UNKNOWN = 50
"""How many unknown names of one object are listed. Looking for similar names is slow."""
_SHORT = 60
_MAX_COMPARED = 200


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`where` is the file and the path in it: `assets/runner.json: max_attempt`."""

    severity: Severity
    where: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"; {self.fix}" if self.fix else "")


def error(where: str, message: str, fix: str = "") -> Problem:
    return Problem(severity=Severity.ERROR, where=where, message=message, fix=fix)


def warning(where: str, message: str, fix: str = "") -> Problem:
    return Problem(severity=Severity.WARNING, where=where, message=message, fix=fix)


def errors_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


def in_one_line(problems: Iterable[object]) -> str:
    texts = [str(problem) for problem in problems]
    shown = "; ".join(texts[:SHOWN])
    return shown if len(texts) <= SHOWN else f"{shown}; and {len(texts) - SHOWN} more"


def unknown_name(name: str, known: Iterable[str]) -> str:
    """`is unknown`, with the most similar known name, or all of them."""
    names = list(known)
    if near := nearest(name, names, cutoff=0.7):
        return f"is unknown; did you mean {near!r}?"
    return f"is unknown; known: {', '.join(names)}" if names else "is unknown; none is defined here"


def format_path(root: str, path: Iterable[Any]) -> str:
    """`input`, `items`, 3, `name` → `input.items[3].name`."""
    text = root
    for part in path:
        if not isinstance(part, str):
            text += f"[{part}]"
        elif part.isprintable() and part and not set(part) & set(' .[]:"'):
            text += f".{short(part, quoted=False)}"
        else:
            text += f"[{short(part)}]"
    return text


def problem_at(root: str, path: Iterable[str | int], message: str, code: FieldCode = FieldCode.INVALID) -> FieldProblem:
    """A problem of a request whose names may be long or unprintable."""
    steps = tuple(path)
    return FieldProblem.at((root, *steps), message, code, place=format_path(root, steps))


def short(value: Json, *, quoted: bool = True) -> str:
    """The value as printable JSON, cut to about 60 characters."""
    if isinstance(value, str):
        shown = cut(value, _SHORT)
        return printable(json.dumps(shown, ensure_ascii=False) if quoted else shown)
    text = ""
    try:
        for chunk in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            text += chunk[: _SHORT + 1]
            if len(text) > _SHORT:
                return printable(cut(text, _SHORT))
    except (ValueError, TypeError, RecursionError):
        return "the value"
    return printable(text)


def printable(text: str) -> str:
    """Control characters, and characters that hide or reorder text, become escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
