"""What a call of `put_question` is told: the rules of a question in a message, and nothing dropped silently."""

from __future__ import annotations

from typing import Any

import pytest

from askback.core.interactions import MAX_FORM_FIELDS
from askback.questions.finding import read_call

FIELD = {"id": "colour", "prompt": "Which colour?"}
ASK: dict[str, Any] = {"interaction_id": "paint", "prompt": "About the wall"}

GOOD: dict[str, dict[str, Any]] = {
    "text": ASK,
    "choice": {**ASK, "options": ["red", {"label": "Blue", "value": "blue"}], "default": "red"},
    "schema": {**ASK, "response_schema": {"type": "integer", "minimum": 1}},
    "flat-object": {**ASK, "response_schema": {"type": "object", "properties": {"n": {"type": "number"}}}},
    "form": {**ASK, "questions": [FIELD, {"id": "coats", "prompt": "How many?", "required": False}]},
    "a-form-of-one": {**ASK, "questions": [FIELD]},
    "wrapped-as-in-a-block": {"ask_user": ASK},
}


@pytest.mark.contract("F-4")
@pytest.mark.parametrize("case", GOOD)
def test_a_proper_question_has_no_problems(case: str) -> None:
    put = read_call(GOOD[case])
    assert put.problems == ()
    assert put.question.prompt.startswith("About the wall")


NESTED = {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}}
BAD: dict[str, tuple[Any, str]] = {
    "nothing": (None, "it is not an object"),
    "a-text": ("Which colour?", "it is not an object"),
    "a-list": ([ASK], "it is not an object"),
    "no-id": ({"prompt": "Which colour?"}, "interaction_id: it is missing"),
    "no-prompt": ({"interaction_id": "paint"}, "prompt: it is missing"),
    "blank-prompt": ({**ASK, "prompt": " "}, "prompt: it is missing"),
    "a-prompt-that-is-no-text": ({**ASK, "prompt": {"text": "?"}}, "prompt: it is missing"),
    "a-nested-schema": ({**ASK, "response_schema": NESTED}, "response_schema: it is neither"),
    "a-schema-of-a-field": (
        {**ASK, "questions": [FIELD, {**FIELD, "id": "x", "response_schema": NESTED}]},
        "response_schema",
    ),
    "a-form-that-is-no-list": ({**ASK, "questions": {"a": FIELD}}, "questions: it is not a list"),
    "a-field-without-a-prompt": ({**ASK, "questions": [FIELD, {"id": "x"}]}, "questions[1].prompt: it is missing"),
    "the-same-id-twice": ({**ASK, "questions": [FIELD, FIELD]}, "two questions have the id 'colour'"),
    "too-many-fields": (
        {**ASK, "questions": [{**FIELD, "id": f"q{n}"} for n in range(MAX_FORM_FIELDS + 1)]},
        f"at most {MAX_FORM_FIELDS}",
    ),
    "a-form-in-a-form": ({**ASK, "questions": [FIELD, {**FIELD, "id": "x", "questions": [FIELD]}]}, "cannot contain"),
    "a-schema-of-too-many-parts": ({**ASK, "response_schema": {"anyOf": [{}] * 5_000}}, "more than 4,000 objects"),
    "schemas-of-too-many-parts": (
        {**ASK, "questions": [{**FIELD, "id": f"q{n}", "response_schema": {"anyOf": [{}] * 1_000}} for n in range(5)]},
        "more than 4,000 objects",
    ),
    "too-large": ({**ASK, "prompt": "x" * 40_000}, "it is too large"),
}


@pytest.mark.contract("F-4")
@pytest.mark.parametrize("case", BAD)
def test_a_malformed_question_comes_back_with_what_is_wrong(case: str) -> None:
    arguments, problem = BAD[case]
    put = read_call(arguments)
    assert any(problem in each for each in put.problems), put.problems
    assert not any(each.startswith("ask_user.") for each in put.problems)
