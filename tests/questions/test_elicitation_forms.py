"""One form for every client: what it offers, and what its content means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from askback.core.interactions import Interaction
from askback.questions.forms import form_of

CHOICE = [{"label": "Red", "value": 1}, {"label": "Blue", "value": 2, "description": "as the sea"}]
TAGS = {"type": "array", "items": {"anyOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}}


def asked(kind: str = "text", **fields: Any) -> Interaction:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Interaction(interaction_id="a", kind=kind, prompt="Which?", attempt_number=1, asked_at=at, **fields)


@pytest.mark.parametrize("rich", [False, True])
def test_a_choice_is_answered_with_its_value_whatever_the_schema(rich: bool) -> None:
    for schema in (None, {"type": "integer"}):
        form = form_of(asked("choice", options=CHOICE, default="Blue", response_schema=schema), rich=rich)
        assert form is not None
        field = form.schema["properties"]["answer"]
        labels = [each["const"] for each in field["oneOf"]] if rich else field["enum"]
        assert (labels, field["default"]) == (["Red", "Blue"], "Blue")
        assert [form.answer({"answer": label}) for label in labels] == [1, 2]


def test_two_options_with_the_same_label_can_be_told_apart() -> None:
    form = form_of(asked("choice", options=[{"label": "It", "value": 1}, {"label": "It", "value": 2}]))
    assert form is not None
    assert form.schema["properties"]["answer"]["enum"] == ["1. It", "2. It"]
    assert form.answer({"answer": "2. It"}) == 2


def test_own_words_are_offered_where_a_client_shows_two_fields_and_no_schema_forbids_them() -> None:
    free = form_of(asked("choice", options=CHOICE), rich=True)
    assert free is not None
    assert free.answer({"answer": "Red", "own_words": "Green"}) == "Green"
    assert free.schema["required"] == []
    for other in (
        form_of(asked("choice", options=CHOICE)),
        form_of(asked("choice", options=CHOICE, response_schema={"type": "integer"}), rich=True),
    ):
        assert other is not None
        assert list(other.schema["properties"]) == other.schema["required"] == ["answer"]


def test_a_list_of_choices_is_asked_only_where_a_client_shows_it() -> None:
    question = asked(response_schema={"type": "object", "properties": {"tags": TAGS}, "required": ["tags"]})
    assert form_of(question) is None
    form = form_of(question, rich=True)
    assert form is not None
    assert form.schema["properties"]["tags"]["items"] == TAGS["items"]
    assert form.answer({"tags": ["r", "b"], "other": None}) == {"tags": ["r", "b"]}


@pytest.mark.parametrize("rich", [False, True])
def test_secrets_and_files_are_never_asked_by_form(rich: bool) -> None:
    assert form_of(asked("secret"), rich=rich) is None
    assert form_of(asked("file"), rich=rich) is None
