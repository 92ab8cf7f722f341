"""A JSON Schema as rows that people read: one for each value, by its path. Knows nothing of pages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_ROWS = 200
_DEEPEST = 5
_LIMITS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "pattern", "format", "default"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    path: str
    kind: str
    required: bool
    is_file: bool
    about: str
    choices: tuple[str, ...]
    limits: tuple[tuple[str, str], ...]
    """Each keyword with its value, as the schema has them."""


def rows(schema: Mapping[str, Any] | None) -> list[Row]:
    """At most `MOST_ROWS`; the raw schema stands beside it."""
    found: list[Row] = []
    for row in _rows(schema or {}, "", 0):
        found.append(row)
        if len(found) >= MOST_ROWS:
            break
    return found


def _rows(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[Row]:
    required = _list(schema.get("required"))
    for name, inner in _mapping(schema.get("properties")).items():
        here = f"{path}.{name}" if path else name
        known = _mapping(inner)
        yield _row(known, here, name in required)
        if depth < _DEEPEST:
            yield from _rows(known, here, depth + 1)
            yield from _rows(_mapping(known.get("items")), f"{here}[]", depth + 1)


def _row(schema: Mapping[str, Any], path: str, required: bool) -> Row:
    return Row(
        path=path,
        kind=_kind(schema),
        required=required,
        is_file=schema.get("x-input-source") == "file",
        about=str(schema.get("description") or schema.get("title") or ""),
        choices=tuple(_choices(schema)),
        limits=tuple((word, _text(schema[word])) for word in _LIMITS if word in schema),
    )


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(map(str, kind))
    if kind == "array" and (of := _mapping(schema.get("items")).get("type")) is not None:
        return f"{of}[]"
    return str(kind) if kind is not None else ""


def _choices(schema: Mapping[str, Any]) -> list[str]:
    place = _mapping(schema.get("items")) if schema.get("type") == "array" else schema
    titled = _list(place.get("oneOf")) or _list(place.get("anyOf"))
    if titled and all("const" in _mapping(each) for each in titled):
        return [_text(each["const"]) for each in titled]
    return [_text(each) for each in _list(place.get("enum"))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
