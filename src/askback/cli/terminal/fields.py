"""A form on the terminal: asks for one field after the other, and converts what is typed to the field's type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

from askback.cli.terminal.prompt import ANSWER_NEEDED, Settled, echo_off, read_line
from askback.core.interactions import Interaction, Json
from askback.skills.validation import reply_problems, typed_value
from askback.text.formatting import printable

Schema = Mapping[str, Any]
Write = Callable[[str], None]
Choices = list[tuple[Json, str]]
"""The allowed values of a field, with their titles."""

FLAGS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
SAY_YES_OR_NO = "answer y or n"
FILE_PATH = "file-path"
"""The format of a field for a file of this machine."""
_FORMATS = {
    FILE_PATH: "path of a file",
    "date": "date, such as 2026-03-01",
    "date-time": "date and time, such as 2026-03-01T09:30:00Z",
    "time": "time, such as 09:30:00Z",
    "email": "e-mail address",
    "uri": "URL",
}
_TYPES = {"boolean": "yes or no", "integer": "whole number", "object": "JSON object", "array": "JSON list"}
_PATH = re.compile(r"^response((?:\.[^\s.:\[]+|\[\d+\])*): ")
_MISSING = object()
_SETTLED = object()


async def ask_fields(
    schema: Schema,
    defaults: Json,
    write: Write,
    settled: Settled,
    *,
    secret: bool = False,
    needed: str = ANSWER_NEEDED,
) -> dict[str, Json] | None:
    """The fields of an object schema. None if the question was settled elsewhere.

    `defaults` come before those of the schema. An empty line leaves out an optional field; for a required one, `needed`
    is written.
    """
    fields: dict[str, Json] = {}
    for name, field in schema.get("properties", {}).items():
        known = isinstance(defaults, Mapping) and name in defaults
        default = defaults[name] if known else field.get("default", _MISSING)
        is_required = name in schema.get("required", ())
        hidden = not secret and (field.get("format") == "password" or field.get("writeOnly") is True)
        with echo_off() if hidden else nullcontext():
            prompt = _hint(name, field, default, is_required)
            refused = needed if is_required else None
            value = await _ask_field(field, prompt, default, refused, write, settled, secret=secret or hidden)
        if value is _SETTLED:
            return None
        if value is not _MISSING:
            fields[name] = value
    return fields


async def _ask_field(
    field: Schema, prompt: str, default: Json, needed: str | None, write: Write, settled: Settled, *, secret: bool
) -> Json:
    """Ask until the value is valid. `needed` is written if it is missing; None: it may be."""
    for choice in numbered(field):
        write(f"      {choice}")
    while True:
        line = await read_line(prompt, secret=secret, settled=settled)
        if line is None:
            return _SETTLED
        value = value_of(line, field) if line.strip() else default
        if value is _MISSING:
            problems: tuple[str, ...] = (needed,) if needed else ()
        else:
            problems = field_problems(value, field)
        if not problems:
            return value
        for problem in problems:
            write(f"      {printable(problem)}")


# What is typed.


def value_of(line: str, field: Schema) -> Json:
    """Convert a line to the field's type. What cannot be converted stays text, and `field_problems` reports it."""
    word = line.strip()
    kind = _type(field)
    if kind == "boolean":
        return FLAGS.get(word.lower(), word)
    offered = choices(field)
    if kind == "array" and not word.startswith("["):
        parts = [part.strip() for part in word.split(",") if part.strip()]
        items = field.get("items")
        return [_chosen(part, offered) if offered else typed_value(part, items) for part in parts]
    return _chosen(word, offered) if offered else typed_value(line, field)


def _chosen(word: str, offered: Choices) -> Json:
    """A choice by value, title or number; the word itself if there is no such choice."""
    for value, title in (*((value, str(value)) for value, _ in offered), *offered):
        if word == title:
            return value
    if _has_numbers(offered) and word.isdecimal() and len(word) < 9 and 1 <= int(word) <= len(offered):
        return offered[int(word) - 1][0]
    return word


def field_problems(value: Json, field: Schema) -> tuple[str, ...]:
    """What is wrong with the value, in words."""
    offered = choices(field)
    if _type(field) == "boolean" and not isinstance(value, bool):
        return (SAY_YES_OR_NO,)
    wrong = [each for each in (value if isinstance(value, list) else [value]) if not _is_offered(each, offered)]
    if offered and wrong:
        shown = ", ".join(text_of(each) for each in wrong)
        return (f"{shown} is not offered; choose from: {kind_of(field)}",)
    alone = Interaction(
        interaction_id="", kind="", prompt="", attempt_number=1, asked_at=datetime.now(UTC), response_schema=dict(field)
    )
    return tuple(in_words(problem) for problem in reply_problems(alone, value))


