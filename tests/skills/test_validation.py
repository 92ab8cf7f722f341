"""Validation of requests, of values from a command line, and of answers to questions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skill_folders import make_skill
from test_json_schema import json_values

from askback.core.interactions import Interaction
from askback.skills.json_schema import property_schema
from askback.skills.package import SkillPackage, read_package
from askback.skills.validation import (
    MAX_REPLY_BYTES,
    check_request,
    file_inputs,
    output_check,
    reply_problems,
    typed_value,
)

INPUT = {
    "type": "object",
    "properties": {
        "pages": {"type": "string"},
        "count": {"type": "integer"},
        "data": {"type": "string", "x-input-source": "file"},
        "table": {"type": "object", "x-input-source": "file"},
        "shared": {"$ref": "#/$defs/file"},
        "note": {"type": "string", "x-input-source": "inline"},
    },
    "$defs": {"file": {"type": "string", "x-input-source": "file"}},
    "required": ["pages"],
}
PARAMETER = {"type": "object", "properties": {"language": {"type": "string"}}, "additionalProperties": False}


@pytest.fixture
def package(tmp_path: Path) -> SkillPackage:
    return read_package(
        make_skill(tmp_path, input=INPUT, parameter=PARAMETER, output={"type": "object", "required": ["x"]})
    )


# Requests.


@pytest.mark.contract("B-5")
def test_all_mistakes_of_input_and_parameters_are_named_at_once(package: SkillPackage) -> None:
    assert check_request(package, {"pages": 12, "cuont": 1, "note": None}, {"lang": "x"}) == (
        "input.cuont: is unknown; did you mean 'count'?",
        'input.note: null is not of type "string"',
        'input.pages: 12 is not of type "string"',
        "parameter.lang: is unknown; known: language",
    )


def test_a_proper_request_passes(package: SkillPackage) -> None:
    assert check_request(package, {"pages": "1-3", "count": 2}, {"language": "de"}) == ()


@pytest.mark.contract("B-5")
def test_a_skill_without_schemas_takes_any_object(tmp_path: Path) -> None:
    plain = read_package(make_skill(tmp_path))
    assert check_request(plain, {"anything": [1, {"goes": None}]}, {"x": 1}) == ()
    assert check_request(plain, [], "x") == ("input: [] is not an object", 'parameter: "x" is not an object')
    assert check_request(plain, {"x": float("nan")}, {}) == ("input.x: is not a finite number",)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"properties": {"a": {}}, "additionalProperties": True},
        {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}},
        {"properties": {"a": {}}, "anyOf": [{"properties": {"x": {}}}]},
        {"properties": {"a": {}}, "required": ["x"]},
    ],
)
def test_names_that_a_schema_leaves_open_are_taken(tmp_path: Path, schema: Any) -> None:
    assert check_request(read_package(make_skill(tmp_path, input=schema)), {"x": 1}, {}) == ()


def test_which_inputs_are_files(package: SkillPackage) -> None:
    assert file_inputs(package) == {"data", "table", "shared"}


def test_a_staged_file_is_a_path_whatever_its_property_says(package: SkillPackage) -> None:
    staged = {"pages": "1", "data": "inputs/data/x.csv", "table": "inputs/table/t.json", "shared": "inputs/shared/s"}
    assert check_request(package, staged, {}) == ()
    assert check_request(package, staged, {}, {"data", "table", "shared"}) == ()


def test_a_file_that_is_given_as_a_text_is_told_how_to_give_it(package: SkillPackage) -> None:
    (problem,) = check_request(package, {"pages": "1", "data": "the content"}, {}, ())
    assert problem.startswith("input.data: must be a file")


@pytest.mark.parametrize("key", ["../x", "a/b", "", ".", "..", ".x", "a\0b", "x" * 65, "ü"])
def test_the_key_of_a_file_can_name_a_folder(tmp_path: Path, key: str) -> None:
    plain = read_package(make_skill(tmp_path))
    assert check_request(plain, {key: "x"}, {}, {key})
    assert check_request(plain, {"fine_key-1.x": "x"}, {}, {"fine_key-1.x"}) == ()


def test_an_output_is_checked_where_there_is_a_schema(package: SkillPackage, tmp_path: Path) -> None:
    check = output_check(package)
    assert check is not None
    assert check({}) == ("output.x: is required",)
    assert check({"x": 1}) == ()
    assert output_check(read_package(make_skill(tmp_path, "plain"))) is None


# Values from a command line.


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("12", None, "12"),
        ("12", {}, "12"),
        ("12", True, "12"),
        ("12", {"type": "string"}, "12"),
        ("12", {"type": ["integer", "string"]}, "12"),
        ("12", {"type": "integer"}, 12),
        ("1.5", {"type": "number"}, 1.5),
        ("true", {"type": "boolean"}, True),
        ("null", {"type": ["null", "integer"]}, None),
        ('["a"]', {"type": "array"}, ["a"]),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("twelve", {"type": "integer"}, "twelve"),
        ("NaN", {"type": "number"}, "NaN"),
        ("9" * 5000, {"type": "integer"}, "9" * 5000),
        ("[" * 100_000, {"type": "array"}, "[" * 100_000),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["2", 2]}, "2"),
        ("3", {"enum": [1, 2]}, "3"),
        ("1", {"const": 1}, 1),
        ("1", {"const": "1"}, "1"),
        ("1", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ("1", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "1"),
    ],
)
def test_a_text_becomes_what_its_schema_wants(text: str, schema: Any, value: Any) -> None:
    typed = typed_value(text, schema)
    assert typed == value
    assert type(typed) is type(value)


@given(json_values.filter(lambda value: not isinstance(value, str)))
def test_every_value_written_as_json_is_read_back(value: Any) -> None:
    text = json.dumps(value)
    types = {"type": ["object", "array", "number", "boolean", "null"]}
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        assert typed_value(text, types) == text
    else:
        assert typed_value(text, types) == value


@given(st.text(), st.one_of(st.none(), json_values))
def test_no_text_makes_the_typing_raise(text: str, schema: Any) -> None:
    typed_value(text, schema)


def test_the_schema_of_a_property_follows_local_references(package: SkillPackage) -> None:
    assert property_schema(package.input_schema, "shared") == INPUT["$defs"]["file"]
    assert property_schema(package.input_schema, "nothing") is None
    assert property_schema(None, "x") is None
    assert property_schema({"properties": {"x": {"$ref": "#/nowhere"}}}, "x") == {}
    assert property_schema({"properties": {"x": {"$ref": "#/properties/x"}}}, "x") == {}


# Replies.


def asked(**more: Any) -> Interaction:
    return Interaction(
        interaction_id="q",
        kind="choice",
        prompt="?",
        attempt_number=1,
        asked_at=datetime(2030, 1, 1, tzinfo=UTC),
        **more,
    )


FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize("text", ["", "free words", "-x", "/quit", "a\nb", "\0", "x" * MAX_REPLY_BYTES])
def test_a_text_fits_where_there_is_no_schema(text: str) -> None:
    assert reply_problems(asked(options=("a", "b")), text) == ()
    assert reply_problems(asked(options=("a", "b"), response_schema=FORM), text)


@pytest.mark.contract("T-2")
def test_every_reply_is_checked_against_a_scalar_schema() -> None:
    colour = asked(response_schema={"type": "string", "enum": ["red", "blue"]})
    assert reply_problems(colour, "red") == ()
    assert reply_problems(colour, "purple") != ()
    assert reply_problems(colour, 3) != ()
    assert reply_problems(asked(response_schema={"type": "integer", "minimum": 1}), 1) == ()
    assert reply_problems(asked(response_schema={"type": "integer", "minimum": 1}), "1") != ()
    assert reply_problems(asked(response_schema={"type": "boolean"}), False) == ()


def test_an_options_value_fits_also_against_the_schema() -> None:
    question = asked(
        response_schema=FORM, options=({"label": "One", "value": 1}, {"label": "Two", "value": {"k": [2]}})
    )
    assert reply_problems(question, 1) == ()
    assert reply_problems(question, {"k": [2]}) == ()
    assert reply_problems(question, 2)
    assert reply_problems(question, True)


def test_anything_else_must_fit_the_questions_schema() -> None:
    assert reply_problems(asked(response_schema=FORM), {"n": "x"}) == ('response.n: "x" is not of type "integer"',)
    assert reply_problems(asked(response_schema=FORM), {"n": 1}) == ()
    assert reply_problems(asked(), {"n": "x"}) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"$ref": "http://127.0.0.1:1/"},
        {"pattern": "("},
        {"const": "x" * 100_000},
        {"minimum": float("nan")},
    ],
)
def test_a_question_with_a_bad_schema_can_still_be_answered(schema: Any) -> None:
    assert reply_problems(asked(response_schema=schema), {"n": 1}) == ()


@pytest.mark.parametrize(
    "response", [float("nan"), [float("inf")], "\ud800", "x" * (MAX_REPLY_BYTES + 1), ["x" * MAX_REPLY_BYTES], {1: 2}]
)
def test_a_reply_that_no_engine_could_be_given_is_refused(response: Any) -> None:
    (problem,) = reply_problems(asked(), response)
    assert problem.startswith("response")
    assert len(problem) < 200


@given(json_values, json_values, st.lists(json_values, max_size=3))
def test_no_reply_makes_the_check_raise(response: Any, schema: Any, options: list[Any]) -> None:
    reply_problems(asked(response_schema=schema, options=tuple(options)), response)
