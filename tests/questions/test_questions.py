"""What is taken of a question beside its id and prompt, and what is left out so that the question still reaches the user."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.interactions import MAX_PROMPT_BYTES, Question, bounded
from askback.questions.reading import read_answer
from askback.questions.schemas import flat_schema
from askback.text.yaml_text import NotYaml, load


def asked(**fields: Any) -> Question:
    answer = read_answer([json.dumps({"ask_user": {"interaction_id": "q", "prompt": "?", **fields}})], None)
    assert answer.question is not None
    assert answer.question_problems == ()
    return answer.question


@pytest.mark.contract("T-2")
def test_every_field_of_a_question_is_taken() -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "required": ["size"]}
    question = asked(
        kind="choice",
        options=["small", 2, {"label": "Large", "value": "l", "description": "the largest"}],
        default="small",
        response_schema=schema,
        context={"why": ["it", "depends"]},
    )
    assert question == Question(
        prompt="?",
        interaction_id="q",
        kind="choice",
        options=("small", 2, {"label": "Large", "value": "l", "description": "the largest"}),
        default="small",
        response_schema=schema,
        context={"why": ["it", "depends"]},
    )


def test_other_names_for_prompt_and_options_are_understood() -> None:
    answer = read_answer(['{"ask_user": {"interaction_id": 7, "question": "Which?", "choices": ["a"]}}'], None)
    assert answer.question == Question(prompt="Which?", interaction_id="7", kind="choice", options=("a",))
    assert answer.question_problems == ()


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ("a, b", ()),
        ({"a": 1}, ()),
        (["a", None, [], {}, {"x": 1}, " ", "b"], ("a", "b")),
        (
            [{"label": "A"}, {"value": 0}, {"label": ["x"], "value": "v"}],
            ({"label": "A"}, {"value": 0}, {"value": "v"}),
        ),
        ([str(number) for number in range(500)], tuple(str(number) for number in range(200))),
        (["x" * 9000], ("x" * 2000,)),
    ],
)
def test_options_that_cannot_be_shown_are_left_out(options: Any, taken: tuple[Any, ...]) -> None:
    assert asked(options=options).options == taken


@pytest.mark.parametrize(
    ("kind", "taken"), [("secret", "secret"), (" Secret ", "secret"), ("", "text"), (3, "text"), ("a b", "text")]
)
def test_a_kind_is_a_short_word(kind: Any, taken: str) -> None:
    assert asked(kind=kind).kind == taken


def test_a_long_prompt_is_cut_once_and_says_so() -> None:
    whole = asked(prompt="x" * 500_000)
    assert whole.prompt == "x" * 500_000
    cut = bounded(whole).prompt
    assert (cut.count("truncated"), cut.rstrip("]").endswith("too long")) == (1, True)
    assert len(cut) < MAX_PROMPT_BYTES


def test_parts_that_are_too_large_are_left_out() -> None:
    question = asked(context="x" * 100_000, default=["x" * 100_000], interaction_id="y" * 5000)
    assert (question.context, question.default) == (None, None)
    assert len(question.interaction_id or "") <= 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "format": "email", "title": "A"}}},
        {"type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"], "enumNames": ["X", "Y"]}}},
        {"type": "object", "properties": {"a": {"type": "string", "oneOf": [{"const": "x", "title": "X"}]}}},
        {"type": "object", "properties": {"a": {"type": "number", "minimum": 0.5}, "b": {"type": "boolean"}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "enum": ["x"]}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [{"const": "x"}]}}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    ],
)
def test_a_form_of_primitive_fields_is_a_response_schema(schema: dict[str, Any]) -> None:
    assert flat_schema(schema) == schema


@pytest.mark.contract("T-2")
@pytest.mark.parametrize(
    "schema",
    [
        "string",
        True,
        {},
        {"const": "x"},
        {"type": "array", "items": {"type": "string", "enum": ["x"]}},
        {"type": "null"},
        {"type": ["string", "null"]},
        {"type": "string", "enum": [1, 2]},
        {"type": "string", "enum": ["x" * 1000] * 100},
        {"enum": ["x", 1]},
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"$ref": "http://example.com/schema"}}},
        {"type": "object", "properties": {str(number): {"type": "string"} for number in range(101)}},
    ],
)
def test_any_other_schema_is_left_out_and_the_question_is_kept(schema: Any) -> None:
    question = asked(response_schema=schema)
    assert (question.response_schema, question.schema_ignored) == (None, True)
    assert question.prompt == "?"


@pytest.mark.contract("T-2")
@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string", "enum": ["red", "blue"]}, {"type": "string", "enum": ["red", "blue"]}),
        ({"enum": ["red", "blue"]}, {"type": "string", "enum": ["red", "blue"]}),
        ({"enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        ({"type": "integer", "$ref": "#/$defs/n", "$defs": {"n": {"minimum": 1}}}, {"type": "integer"}),
        # Nobody knows whether the target is secret.
        ({"type": "integer", "minimum": 1, "$ref": "x"}, {"type": "integer", "minimum": 1, "writeOnly": True}),
        ({"type": "boolean", "title": "Really?"}, {"type": "boolean", "title": "Really?"}),
        ({"oneOf": [{"const": "r", "title": "Red"}]}, {"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}),
        (None, None),
    ],
)
def test_a_scalar_schema_is_kept(schema: Any, kept: Any) -> None:
    question = asked(response_schema=schema)
    assert (question.response_schema, question.schema_ignored) == (kept, False)


def test_keywords_that_a_form_does_not_have_are_left_out() -> None:
    schema = flat_schema(
        {
            "$comment": "http://example.com",
            "type": "object",
            "properties": {
                "a": {"type": "string", "pattern": "(a+)+$", "minLength": "1", "enum": [], "default": {}},
                "b": {"type": "string", "minLength": -1, "maxLength": 2**70},
            },
            "required": ["a", "c", 3],
            "additionalProperties": {"type": "object"},
        }
    )
    taken = {"a": {"type": "string"}, "b": {"type": "string"}}
    assert schema == {"type": "object", "properties": taken, "required": ["a"]}


_WORDS = st.sampled_from(["type", "properties", "required", "enum", "minLength", "items", "oneOf", "default", "a", "b"])
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["object", "string", "integer", "array", "boolean", "", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_WORDS, _VALUES).map(lambda properties: {"type": "object", "properties": properties}))
def test_what_is_taken_as_a_response_schema_is_always_a_schema(schema: dict[str, Any]) -> None:
    taken = flat_schema(schema)
    if taken is not None:
        jsonschema_rs.validator_for(taken)


@given(st.dictionaries(st.sampled_from(["interaction_id", "prompt", "kind", "options", "default", "context"]), _VALUES))
def test_a_question_of_any_fields_still_has_a_prompt(fields: dict[str, Any]) -> None:
    question = read_answer([f"Hello. {json.dumps({'ask_user': fields or 'x'})}"], None).question
    assert question is not None
    assert question.prompt.strip()


# YAML.


def test_yaml_words_stay_words() -> None:
    assert load("options: [yes, no, on, off, 12:30, 2024-01-01, 0x10, 1_000]") == {
        "options": ["yes", "no", "on", "off", "12:30", "2024-01-01", "0x10", "1_000"]
    }


def test_yaml_has_the_types_of_json() -> None:
    text = "a: true\nb: null\nc: 3\nd: -1.5e3\ne: '3'\nf: \"true\"\ng: |\n  x\n  y\nh:\n- 1\n- {i: []}\nj:\nk: .inf\nl: 1e999\n"
    assert load(text) == {
        "a": True,
        "b": None,
        "c": 3,
        "d": -1500.0,
        "e": "3",
        "f": "true",
        "g": "x\ny\n",
        "h": [1, {"i": []}],
        "j": None,
        "k": ".inf",
        "l": "1e999",
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x",
        "a: &x [*x]",
        "a: [",
        "- a\nb: c",
        "a: b: c",
        "? [1]\n: x",
        "a: \t- b\n\tc",
        "x" * 70_000,
        "[" * 2000,
        "- " * 20_000,
        "--- a\n--- b",
        "%YAML 9.9\n---\n@",
        "a: \x07",
        'a: "\\UFFFFFFFF"',
        'a: "\\U00110000"',
        "%YAML 1." + "9" * 5000 + "\n---\na: 1",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_yaml_that_could_harm_or_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(NotYaml):
        load(text)


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`,? \n\t\\0\x85\u2028\ud800", max_size=60))
def test_no_yaml_makes_it_raise_anything_else(text: str) -> None:
    try:
        value = load(text)
    except NotYaml:
        return
    json.dumps(value, allow_nan=False, ensure_ascii=False).encode()


def test_tags_construct_nothing() -> None:
    assert load("!!python/object/apply:os.system ['true']") == ["true"]
    assert load("a: !!binary aGk=\nb: !!set {x}") == {"a": "aGk=", "b": {"x": None}}