def _is_offered(value: Json, offered: Choices) -> bool:
    return any(json.dumps(value) == json.dumps(each) for each, _ in offered)


def in_words(problem: str) -> str:
    """A problem with the path of its value as people say it: `response.tags[1]: …` is about `tags, item 2`."""
    found = _PATH.match(problem)
    if found is None:
        return problem
    steps = re.findall(r"\.([^.\[]+)|\[(\d+)\]", found[1])
    place = ", ".join(name or f"item {int(number) + 1}" for name, number in steps)
    return (f"{place}: " if place else "") + problem[found.end() :]


# What is shown.


def numbered(field: Schema) -> list[str]:
    """The choices of a field with their numbers; none if it has no choices, or if these are numbers themselves."""
    offered = choices(field)
    if not _has_numbers(offered):
        return []
    return [f"{number}) {printable(title)}" for number, (_, title) in enumerate(offered, 1)]


def choices(field: Schema) -> Choices:
    """The allowed values of a field, or of the items of a list."""
    items = field.get("items") if _type(field) == "array" else field
    if not isinstance(items, Mapping):
        return []
    titled = items.get("oneOf") or items.get("anyOf") or ()
    if titled and all(isinstance(each, Mapping) and "const" in each for each in titled):
        return [(each["const"], str(each.get("title", each["const"]))) for each in titled]
    values = items.get("enum", ())
    names = field.get("enumNames", ())
    return list(zip(values, names if len(names) == len(values) else map(text_of, values), strict=True))


def _has_numbers(offered: Choices) -> bool:
    """A number that is typed must not be both a choice and the number of another."""
    return bool(offered) and not any(word.isdecimal() for value, title in offered for word in (text_of(value), title))


def describe(field: Any) -> str:
    """The type, range and description of a field, for people who do not answer a prompt."""
    if not isinstance(field, Mapping):
        return "anything"
    offered = " | ".join(printable(text_of(value)) for value, _ in choices(field))
    kind = "file" if field.get("x-input-source") == "file" else offered or kind_of(field)
    return f"{kind} ({described})" if (described := description(field)) else kind


def kind_of(field: Schema) -> str:
    """What may be typed."""
    kind, offered = _type(field), choices(field)
    if offered:
        last = len(offered)
        one = f"1-{last}" if last > 1 else "1"
        words = one if _has_numbers(offered) else " | ".join(printable(title) for _, title in offered)
        return f"any of {words}, separated by commas" if kind == "array" else words
    if kind == "array" and _type(field.get("items") or {}) in ("string", "integer", "number"):
        return "values separated by commas"
    name = _FORMATS.get(str(field.get("format"))) if kind == "string" else None
    return (name or _TYPES.get(kind, "text" if kind == "string" else kind)) + _range(field)


def _range(field: Schema) -> str:
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    return f", at least {low}" if low is not None else f", at most {high}" if high is not None else ""


def _hint(name: str, field: Schema, default: Json, is_required: bool) -> str:
    """The line in front of the cursor: `Days (how long; whole number, at least 1): `."""
    details = [described] if (described := description(field)) else []
    optional = default is _MISSING and not is_required
    if _type(field) == "boolean":
        about = f" ({'; '.join([*details, *(['optional'] if optional else [])])})" if details or optional else ""
        return f"    {title_of(name, field)}{about} {yes_or_no(None if default is _MISSING else default)}: "
    kind = [kind_of(field)]
    if default is not _MISSING:
        kind.append(f"Enter for {printable(text_of(default))}")
    elif optional:
        kind.append("optional")
    return f"    {title_of(name, field)} ({'; '.join([*details, ', '.join(kind)])}): "


def title_of(name: str, field: Schema) -> str:
    return printable(str(field.get("title") or name))


def description(field: Schema) -> str:
    return printable(str(field.get("description") or "")).strip().removesuffix(".")


def yes_or_no(default: Json) -> str:
    """The capital letter is what Enter means. Without a default, Enter is no answer."""
    return {True: "[Y/n]", False: "[y/N]", None: "[y/n]"}[as_flag(default)]


def as_flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else FLAGS.get(str(value).lower())


def text_of(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(field: Schema) -> str:
    kind = field.get("type", "string")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    return str(kind)
