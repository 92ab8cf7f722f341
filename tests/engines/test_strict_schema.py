"""Which schemas are handed to a model's API, and that the handed form never asks for less than it must."""

from __future__ import annotations

from typing import Any

import pytest

from askback.engines.codex.strict_schema import strict_form

COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string"}},
    "required": ["colour"],
    "additionalProperties": False,
}


def with_property(schema: Any) -> dict[str, Any]:
    return {**COLOUR, "properties": {"colour": schema}}


def test_a_closed_schema_is_taken_as_it_is() -> None:
    assert strict_form(COLOUR) == COLOUR


def test_what_only_describes_or_narrows_a_value_is_left_out() -> None:
    narrowed = {
        "type": "string",
        "title": "Colour",
        "minLength": 3,
        "pattern": "^[a-z]+$",
        "x-form": {},
        "default": "red",
    }
    schema = {**with_property(narrowed), "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:colour"}
    assert strict_form(schema) == COLOUR


@pytest.mark.parametrize(
    "inner",
    [
        COLOUR,
        {"type": ["string", "null"]},
        {"type": "array", "items": {"type": "integer"}},
        {"enum": ["red", 1, None]},
        {"anyOf": [{"type": "string"}, COLOUR]},
        {"type": "string", "description": "any colour"},
    ],
)
def test_nested_values_are_taken_too(inner: dict[str, Any]) -> None:
    assert strict_form(with_property(inner)) == with_property(inner)


def test_a_constant_is_a_choice_of_one() -> None:
    assert strict_form(with_property({"const": "red"})) == with_property({"enum": ["red"]})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object"},
        {key: value for key, value in COLOUR.items() if key != "additionalProperties"},
        {**COLOUR, "additionalProperties": True},
        {**COLOUR, "additionalProperties": {"type": "string"}},
        {**COLOUR, "required": []},
        {**COLOUR, "required": ["colour", "size"]},
        {**COLOUR, "required": "colour"},
        {**COLOUR, "properties": {}},
        {**COLOUR, "properties": []},
        {**COLOUR, "allOf": [{}]},
        {**COLOUR, "patternProperties": {}},
        with_property({}),
        with_property(True),
        with_property({"type": "text"}),
        with_property({"type": []}),
        with_property({"type": [{}]}),
        with_property({"type": "array"}),
        with_property({"type": "object"}),
        with_property({"enum": []}),
        with_property({"enum": list(range(1000))}),
        with_property({"$ref": "#/$defs/colour"}),
        with_property({"oneOf": [{"type": "string"}]}),
        with_property({"anyOf": []}),
        with_property({"properties": {"a": {"type": "string"}}}),
        {
            **COLOUR,
            "properties": {f"p{number}": {"type": "string"} for number in range(101)},
            "required": [f"p{number}" for number in range(101)],
        },
    ],
)
def test_a_schema_that_leaves_something_open_is_not_handed_over(schema: dict[str, Any]) -> None:
    assert strict_form(schema) is None


def test_a_schema_that_is_too_deep_is_not_handed_over() -> None:
    schema: dict[str, Any] = COLOUR
    for _ in range(4):
        schema = with_property(schema)
    assert strict_form(schema) is not None
    assert strict_form(with_property(schema)) is None
    endless: dict[str, Any] = {"type": "array"}
    endless["items"] = endless
    assert strict_form(with_property(endless)) is None
