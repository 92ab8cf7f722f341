"""Schemas with a password at a random place, each with an answer that has a value there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Schema = dict[str, Any]
Made = tuple[Schema, Any]
MARKS: tuple[Schema, ...] = (
    {"type": "string", "format": "password"},
    {"type": "string", "writeOnly": True},
    {"writeOnly": True},
    {"$ref": "https://schemas.example/password.json"},
    {"$ref": "#nowhere"},
)
_TEXT = {"type": "string"}


def _type_of(value: Any) -> str:
    return {str: "string", list: "array", dict: "object"}[type(value)]


IN_PLACE: dict[str, Callable[[Schema, Any], Made]] = {
    "property": lambda part, value: (
        {"type": "object", "properties": {"user": _TEXT, "pass word": part}},
        {"user": "anna", "pass word": value},
    ),
    "items": lambda part, value: ({"type": "array", "items": part}, [value]),
    "prefix": lambda part, value: ({"type": "array", "prefixItems": [_TEXT, part]}, ["first", value]),
    "additional": lambda part, value: (
        {"type": "object", "properties": {"user": _TEXT}, "additionalProperties": part},
        {"user": "anna", "other": value},
    ),
    "pattern": lambda part, value: (
        {"type": "object", "properties": {"user": _TEXT}, "patternProperties": {"^p": part}},
        {"user": "anna", "pin": value},
    ),
    "dependent": lambda part, value: (
        {
            "type": "object",
            "properties": {"user": _TEXT},
            "dependentSchemas": {"user": {"properties": {"pin": part}}},
        },
        {"user": "anna", "pin": value},
    ),
    "all": lambda part, value: ({"allOf": [{"title": "A"}, part]}, value),
    "any": lambda part, value: ({"anyOf": [{"type": "null"}, part]}, value),
    "one": lambda part, value: ({"oneOf": [part, {"type": "null"}]}, value),
    "if": lambda part, value: ({"if": part, "then": {"title": "A"}}, value),
    "then": lambda part, value: ({"if": {"type": _type_of(value)}, "then": part}, value),
    "else": lambda part, value: ({"if": {"type": "null"}, "else": part}, value),
    "typed": lambda part, value: ({"type": _type_of(value), "allOf": [part]}, value),
}


def made(random: Random, secret: str, *, depth: int = 4) -> Made:
    """A schema and an answer with the secret."""
    schema, value = dict(random.choice(MARKS)), secret
    definitions: dict[str, Schema] = {}
    for _ in range(random.randint(0, depth)):
        way = random.choice([*IN_PLACE, "reference", "round"])
        if way in IN_PLACE:
            schema, value = IN_PLACE[way](schema, value)
            continue
        name = f"part/{len(definitions)}"
        pointer = f"#/$defs/{name.replace('/', '~1')}"
        if way == "round":
            schema = {"type": "object", "properties": {"next": {"$ref": pointer}, "pin": schema}}
            value = {"next": {"pin": value}}
        definitions[name], schema = schema, {"$ref": pointer}
    return ({**schema, "$defs": definitions} if definitions else schema), value
