"""A question that wants an object: one line for each of its fields, asked again until it fits.

The schema is flat: texts, numbers, true or false, and lists of texts to choose from.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from askback.cli.line import ANSWER_NEEDED, Gone, read_line
from askback.cli.text import printable
from askback.core.interactions import Interaction, Json
from askback.skills.schemas import fits_reply, typed_value

_FLAGS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_MISSING = object()


async def ask_fields(interaction: Interaction, write: Callable[[str], None], gone: Gone) -> dict[str, Json] | None:
    """What was typed; None when the question was settled elsewhere. An empty line leaves out what is not required."""
    schema: dict[str, Any] = interaction.response_schema or {}
    fields: dict[str, Json] = {}
    for name, field in schema.get("properties", {}).items():
        default = _default(interaction, name, field)
        required = name in schema.get("required", ())
        while True:
            line = await read_line(_hint(name, field, default, required), secret=interaction.secret, gone=gone)
            if line is None:
                return None
            value = _value(line, field) if line.strip() else default
            problems = _problems(interaction, name, field, value, required)
            if not problems:
                break
            for problem in problems:
                write(f"      {printable(problem)}")
        if value is not _MISSING:
            fields[name] = value
    return fields


def _default(interaction: Interaction, name: str, field: Mapping[str, Any]) -> Json:
    """The field's own, unless the question has one for the whole object."""
    if isinstance(interaction.default, Mapping) and name in interaction.default:
        return interaction.default[name]
    return field.get("default", _MISSING)


def _value(line: str, field: Mapping[str, Any]) -> Json:
    """A line as the field's type wants it; what cannot be read stays a text, for the check to name."""
    word = line.strip()
    if field.get("type") == "boolean":
        return _FLAGS.get(word.lower(), word)
    if field.get("type") == "array" and not word.startswith("["):
        return [_by_title(part.strip(), _choices(field)) for part in word.split(",") if part.strip()]
    choices = _choices(field)
    return _by_title(word, choices) if choices and field.get("type") == "string" else typed_value(line, field)


def _problems(
    interaction: Interaction, name: str, field: Mapping[str, Any], value: Json, required: bool
) -> tuple[str, ...]:
    if value is _MISSING:
        return (ANSWER_NEEDED,) if required else ()
    alone = replace(interaction, response_schema={"type": "object", "properties": {name: field}})
    return fits_reply(alone, {name: value})


def _choices(field: Mapping[str, Any]) -> dict[str, str]:
    """What may be chosen, each value with its title."""
    items = field.get("items", {}) if field.get("type") == "array" else field
    titled = items.get("oneOf") or items.get("anyOf")
    if titled:
        return {each["const"]: each.get("title", each["const"]) for each in titled}
    values = items.get("enum", ())
    names = field.get("enumNames", ())
    return dict(zip(values, names if len(names) == len(values) else map(str, values), strict=True))


def _by_title(word: str, choices: Mapping[str, str]) -> str:
    return next((value for value, title in choices.items() if word == title and word not in choices), word)


def _hint(name: str, field: Mapping[str, Any], default: Json, required: bool) -> str:
    title = printable(str(field.get("title") or name))
    details = [printable(str(field["description"]))] if "description" in field else []
    details.append(_kind(field))
    if default is not _MISSING:
        details.append(f"Enter for {printable(default if isinstance(default, str) else json.dumps(default))}")
    elif not required:
        details.append("may be left empty")
    return f"    {title} ({', '.join(details)}): "


def _kind(field: Mapping[str, Any]) -> str:
    choices = " | ".join(printable(str(title)) for title in _choices(field).values())
    kind = str(field.get("type", "string"))
    if kind == "array":
        return f"some of {choices}, with commas between"
    return choices or {"string": "text", "boolean": "yes or no", "integer": "whole number"}.get(kind, kind)
