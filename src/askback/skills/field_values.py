"""The values of a form and of its fields in words: allowed choices, types, and answers as a person reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from askback.core.errors import FieldProblem
from askback.core.interactions import Json
from askback.text.formatting import printable

Schema = Mapping[str, Any]
Choices = list[tuple[Json, str]]
"""The allowed values of a field, with their titles."""

MANIFEST = "artifact-manifest"
FILE_TYPES = ("artifact", "file", MANIFEST)
"""The values of `x-type` that mark the name of a file."""
FILE_PATH = "file-path"
"""The format of a field for a file of this machine."""
_FORMATS = {
    FILE_PATH: "path of a file",
    "date": "date, YYYY-MM-DD",
    "date-time": "date and time, such as 2026-03-01T09:30:00Z",
    "time": "time, such as 09:30:00Z",
    "email": "e-mail address",
    "uri": "URL",
    "password": "secret, not shown",
}
_TYPES = {"boolean": "yes or no", "integer": "whole number", "object": "JSON object", "array": "JSON list"}
_PLURALS = {"string": "texts", "integer": "whole numbers", "number": "numbers", "object": "objects"}
_ENDS = ("?", "!", ".", ":", "…", "？", "！", "。", "：")


def choices(field: Schema) -> Choices:
    """The allowed values of a field, or of the items of a list."""
    items = field.get("items") if type_of(field) == "array" else field
    if not isinstance(items, Mapping):
        return []
    titled = items.get("oneOf") or items.get("anyOf") or ()
    if titled and all(isinstance(each, Mapping) and "const" in each for each in titled):
        return [(each["const"], str(each.get("title", each["const"]))) for each in titled]
    values = items.get("enum", ())
    names = field.get("enumNames", ())
    return list(zip(values, names if len(names) == len(values) else map(text_of, values), strict=True))


def has_numbers(offered: Choices) -> bool:
    """A number that is typed must not be both a choice and the number of another."""
    return bool(offered) and not any(word.isdecimal() for value, title in offered for word in (text_of(value), title))


def numbered(field: Schema) -> list[str]:
    """The choices of a field with their numbers: `1) Packed: see it all`. None if these are numbers themselves."""
    offered = choices(field)
    if not has_numbers(offered):
        return []
    about = descriptions(field)
    lines = (
        printable(title) + (f": {said}" if (said := about.get(text_of(value))) else "") for value, title in offered
    )
    return [f"{number}) {line}" for number, line in enumerate(lines, 1)]


def descriptions(field: Schema) -> dict[str, str]:
    """What is said about each choice, by its value as text."""
    items = field.get("items") if type_of(field) == "array" else field
    titled = (items.get("oneOf") or items.get("anyOf") or ()) if isinstance(items, Mapping) else ()
    described = (each for each in titled if isinstance(each, Mapping) and each.get("description"))
    return {text_of(each.get("const")): " ".join(printable(str(each["description"])).split()) for each in described}


def takes_file(field: Schema) -> bool:
    return field.get("x-input-source") == "file" or field.get("x-type") in FILE_TYPES


def describe(field: Any) -> str:
    """The type, range and description of a field, for people who do not answer a prompt."""
    if not isinstance(field, Mapping):
        return "anything"
    offered = " | ".join(printable(text_of(value)) for value, _ in choices(field))
    kind = "file" if takes_file(field) else offered or _listed(field) or kind_of(field)
    return f"{kind} ({described})" if (described := description(field)) else kind


def _listed(field: Schema) -> str:
    """A list by its items, as a command line or an output has it: as JSON."""
    items = field.get("items")
    if type_of(field) != "array" or not isinstance(items, Mapping):
        return ""
    return f"JSON list of {_PLURALS[type_of(items)]}" if type_of(items) in _PLURALS else ""


def kind_of(field: Schema) -> str:
    """What may be typed."""
    kind, offered = type_of(field), choices(field)
    if offered:
        last = len(offered)
        one = f"1-{last}" if last > 1 else "1"
        words = one if has_numbers(offered) else " | ".join(printable(title) for _, title in offered)
        return f"any of {words}, separated by commas" if kind == "array" else words
    if kind == "array" and type_of(field.get("items") or {}) in ("string", "integer", "number"):
        return "values separated by commas"
    name = _FORMATS.get(str(field.get("format"))) if kind == "string" else None
    return (name or _TYPES.get(kind, "text" if kind == "string" else kind)) + _range(field)


def _range(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else f", at most {high}" if high is not None else ""


def title_of(name: str, field: Any) -> str:
    return printable(str((field.get("title") if isinstance(field, Mapping) else None) or name))


def description(field: Schema) -> str:
    """For use inside a line: without a final period."""
    return whole_description(field).removesuffix(".")


def whole_description(field: Schema) -> str:
    return printable(str(field.get("description") or "")).strip()


def introduced(title: str) -> str:
    """A title before what follows it: `Days:`, but `How many days?`."""
    return title if title.endswith(_ENDS) else f"{title}:"


def text_of(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MAX_DEPTH = 50


def readable(value: Json, schema: Any = None, *, depth: int = 0) -> str:
    """A value as a person reads it: `Days: 3; Pace: fast; Extras: Food, Museums; Guide: yes`.

    Nobody reads what is nested too deep: it is left out.
    """
    if depth > _MAX_DEPTH:
        return "…"
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, Mapping):
        fields = schema.get("properties") or {}
        parts = (
            f"{introduced(title_of(name, fields.get(name)))} {readable(each, fields.get(name), depth=depth + 1)}"
            for name, each in value.items()
        )
        return "; ".join(parts)
    if isinstance(value, list):
        return ", ".join(readable(each, schema, depth=depth + 1) for each in value)
    titles = [title for each, title in choices(schema) if json.dumps(each) == json.dumps(value)]
    if titles:
        return titles[0]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else text_of(value)


def in_words(problem: str, schema: Schema | None = None) -> str:
    """A problem of an answer with its place as the person saw it: `response.tags[1]: …` is about `Tags, item 2`."""
    known = FieldProblem.of(problem)
    fields = (schema or {}).get("properties") or {}
    place = ", ".join(
        f"item {step + 1}" if isinstance(step, int) else title_of(step, fields.get(step)) for step in known.path[1:]
    )
    return f"{place}: {known.message}" if place else known.message


def type_of(field: Schema) -> str:
    kind = field.get("type", "string")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    return str(kind)
