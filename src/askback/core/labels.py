"""Labels: short texts by name, with which a caller marks its runs. The rules for them, and the comparison. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from askback.core.errors import FieldProblem, Forbidden, Invalid, RefusalCode

Labels = Mapping[str, str]
NO_LABELS: Labels = MappingProxyType({})

MCP_CALL = "mcp_call"
"""Marks a run of the MCP server with a digest of the call that started it, so that the same call finds it."""
ACP_SESSION = "acp-session"
"""Marks a run of `askback acp` with the session of the client."""
INTERNAL = frozenset({MCP_CALL, ACP_SESSION})
"""These are for programs: people are not shown them. They belong to one run, and are not inherited. Anybody can set them,
so they say nothing about who created it."""

MAX_LABELS = 16
MAX_VALUE_CHARS = 200
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""A name has no `:` and no `=`, so that `name:value` and `name=value` can be read in one way only."""
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_NAME_RULE = "a name has 1 to 63 letters, digits, '.', '_' or '-', and starts with a letter or digit"
_UNFIT_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Invisible characters that change the order of others, so that a value would look like another one."""


def label_problems(labels: Labels, path: str = "labels") -> Iterator[FieldProblem]:
    """Every reason why a run cannot have these labels."""
    if len(labels) > MAX_LABELS:
        yield FieldProblem.at((path,), f"there are {len(labels)} labels; at most {MAX_LABELS} are allowed")
        return
    for name, value in labels.items():
        if not _NAME.fullmatch(name):
            yield FieldProblem.at((path,), f"{name[:80]!r} is not a name; {_NAME_RULE}")
        elif problem := _value_problem(value):
            yield FieldProblem.at((path, name), problem)


def _value_problem(value: str) -> str | None:
    if not 1 <= len(value) <= MAX_VALUE_CHARS:
        return f"a value has 1 to {MAX_VALUE_CHARS} characters, this one has {len(value)}"
    if not is_one_line(value):
        return "a value is one line without control characters"
    return None


def is_one_line(text: str) -> bool:
    """Whether it has no control characters, line breaks, or characters that let it look like another text."""
    return not any(unicodedata.category(each) in _UNFIT_CATEGORIES or each in _BIDIRECTIONAL for each in text)


def check_labels(labels: Labels, path: str = "labels") -> None:
    if problems := tuple(label_problems(labels, path)):
        raise Invalid(RefusalCode.INPUT_INVALID, "these labels are not valid", problems)


def read_labels(texts: Iterable[str], separator: str, path: str) -> dict[str, str]:
    """Labels from texts such as `customer:4711`. The first separator ends the name; the value may contain others."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition(separator)
        if not sign:
            message = f"{path} {text[:80]!r}: write a name and a value, such as customer{separator}4711"
            raise Invalid(RefusalCode.INPUT_INVALID, message)
        if found.setdefault(name, value) != value:
            message = f"{path} {name[:80]!r} is given twice, with different values"
            raise Invalid(RefusalCode.INPUT_INVALID, message)
    check_labels(found, path)
    return found


def has_labels(labels: Labels, wanted: Labels) -> bool:
    """Whether all wanted labels are among these."""
    return wanted.items() <= labels.items()


def restricted(labels: Labels, fixed: Labels) -> dict[str, str]:
    """The labels of a run that a caller creates whose token is restricted to the fixed ones."""
    for name, value in fixed.items():
        if labels.get(name, value) != value:
            message = f"this token is restricted to {shown_labels(fixed)}; labels.{name} cannot have another value"
            raise Forbidden(RefusalCode.SCOPE_MISSING, message)
    return {**labels, **fixed}


def for_people(labels: Labels) -> dict[str, str]:
    """The labels that people see: without those that programs use among themselves."""
    return {name: value for name, value in labels.items() if name not in INTERNAL}


def shown_labels(labels: Labels) -> str:
    """In one line: `customer=4711, plan=trial`."""
    return ", ".join(f"{name}={value}" for name, value in labels.items())
