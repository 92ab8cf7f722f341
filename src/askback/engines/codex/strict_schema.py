"""Converts an output schema to the strict form that the model's API accepts, where possible. Pure.

The strict form only guides the model. It omits keywords that the API may not support, so it never validates an output.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_LEVELS = 5
_MAX_PROPERTIES = 100
_MAX_CHOICES = 250

_TYPES = {"object", "array", "string", "number", "integer", "boolean", "null"}
# Dropping these only makes a schema more permissive. The output is validated against the full schema afterwards.
_LEFT_OUT = {
    *("$schema", "$id", "$comment", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"),
    *("pattern", "format", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class _NotStrict(Exception):
    """The schema cannot be expressed in the strict form."""


def strict_form(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The strict form of the schema, or None. Every object must be closed and must require all its properties."""
    if schema.get("type") != "object":
        return None
    try:
        form = _form(schema, _MAX_LEVELS)
    except _NotStrict:
        return None
    return form if _size(form) <= _MAX_PROPERTIES else None


def _form(schema: object, levels: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or levels < 0:
        raise _NotStrict
    form: dict[str, Any] = {}
    for keyword, value in schema.items():
        match keyword:
            case "type":
                form[keyword] = _types(value)
            case "description" if isinstance(value, str):
                form[keyword] = value
            case "const":
                form["enum"] = [value]
            case "enum" if isinstance(value, list) and 0 < len(value) <= _MAX_CHOICES:
                form[keyword] = value
            case "items":
                form[keyword] = _form(value, levels - 1)
            case "anyOf" if isinstance(value, list) and value:
                form[keyword] = [_form(each, levels) for each in value]
            case "properties" if isinstance(value, Mapping) and value:
                form[keyword] = {name: _form(each, levels - 1) for name, each in value.items()}
            case "required" | "additionalProperties":
                form[keyword] = value
            case _ if keyword not in _LEFT_OUT and not keyword.startswith("x-"):
                raise _NotStrict
    return _closed(form)


def _types(value: object) -> object:
    names = value if isinstance(value, list) else [value]
    if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
        raise _NotStrict
    return value


def _closed(form: dict[str, Any]) -> dict[str, Any]:
    """Return the form, or raise if it allows properties, items or types that it does not list."""
    types = form.get("type", ())
    if "object" in ([types] if isinstance(types, str) else types):
        required, properties = form.get("required"), form.get("properties", {})
        names_all = isinstance(required, list) and sorted(map(str, required)) == sorted(properties)
        if form.get("additionalProperties") is not False or not properties or not names_all:
            raise _NotStrict
    elif form.keys() & {"properties", "required", "additionalProperties"}:
        raise _NotStrict
    if types == "array" and "items" not in form:
        raise _NotStrict
    if not form.keys() & {"type", "enum", "anyOf"}:
        raise _NotStrict
    return form


def _size(form: Mapping[str, Any]) -> int:
    properties = form.get("properties", {})
    below = [*properties.values(), *form.get("anyOf", ()), *([form["items"]] if "items" in form else [])]
    return len(properties) + sum(_size(each) for each in below)
