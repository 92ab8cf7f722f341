"""A small example made from a JSON Schema, to show an engine what an output looks like. Pure, and bounded.

The example passes simple schemas; whoever shows it checks it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from askback.core.interactions import Json
from askback.skills.checkers import resolve

MAX_DEPTH = 8
MAX_ITEMS = 3
MAX_VALUES = 200
MAX_TEXT = 200

_UNKNOWN = "…"
_FORMATS = {
    "date": "2030-01-31",
    "date-time": "2030-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "name@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "uri-reference": "/path",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Json) -> Json:
    try:
        return _Sampling(schema).of(schema, MAX_DEPTH)
    # A draft has no say in the keywords of another, and none in how far two numbers lie apart.
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return _UNKNOWN


class _Sampling:
    """One example in the making. `left` bounds it: a schema may refer to itself without end."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._left = MAX_VALUES

    def of(self, schema: Json, depth: int) -> Json:
        schema = resolve(self._document, schema)
        self._left -= 1
        if not isinstance(schema, Mapping) or depth == 0 or self._left < 0:
            return _UNKNOWN
        for word in ("const", "default"):
            if word in schema:
                return schema[word]
        for word in ("examples", "enum"):
            if schema.get(word):
                return schema[word][0]
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.of(self._merged(schema, schema[word][0], word), depth - 1)
        if "allOf" in schema:
            return self.of(self._all(schema), depth - 1)
        return self._of_type(schema, depth)

    def _merged(self, schema: Mapping[str, Any], branch: Json, word: str) -> dict[str, Any]:
        """One form of several, with what stands beside them."""
        rest = {key: value for key, value in schema.items() if key != word}
        chosen = resolve(self._document, branch)
        if not isinstance(chosen, Mapping):
            return rest
        both = {**rest, **chosen}
        for key in ("properties", "required"):
            if key in rest and key in chosen:
                both[key] = {**rest[key], **chosen[key]} if key == "properties" else [*rest[key], *chosen[key]]
        return both

    def _all(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        for branch in schema["allOf"]:
            whole = self._merged(whole, branch, "")
        return whole

    def _of_type(self, schema: Mapping[str, Any], depth: int) -> Json:
        types = schema.get("type", "object" if "properties" in schema else "array" if "items" in schema else "string")
        kind = types[0] if isinstance(types, list) else types
        match kind:
            case "object":
                properties = schema.get("properties", {})
                names = dict.fromkeys([*properties, *schema.get("required", ())])
                return {name: self.of(properties.get(name, {}), depth - 1) for name in names}
            case "array":
                return self._array(schema, depth)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return _text(schema)

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Json]:
        items = schema.get("items", {})
        first = [self.of(item, depth - 1) for item in schema.get("prefixItems", ())]
        wanted = max(1, min(int(schema.get("minItems", 1)), MAX_ITEMS))
        if schema.get("maxItems") == 0 or items is False:
            return first
        return first + [self.of(items, depth - 1) for _ in range(wanted - len(first))]


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    step = schema.get("multipleOf", 1)
    low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    high, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    if above is not None and not isinstance(above, bool):
        value = (above // step + 1) * step
    elif low is not None:
        value = -(-low // step) * step
    elif high is not None:
        value = min(step, high // step * step)
    elif below is not None and not isinstance(below, bool):
        value = min(step, (below - step) // step * step)
    else:
        value = step
    return int(value) if whole else value


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(schema.get("format", ""), _UNKNOWN)
    return text.ljust(min(int(schema.get("minLength", 0)), MAX_TEXT), _UNKNOWN)
