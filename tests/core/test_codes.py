"""Every code has its meaning and its kind, and is raised with that kind."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import askback
from askback.core.errors import (
    AskbackError,
    ErrorCode,
    Invalid,
    RefusalCode,
    WarningCode,
)

PACKAGE = Path(askback.__file__).parent
KINDS = {kind.__name__: kind for kind in AskbackError.__subclasses__()}


def raised(source: str) -> list[tuple[int, str, str]]:
    """Where the source makes an error of a kind with a code: line, kind, code."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Name(id=kind), args=[ast.Attribute(value=ast.Name(id="RefusalCode"), attr=name), *_]
            ) if kind in KINDS:
                found.append((node.lineno, kind, name))
            case _:
                pass
    return found


@pytest.mark.parametrize("codes", [ErrorCode, WarningCode, RefusalCode])
def test_every_code_is_explained(codes: type[ErrorCode] | type[WarningCode] | type[RefusalCode]) -> None:
    assert [code for code in codes if not code.meaning.endswith(".")] == []


def test_every_refusal_has_a_kind() -> None:
    assert {code.kind for code in RefusalCode} == set(KINDS.values())


@pytest.mark.parametrize("codes", [ErrorCode, WarningCode, RefusalCode])
def test_a_code_is_its_own_name(codes: type) -> None:
    assert [code.value for code in codes] == [code.name for code in codes]


def test_every_code_is_raised_with_its_kind() -> None:
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        for line, kind, name in raised(file.read_text(encoding="utf-8")):
            if RefusalCode[name].kind.__name__ != kind:
                wrong.append(f"{file.relative_to(PACKAGE)}:{line}: {name} is raised as {kind}")
    assert wrong == []


def test_the_reader_of_raises_sees_them() -> None:
    source = "def f():\n    raise Invalid(\n        RefusalCode.RUN_FINAL, 'no')\n"
    assert raised(source) == [(2, "Invalid", "RUN_FINAL")]


def test_an_error_has_its_code_message_and_problems() -> None:
    error = Invalid(RefusalCode.INPUT_INVALID, "the input is wrong", ["input.a: is missing"])
    assert (error.code, error.message, error.problems) == (
        RefusalCode.INPUT_INVALID,
        "the input is wrong",
        ("input.a: is missing",),
    )
    assert str(error) == "the input is wrong"
