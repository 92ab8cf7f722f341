"""The fields of a question, each read on its own: what is well-formed is taken, and the rest is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from askback.core.interactions import Json
from askback.core.secrecy import Secrecy

_MAX_ID = 200
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")


def identifier_of(value: Json) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value.strip()[:_MAX_ID] if isinstance(value, str) and value.strip() else None


def text_of(value: Json) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def kind_of(value: Json, has_options: bool) -> str:
    if isinstance(value, str) and _KIND.fullmatch(value.strip().lower()):
        return value.strip().lower()
    return "choice" if has_options else "text"


_MAX_OPTIONS = 200
_MAX_LABEL = 2_000
_MAX_JSON = 64_000
_MAX_PROPERTIES = 100


def small(value: Json) -> Json:
    """The value, or None if it is too large to be shown with a question."""
    return value if len(json.dumps(value)) <= _MAX_JSON else None


def options_of(value: Json) -> tuple[Json, ...]:
    """The valid options of a question: strings, numbers, or objects with `label` or `value`."""
    if not isinstance(value, list):
        return ()
    options = (_option(item) for item in value[:_MAX_OPTIONS])
    return tuple(option for option in options if option is not None)


def _option(item: Json) -> Json:
    if _is_scalar(item):
        return _short(item)
    if not isinstance(item, Mapping):
        return None
    option = {name: _short(item[name]) for name in ("label", "value", "description") if _is_scalar(item.get(name))}
    return option if "label" in option or "value" in option else None


def _is_scalar(value: Json) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and bool(value.strip()))


def _short(value: Json) -> Json:
    return value[:_MAX_LABEL] if isinstance(value, str) else value


def response_schema(value: Json) -> dict[str, Json] | None:
    """The schema of an answer, if it is a scalar or a flat object; otherwise None."""
    return flat_schema(value) or _scalar_schema(value)


def _scalar_schema(value: Json) -> dict[str, Json] | None:
    scalar = field_schema(value)
    if scalar is None or scalar["type"] == "array" or any(name in value and name not in scalar for name in _CHOICES):
        return None
    return small(scalar)  # type: ignore[no-any-return]


def flat_schema(value: Json) -> dict[str, Json] | None:
    """The schema, if it is an object with primitive properties as in MCP's form elicitation; otherwise None."""
    if not isinstance(value, Mapping) or value.get("type") != "object":
        return None
    properties = value.get("properties")
    if not isinstance(properties, Mapping) or not 0 < len(properties) <= _MAX_PROPERTIES:
        return None
    hidden = Secrecy.by(value)
    read = {name: _field(schema, is_secret=name in hidden.fields) for name, schema in properties.items()}
    if any(schema is None for schema in read.values()):
        return None
    flat: dict[str, Json] = {"type": "object", "properties": read}
    if hidden.whole:
        flat["writeOnly"] = True
    required = value.get("required")
    if isinstance(required, list):
        flat["required"] = [name for name in dict.fromkeys(map(str, required)) if name in read]
    return small(flat)  # type: ignore[no-any-return]


def field_schema(schema: Json) -> dict[str, Json] | None:
    return _field(schema, is_secret=Secrecy.by(schema).any)


def _field(schema: Json, *, is_secret: bool) -> dict[str, Json] | None:
    if not isinstance(schema, Mapping):
        return None
    kind = schema.get("type", _type_of_choices(schema))
    keywords = _KEYWORDS.get(kind) if isinstance(kind, str) else None
    if keywords is None:
        return None
    taken = {name: schema[name] for name, fits in (_COMMON | keywords).items() if name in schema and fits(schema[name])}
    read = {"type": kind, **taken}
    if kind == "array":
        items = _items(schema.get("items"))
        if items is None:
            return None
        read["items"] = items
    return marked_secret(read) if is_secret else read


def marked_secret(schema: dict[str, Json]) -> dict[str, Json]:
    """Mark the schema itself as secret: the keywords that said so may be left out of it."""
    if Secrecy.by(schema).whole:
        return schema
    return {**schema, "writeOnly": True, **({"format": "password"} if schema["type"] == "string" else {})}


def hidden_kind(kind: str, wanted: Json, schema: dict[str, Json] | None) -> str:
    """The kind of a question: `secret` if its schema was left out, and with it what is secret in the answer."""
    return kind if Secrecy.by(schema).covers(Secrecy.by(wanted)) else "secret"


def _type_of_choices(schema: Mapping[str, Json]) -> str | None:
    """The type of a schema that lists its values without naming their type."""
    if "oneOf" in schema or _are_texts(schema.get("enum")):
        return "string"
    return "number" if _are_scalars(schema.get("enum")) and all(map(_is_number, schema["enum"])) else None


def _items(schema: Json) -> dict[str, Json] | None:
    """The `items` of a multiple choice: a list of strings to choose from."""
    if not isinstance(schema, Mapping):
        return None
    if _are_texts(schema.get("enum")):
        return {"type": "string", "enum": schema["enum"]}
    return {"anyOf": schema["anyOf"]} if _are_titled(schema.get("anyOf")) else None


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _are_texts(value: Json) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MAX_OPTIONS and all(map(_is_text, value))


def _are_scalars(value: Json) -> bool:
    return isinstance(value, list) and 0 < len(value) <= _MAX_OPTIONS and all(map(_is_scalar, value))


def _are_titled(value: Json) -> bool:
    """`[{"const": "r", "title": "Red"}, …]`."""
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_OPTIONS
        and all(isinstance(item, Mapping) and set(item) <= {"const", "title"} and "const" in item for item in value)
        and all(all(map(_is_text, item.values())) for item in value)
    )


_CHOICES = ("enum", "oneOf")
_Fits = Callable[[Any], bool]
_COMMON: dict[str, _Fits] = {
    "title": _is_text,
    "description": _is_text,
    "default": lambda value: (
        _is_scalar(value) or value == "" or (isinstance(value, list) and all(map(_is_text, value)))
    ),
    "writeOnly": lambda value: isinstance(value, bool),
}
_TEXT: dict[str, _Fits] = {
    "minLength": _is_count,
    "maxLength": _is_count,
    "format": lambda value: value in ("email", "uri", "date", "date-time", "password"),
    "enum": _are_texts,
    "enumNames": _are_texts,
    "oneOf": _are_titled,
}
_NUMBER: dict[str, _Fits] = {"minimum": _is_number, "maximum": _is_number, "enum": _are_scalars}
_KEYWORDS: dict[str, dict[str, _Fits]] = {
    "string": _TEXT,
    "number": _NUMBER,
    "integer": _NUMBER,
    "boolean": {},
    "array": {"minItems": _is_count, "maxItems": _is_count},
}
