"""What is wrong with a package or a request, in one form: where it is, what it is, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from askback.text.suggestions import nearest

SHOWN = 3
"""How many problems a one-line message holds before it says how many more there are."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake. `where` is the file and the path in it: `assets/runner.json: max_attempt`."""

    severity: Severity
    where: str
    message: str
    mend: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + (f"; {self.mend}" if self.mend else "")


def error(where: str, message: str, mend: str = "") -> Problem:
    return Problem(severity=Severity.ERROR, where=where, message=message, mend=mend)


def warning(where: str, message: str, mend: str = "") -> Problem:
    return Problem(severity=Severity.WARNING, where=where, message=message, mend=mend)


def errors_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.severity is Severity.ERROR)


def in_one_line(problems: Iterable[object]) -> str:
    texts = [str(problem) for problem in problems]
    shown = "; ".join(texts[:SHOWN])
    return shown if len(texts) <= SHOWN else f"{shown}; and {len(texts) - SHOWN} more"


MOST_UNKNOWN = 50
"""How many unknown names of one object are named; to look for what each may mean takes far longer than to send it."""


def unknown_name(name: str, known: Iterable[str]) -> str:
    """How a name that is not known is told: the nearest known one, or all of them."""
    names = list(known)
    if near := nearest(name, names, cutoff=0.7):
        return f"is unknown; did you mean {near!r}?"
    return f"is unknown; known: {', '.join(names)}" if names else "is unknown; none is known here"
