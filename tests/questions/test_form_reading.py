"""Several questions in one ask: what is read of them, and what a malformed list still asks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.errors import ErrorCode, WarningCode
from askback.core.interactions import MAX_FORM_FIELDS, FormField, Question
from askback.core.outcomes import AskUser, TurnError, conclude
from askback.core.runs import Mode, Validation
from askback.questions.reading import read_answer


def read(questions: Any, **rest: Any) -> tuple[Question, tuple[str, ...]]:
    ask = {"interaction_id": "trip", "prompt": "About your trip", "questions": questions, **rest}
    answer = read_answer([f"A few questions.\n\n```json\n{json.dumps({'ask_user': ask})}\n```"], None)
    assert answer.question is not None
    return answer.question, answer.question_problems


@pytest.mark.contract("N-6")
def test_questions_become_the_fields_of_one_form() -> None:
    question, problems = read(
        [
            {"id": "pace", "prompt": "What pace?", "options": ["relaxed", "packed"], "default": "relaxed"},
            {"id": "nights", "prompt": "How many?", "response_schema": {"type": "integer", "minimum": 1}},
            {"id": "note", "question": "Anything else?", "required": False, "context": "We read it."},
            {"id": "pin", "prompt": "PIN", "kind": "secret"},
            {"prompt": "No id"},
        ],
        context="why",
        options=["left out"],
        default="left out",
    )
    assert problems == ()
    assert (question.interaction_id, question.prompt, question.kind) == ("trip", "About your trip", "form")
    assert (question.options, question.default, question.response_schema) == ((), None, None)
    assert question.context == "why"
    assert question.questions == (
        FormField(id="pace", prompt="What pace?", kind="choice", options=("relaxed", "packed"), default="relaxed"),
        FormField(id="nights", prompt="How many?", response_schema={"type": "integer", "minimum": 1}),
        FormField(id="note", prompt="Anything else?", required=False, context="We read it."),
        FormField(id="pin", prompt="PIN", kind="secret"),
        FormField(id="question-5", prompt="No id"),
    )


@pytest.mark.contract("N-6")
def test_questions_in_yaml_become_a_form() -> None:
    text = '<ASK_USER_YAML>\ninteraction_id: t\nprompt: Two\nquestions:\n  - {id: a, prompt: "A?"}\n  - {id: b, prompt: "B?"}\n'
    answer = read_answer([text + "</ASK_USER_YAML>"], None)
    assert answer.question is not None
    assert answer.question_problems == ()
    assert [field.prompt for field in answer.question.questions] == ["A?", "B?"]


@pytest.mark.contract("N-6")
def test_a_list_of_one_question_is_that_question() -> None:
    question, problems = read([{"id": "pace", "question": "What pace?", "choices": ["a", "b"], "default": "a"}])
    assert problems == ()
    expected = Question(
        prompt="About your trip\n\nWhat pace?", interaction_id="trip", kind="choice", options=("a", "b"), default="a"
    )
    assert question == expected
    question, problems = read([{"id": "pace", "prompt": "What pace?"}], interaction_id=None, prompt="What pace?")
    assert (question.prompt, problems) == ("What pace?", ("ask_user.interaction_id: it is missing",))
    answer = read_answer(['{"ask_user": {"questions": [{"id": "pace", "prompt": "What pace?"}]}}'], None)
    assert answer.question == Question(prompt="What pace?", interaction_id="pace")
    assert answer.question_problems == ()


@pytest.mark.parametrize("nothing", [None, []])
def test_an_empty_list_is_no_form(nothing: Any) -> None:
    assert read(nothing) == (Question(prompt="About your trip", interaction_id="trip"), ())


A, B = {"id": "a", "prompt": "A?"}, {"id": "b", "prompt": "B?"}
MALFORMED: dict[str, tuple[Any, list[str], str]] = {
    "no list": ({"a": A}, [], "ask_user.questions: it is not a list of questions"),
    "a text": ("A? B?", [], "ask_user.questions: it is not a list of questions"),
    "without a prompt": ([A, {"id": "b"}], ["A?"], "ask_user.questions[1].prompt: it is missing"),
    "nothing but mistakes": ([None, 7], [], "ask_user.questions[0]: it is not an object with a `prompt`"),
    "texts": (["A?", "B?"], ["A?", "B?"], "ask_user.questions[0]: it is not an object with a `prompt`"),
    "a form in it": (
        [A, {**B, "questions": [A]}],
        ["A?", "B?"],
        "ask_user.questions[1]: a form cannot contain another",
    ),
    "only a form in it": ([{"prompt": "A?", "questions": [A, B]}], [], "ask_user.questions[0]: a form cannot contain"),
    "an id twice": ([A, {**B, "id": "a"}], ["A?", "B?"], "ask_user.questions: two questions have the id 'a'"),
    "a file": ([A, {**B, "kind": "file"}], ["A?", "B?"], "ask_user.questions[1]: a question for a file must be asked"),
    "one without a prompt": ([{"id": "a"}], [], "ask_user.questions[0].prompt: it is missing"),
    "too many": (
        [{"prompt": f"{number}?"} for number in range(MAX_FORM_FIELDS + 3)],
        [f"{number}?" for number in range(MAX_FORM_FIELDS)],
        f"ask_user.questions: it has {MAX_FORM_FIELDS + 3} questions; at most {MAX_FORM_FIELDS} are allowed",
    ),
}


@pytest.mark.contract("N-6", "T-4", "T-5")
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_list_fails_the_turn_or_asks_what_is_left(name: str) -> None:
    listed, kept, problem = MALFORMED[name]
    ask = {"ask_user": {"interaction_id": "t", "prompt": "Two", "questions": listed}}
    answer = read_answer([json.dumps(ask)], None)
    strict = conclude(answer, mode=Mode.INTERACTIVE, validation=Validation.STRICT, has_schema=False)
    assert isinstance(strict, TurnError)
    assert strict.error.code is ErrorCode.ASK_USER_PAYLOAD_INVALID
    assert problem in strict.error.message
    lenient = conclude(answer, mode=Mode.INTERACTIVE, validation=Validation.LENIENT, has_schema=False)
    assert isinstance(lenient, AskUser)
    assert [field.prompt for field in lenient.question.questions] == kept
    assert lenient.question.prompt == "Two"
    assert [warning.code for warning in lenient.warnings] == [WarningCode.ASK_USER_PAYLOAD_INVALID]


@pytest.mark.contract("T-4")
def test_a_form_needs_an_id_and_a_prompt_of_its_own() -> None:
    question, problems = read([A, B], interaction_id=None, prompt=" ")
    assert problems == ("ask_user.interaction_id: it is missing", "ask_user.prompt: it is missing")
    assert question.prompt == "A few questions."
    alone = read_answer([json.dumps({"ask_user": {"questions": [A, B]}})], None)
    assert alone.question is not None
    assert alone.question.prompt == "Please answer these questions."


def test_a_schema_that_no_field_can_have_is_left_out() -> None:
    nested = {"type": "object", "properties": {"x": {"type": "string"}}}
    question, problems = read([{**A, "response_schema": nested}, B])
    assert (question.schema_ignored, question.questions[0].response_schema, problems) == (True, None, ())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "prompt", "kind", "options"]), inner)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_whatever_stands_there_is_a_question_in_the_end(listed: Any) -> None:
    question, problems = read(listed)
    assert question.prompt
    assert len(question.questions) <= MAX_FORM_FIELDS
    assert all(field.id and field.prompt for field in question.questions)
    assert isinstance(problems, tuple)
