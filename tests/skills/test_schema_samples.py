"""Example outputs that are generated from schemas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from test_json_schema import schemas

from askback.skills.json_schema import SchemaInvalid, compile_schema
from askback.skills.prompts import sample


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "string", "minLength": 12},
        {"type": "string", "format": "date-time"},
        {"type": "integer", "minimum": 5},
        {"type": "integer", "exclusiveMinimum": 5, "multipleOf": 4},
        {"type": "integer", "maximum": -3},
        {"type": "number", "exclusiveMaximum": 0},
        {"type": "number", "minimum": 0.5, "multipleOf": 0.25},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["integer", "null"]},
        {"const": {"a": 1}},
        {"enum": [3, 4]},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3},
        {"type": "array", "maxItems": 0},
        {"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False, "type": "array"},
        {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        {"type": "object", "properties": {"k": {}}, "required": ["k"], "oneOf": [{"properties": {"k": {"const": 1}}}]},
        {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]},
        {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "required": ["n"]}}},
        {
            "type": "object",
            "properties": {"days": {"type": "array", "items": {"$ref": "#/$defs/day"}}},
            "required": ["days", "other"],
            "$defs": {"day": {"properties": {"day": {"type": "integer", "minimum": 1}}, "required": ["day"]}},
        },
        {},
        True,
    ],
)
def test_the_example_of_a_simple_schema_passes_it(schema: Any) -> None:
    assert compile_schema(schema, "s").problems(sample(schema)) == ()


def test_a_schema_that_refers_to_itself_gives_a_small_example() -> None:
    node = {"type": "object", "properties": {f"child{n}": {"$ref": "#"} for n in range(10)}}
    assert len(str(sample({**node, "required": list(node["properties"])}))) < 20_000
    assert sample({"$ref": "#"})


@pytest.mark.parametrize(
    "schema",
    [
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {"a": {"examples": {"x": 1}}},
        },
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "prefixItems": 5},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}, "x": {"anyOf": []}},
        {"type": "integer", "minimum": 1e308, "multipleOf": 0.1},
        {"type": "integer", "minimum": 1, "multipleOf": 1e-320},
        {"type": "number", "minimum": 1.7e308, "multipleOf": 1e308},
    ],
)
def test_what_a_draft_does_not_look_at_makes_no_example_and_no_fault(schema: Any) -> None:
    assert compile_schema(schema, "s").problems(sample(schema)) != ()


@settings(max_examples=60, deadline=None)
@given(schemas)
def test_no_proper_schema_makes_it_raise(schema: Any) -> None:
    try:
        compile_schema(schema, "s")
    except SchemaInvalid:
        return
    sample(schema)
