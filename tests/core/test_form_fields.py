"""A form becomes one interaction: its schema, its default, its secrets, and its size."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import jsonschema_rs
import pytest

from askback.core.interactions import (
    MAX_QUESTION_BYTES,
    FormField,
    Interaction,
    InteractionOutcome,
    Question,
    bounded,
    complete_fields,
    form_default,
    form_schema,
)
from askback.core.outcomes import AskUser
from askback.core.runs import RunOptions
from askback.core.signals import DeadlinePassed, Replied
from support.specimens import NOW, OWNER, decision, ended, running_run

PACE = FormField(id="pace", prompt="What pace?", kind="choice", options=("relaxed", "packed"), default="packed")
NIGHTS = FormField(id="nights", prompt="How many?", response_schema={"type": "integer", "minimum": 1})
NOTE = FormField(id="note", prompt="Anything else?", required=False)
PIN = FormField(id="pin", prompt="PIN?", kind="secret")


def asked(*fields: FormField) -> Interaction:
    question = Question(prompt="About it", interaction_id="trip", kind="form", questions=fields)
    run = running_run()
    waiting = decision(run, ended(run, AskUser(question=question)))
    assert waiting.asked is not None
    return waiting.asked


@pytest.mark.contract("N-6")
def test_a_form_is_one_interaction_that_clients_of_schemas_can_show() -> None:
    interaction = asked(PACE, NIGHTS, NOTE, PIN)
    assert (interaction.kind, interaction.prompt, interaction.options) == ("form", "About it", ())
    assert [field.id for field in interaction.questions] == ["pace", "nights", "note", "pin"]
    assert interaction.response_schema == {
        "type": "object",
        "properties": {
            "pace": {"type": "string", "enum": ["relaxed", "packed"], "title": "What pace?", "default": "packed"},
            "nights": {"type": "integer", "minimum": 1, "title": "How many?"},
            "note": {"type": "string", "title": "Anything else?"},
            "pin": {"type": "string", "minLength": 1, "title": "PIN?", "writeOnly": True, "format": "password"},
        },
        "required": ["pace", "nights", "pin"],
        "additionalProperties": False,
    }
    assert interaction.heading == "About it (4 questions)"


@pytest.mark.parametrize(
    ("field", "fits", "unfit"),
    [
        (PACE, ["relaxed", "packed"], ["slow", "", 1, None]),
        (NIGHTS, [1, 9], [0, "1", None]),
        (NOTE, ["", "x"], [1, None]),
        (FormField(id="x", prompt="?"), ["x"], ["", 1]),
        (FormField(id="x", prompt="?", kind="confirm"), [True, False], ["yes", 1]),
        (FormField(id="x", prompt="?", kind="number"), [1, 0.5], ["1"]),
        (FormField(id="x", prompt="?", kind="email"), ["a"], [1]),
        (FormField(id="x", prompt="?", options=(1, "a", True, 1)), [1, "a", True], [2, False, "1"]),
        (FormField(id="x", prompt="?", options=({"label": "A", "value": 1}, {"label": "B", "value": 1})), [1], ["A"]),
        (FormField(id="x", prompt="?", options=({"label": "A", "description": "d"}, "b")), ["A", "b"], ["d"]),
    ],
)
def test_a_field_takes_what_its_question_asks_for(field: FormField, fits: list[Any], unfit: list[Any]) -> None:
    schema = form_schema(complete_fields([field]))
    jsonschema_rs.meta.validate(schema)
    for value in fits:
        assert jsonschema_rs.is_valid(schema, {field.id: value}), value
    for value in unfit:
        assert not jsonschema_rs.is_valid(schema, {field.id: value}), value


@pytest.mark.parametrize(
    ("field", "taken"),
    [
        (PACE, "packed"),
        (replace(PACE, default="else"), None),
        (FormField(id="x", prompt="?", options=({"label": "A", "value": 0},), default="A"), 0),
        (FormField(id="x", prompt="?", options=({"label": "A", "value": 0},), default=False), None),
        (FormField(id="x", prompt="?", kind="confirm", default="no"), False),
        (FormField(id="x", prompt="?", kind="confirm", default=1), None),
        (FormField(id="x", prompt="?", kind="integer", default="3"), None),
        (FormField(id="x", prompt="?", default=3), None),
        (FormField(id="x", prompt="?", default={"a": 1}), None),
    ],
)
def test_a_default_is_a_value_that_the_field_takes(field: FormField, taken: Any) -> None:
    (completed,) = complete_fields([field])
    assert json.dumps(completed.default) == json.dumps(taken)


@pytest.mark.contract("N-6")
def test_ids_are_unique_and_can_be_names() -> None:
    named = [
        FormField(id=name, prompt="?") for name in ("a", "a", "a", "1", "__proto__", "a b", "x" * 99, "question-4")
    ]
    ids = [field.id for field in complete_fields(named)]
    assert ids == ["a", "ax", "axx", "question-4", "question-5", "question-6", "question-7", "question-4x"]


@pytest.mark.contract("N-6")
def test_only_a_form_with_all_defaults_decides_itself() -> None:
    nights = replace(NIGHTS, default=2)
    assert form_default(complete_fields([PACE, nights, NOTE])) == {"pace": "packed", "nights": 2}
    assert form_default(complete_fields([PACE, NIGHTS])) is None
    assert form_default(complete_fields([NOTE])) is None
    for fields, expected in (((PACE, nights), {"pace": "packed", "nights": 2}), ((PACE, NIGHTS), None)):
        question = Question(prompt="?", interaction_id="trip", questions=fields)
        run = running_run(options=RunOptions(interactive_require_user_reply=False))
        waiting = decision(run, ended(run, AskUser(question=question))).run
        late = (waiting.wait_deadline_at or NOW) + timedelta(seconds=1)
        closed = decision(waiting, DeadlinePassed(interaction_id="trip", at=late)).closed
        assert closed is not None
        assert (closed.outcome, closed.response) == (InteractionOutcome.AUTO_DECIDED, expected)


@pytest.mark.contract("N-6")
def test_the_secret_answers_of_a_form_are_in_no_event() -> None:
    question = Question(prompt="?", interaction_id="trip", questions=(PACE, PIN))
    run = running_run()
    waiting = decision(run, ended(run, AskUser(question=question))).run
    response = {"pace": "relaxed", "pin": "hunter22"}
    answered = decision(waiting, Replied(interaction_id="trip", response=response, owner=OWNER, at=NOW))
    assert answered.closed is not None
    assert answered.closed.response == response
    assert answered.closed.secret_response == {"pin": "hunter22"}
    assert answered.closed.shown_response == {"pace": "relaxed", "pin": None}
    assert answered.events[0].data["response"] == {"pace": "relaxed", "pin": None}
    assert "hunter22" not in str(answered.events)


@pytest.mark.parametrize("hides", [{"format": "password"}, {"writeOnly": True}])
def test_a_schema_can_say_that_an_answer_is_secret(hides: dict[str, Any]) -> None:
    base = Interaction(interaction_id="q", kind="text", prompt="?", attempt_number=1, asked_at=NOW, response="s3cret")
    alone = replace(base, response_schema={"type": "string", **hides})
    assert (alone.secret, alone.shown_response, alone.secret_response) == (True, None, "s3cret")
    schema = {"type": "object", "properties": {"key": {"type": "string", **hides}, "name": {"type": "string"}}}
    form = replace(base, response_schema=schema, response={"key": "k", "name": "n"})
    assert (form.secret, form.shown_response) == (False, {"key": None, "name": "n"})
    assert form.secret_response == {"key": "k"}
    assert (base.secret, base.shown_response, base.secret_response) == (False, "s3cret", None)


@pytest.mark.contract("N-6")
def test_a_form_that_is_too_large_keeps_its_first_questions() -> None:
    fields = [FormField(id=f"q{number}", prompt="?" * 9_000) for number in range(20)]
    cut = bounded(Question(prompt="About it", interaction_id="trip", questions=tuple(fields), context="c" * 60_000))
    assert 0 < len(cut.questions) < 20
    assert cut.questions == tuple(fields[: len(cut.questions)])
    assert cut.context is None
    huge = FormField(id="q", prompt="p" * MAX_QUESTION_BYTES, kind="secret", options=("x" * 2000,) * 100)
    (kept,) = bounded(Question(prompt="About it", questions=(huge, NOTE))).questions
    assert (kept.id, kept.secret, kept.options) == ("q", True, ())
    assert len(kept.prompt) < MAX_QUESTION_BYTES
    small = Question(prompt="About it", questions=(PACE, NOTE))
    assert bounded(small) is small
