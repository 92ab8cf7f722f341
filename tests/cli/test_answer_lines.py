"""What a line means as an answer, and how questions and texts of strangers are shown: the parts that need no terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from askback.cli.terminal.question import hint, reply_command, show
from askback.core.errors import FieldProblem
from askback.core.interactions import Interaction
from askback.questions.typed_answers import read_answer, refusal
from askback.skills.field_values import in_words
from askback.text.formatting import count, duration, one_line, printable, size

PEOPLE = ({"label": "Ann", "value": 1}, {"label": "Bob", "value": 2}, {"label": "3", "value": "three"})
FORM = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}


def question(**rest: Any) -> Interaction:
    given = {"interaction_id": "q", "kind": "text", "prompt": "Which?", "attempt_number": 1, **rest}
    return Interaction(asked_at=datetime(2025, 1, 1, tzinfo=UTC), **given)


@pytest.mark.parametrize(
    ("asked", "line", "meant"),
    [
        ({}, "red\n", "red"),
        ({}, "  two words ", "  two words "),
        ({}, "", ""),
        ({}, "1", "1"),
        ({"default": "blue"}, "\n", "blue"),
        ({"default": "blue"}, "   ", "blue"),
        ({"default": 0}, "", 0),
        ({"default": False}, "", False),
        ({"options": PEOPLE}, "1", 1),
        ({"options": PEOPLE}, " Bob ", 2),
        ({"options": PEOPLE}, "3", "three"),
        ({"options": PEOPLE}, "0", "0"),
        ({"options": PEOPLE}, "4", "4"),
        ({"options": PEOPLE}, "-1", "-1"),
        ({"options": PEOPLE}, "9" * 5000, "9" * 5000),
        ({"options": PEOPLE}, "bob", "bob"),
        ({"options": ("red", 7, True)}, "7", 7),
        ({"options": ("red", 7, True)}, "True", True),
        ({"response_schema": FORM}, '{"days": 3}', {"days": 3}),
        ({"response_schema": FORM}, '{"days": "x"}', {"days": "x"}),
        ({"response_schema": FORM}, "as you like", "as you like"),
        ({"response_schema": FORM}, "[" * 100_000, "[" * 100_000),
        ({"response_schema": {"type": "string", "enum": ["5", "6"]}}, "5", "5"),
        ({"response_schema": {"type": "string", "enum": ["slow", "fast"]}}, "2", "fast"),
        ({"response_schema": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}}, "2,a", ["b", "a"]),
        ({"response_schema": {"type": "array", "items": {"type": "integer"}}}, "2, 3", [2, 3]),
        ({"kind": "confirm"}, "Y", "yes"),
        ({"kind": "confirm"}, "no", "no"),
        ({"kind": "confirm", "default": False}, "", "no"),
        ({"kind": "confirm"}, "", ""),
        ({"response_schema": {"type": "integer"}}, "5", 5),
        ({"response_schema": {"type": "integer"}}, "five", "five"),
        ({"response_schema": {"type": "boolean"}}, "yes", True),
        ({"response_schema": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}}, "Red", "r"),
        ({"response_schema": {"type": "integer", "default": 3}}, "", 3),
    ],
)
def test_a_line_means(asked: dict[str, Any], line: str, meant: Any) -> None:
    answer = read_answer(question(**asked), line)
    assert (answer, type(answer)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("asked", "line", "refused"),
    [
        ({"options": ("red", "blue")}, "3", True),
        ({"options": ("red", "blue")}, "0", True),
        ({"options": ("red", "blue")}, "2", False),
        ({"options": ("red", "blue")}, "3 of them", False),
        ({"options": ("10", "20")}, "30", False),
        ({"kind": "confirm"}, "maybe", True),
        ({"kind": "confirm"}, "YES", False),
        ({}, "9", False),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused(asked: dict[str, Any], line: str, refused: bool) -> None:
    assert (refusal(question(**asked), line) is not None) is refused


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        (FieldProblem.at(["response"], "is too long"), "is too long"),
        (FieldProblem.at(["response", "tags", 1], "is not a tag"), "tags, item 2: is not a tag"),
        ("something else", "something else"),
    ],
)
def test_a_problem_names_its_place_in_words(problem: str, shown: str) -> None:
    assert in_words(problem) == shown


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, "  Your answer: "),
        ({"options": ("a",)}, "  Your answer (1 or your own words): "),
        ({"options": ("a", "b"), "default": "b"}, "  Your answer (1-2 or your own words, Enter for b): "),
        ({"kind": "secret"}, "  Your answer (not shown): "),
        ({"response_schema": {"type": "string", "enum": ["a", "b"]}}, "  Your answer (1-2): "),
        ({"response_schema": {"type": "string", "enum": ["5", "6"]}}, "  Your answer (5 | 6): "),
        ({"response_schema": {"type": "string", "format": "date"}}, "  Your answer (date, YYYY-MM-DD): "),
        ({"response_schema": {"type": "integer", "minimum": 1}}, "  Your answer (whole number, at least 1): "),
        ({"response_schema": {"type": "boolean", "default": False}}, "  Your answer [y/N]: "),
        ({"kind": "confirm"}, "  Your answer [y/n]: "),
        ({"kind": "confirm", "default": True}, "  Your answer [Y/n]: "),
        ({"kind": "confirm", "options": ("go", "stop")}, "  Your answer (1-2 or your own words): "),
        ({"response_schema": {"type": "integer"}, "default": 2}, "  Your answer (whole number, Enter for 2): "),
        ({"response_schema": {"type": "string"}, "options": ("a", "b")}, "  Your answer (1-2): "),
        ({"default": {"a": "ü"}}, "  Your answer (Enter for a: ü): "),
    ],
)
def test_the_hint_says_what_may_be_typed(asked: dict[str, Any], shown: str) -> None:
    assert hint(question(**asked)) == shown


def test_a_question_is_shown_with_all_its_lines() -> None:
    lines: list[str] = []
    asked = question(prompt="First.\nSecond?", context={"file": "a.txt"}, options=("a", {"value": "b"}), default="b")
    show(asked, lines.append)
    assert lines == ["", "  ? First.", "  ? Second?", "    file: a.txt", "    1) a", "    2) b  (default)"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 🎨\n\ttab", "plain ü 🎨\n\ttab"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("a\x1bPqdata\x1b\\b", "ab"),
        ("a\x9b31mb", "ab"),
        ("open \x1b]0;never closed", "open "),
        ("back\x08\x08\x7fspace\rline", "backspaceline"),
        ("one\r\ntwo", "one\ntwo"),
        ("\u202eevil\u2066\u200b", "<U+202E>evil<U+2066><U+200B>"),
        ("half \udcff", "half <U+DCFF>"),
    ],
)
def test_texts_of_strangers_cannot_drive_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_figures_are_written_for_people() -> None:
    assert [count(number, "turn") for number in (0, 1, 1200)] == ["0 turns", "1 turn", "1,200 turns"]
    assert [size(number) for number in (0, 999, 1500, 2_500_000, 3 * 10**9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 MB",
        "3.0 GB",
    ]
    assert [duration(seconds) for seconds in (0.9, 61, 3700)] == ["0 s", "1 min 01 s", "1 h 01 min"]
    assert one_line("a\n b\tc", 10) == "a b c"
    assert one_line("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({}, "askback reply RUN TEXT"),
        ({"response_schema": {"type": "integer"}}, "askback reply RUN TEXT"),
        ({"kind": "secret"}, "askback reply RUN"),
        ({"response_schema": FORM}, "askback reply RUN"),
    ],
)
def test_no_secret_and_no_form_is_asked_for_on_the_command_line(asked: dict[str, Any], command: str) -> None:
    assert reply_command("RUN", question(**asked)) == command
