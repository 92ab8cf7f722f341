"""Requests that a CLI makes besides its conversation: titles, summaries, checks. They use up no step of a script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from double.record import Asked
from double.wire import Answer

_HELPERS = {"memory": "You are now acting as the managed memory extraction subagent"}
"""Helpers that are given tools too, by how their instructions begin."""


def side_of(asked: Asked) -> str | None:
    """What a side request is about, or None for a turn of a conversation. A turn always offers tools."""
    for name, beginning in _HELPERS.items():
        if asked.system.startswith(beginning):
            return name
    if asked.tools:
        return None
    return "structured" if asked.schema is not None else "text"


def side_answer(asked: Asked) -> Answer:
    """Something harmless of the wanted form."""
    return Answer(text="ok" if asked.schema is None else json.dumps(sample(asked.schema)))


def sample(schema: Mapping[str, Any]) -> Any:
    """The least value that a schema allows; of an enumeration the first."""
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match str(schema.get("type", "object")).lower():
        case "object":
            properties = schema.get("properties", {})
            return {name: sample(properties[name]) for name in schema.get("required", properties)}
        case "array":
            return []
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
        case _:
            return "ok"
