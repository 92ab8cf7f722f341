"""A form on the terminal: asks for one field after the other, and converts what is typed to the field's type."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime

from askback.cli import layout
from askback.cli.terminal.prompt import ANSWER_NEEDED, Settled, echo_off, read_line
from askback.cli.terminal.values import (
    Choices,
    Schema,
    choices,
    description,
    has_numbers,
    in_words,
    kind_of,
    numbered,
    readable,
    text_of,
    title_of,
    type_of,
)
from askback.core.interactions import Interaction, Json
from askback.skills.validation import reply_problems, typed_value
from askback.text.formatting import one_line, printable

Write = Callable[[str], None]

FLAGS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
SAY_YES_OR_NO = "answer y or n"
_NUMBERS = {"integer": "a whole number", "number": "a number"}
_DATE = "is not a date; write it as YYYY-MM-DD, such as 2026-03-01"
_MISSING = object()
_SETTLED = object()
_MAX_SHOWN = 60
_ROOM_TO_TYPE = 20
"""Columns that a prompt leaves free in its line."""


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
            *above, prompt = _prompt(name, field, default, is_required)
            for line in above:
                write(line)
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
    kind = type_of(field)
    if kind == "boolean":
        return FLAGS.get(word.lower(), word)
    offered = choices(field)
    if kind == "array" and not word.startswith("["):
        parts = [part.strip() for part in word.split(",") if part.strip()]
        if offered:
            chosen = [_chosen(part, offered) for part in parts]
            return [each for at, each in enumerate(chosen) if each not in chosen[:at]]
        return [typed_value(part, field.get("items")) for part in parts]
    return _chosen(word, offered) if offered else typed_value(line, field)


def _chosen(word: str, offered: Choices) -> Json:
    """A choice by value, title or number; the word itself if there is no such choice."""
    for value, title in (*((value, str(value)) for value, _ in offered), *offered):
        if word == title:
            return value
    if has_numbers(offered) and word.isdecimal() and len(word) < 9 and 1 <= int(word) <= len(offered):
        return offered[int(word) - 1][0]
    return word


def field_problems(value: Json, field: Schema) -> tuple[str, ...]:
    """What is wrong with the value, in words."""
    offered, kind = choices(field), type_of(field)
    if kind == "boolean" and not isinstance(value, bool):
        return (SAY_YES_OR_NO,)
    wrong = [each for each in (value if isinstance(value, list) else [value]) if not _is_offered(each, offered)]
    if offered and wrong:
        shown = ", ".join(one_line(text_of(each), _MAX_SHOWN) for each in wrong)
        verb = "is" if len(wrong) == 1 else "are"
        return (f"{shown} {verb} not offered; choose from: {kind_of(field)}",)
    if kind in _NUMBERS and isinstance(value, str):
        return (f"{one_line(value, _MAX_SHOWN)} is not {_NUMBERS[kind]}",)
    alone = Interaction(
        interaction_id="", kind="", prompt="", attempt_number=1, asked_at=datetime.now(UTC), response_schema=dict(field)
    )
    problems = reply_problems(alone, value)
    if problems and isinstance(value, str) and field.get("format") == "date":
        return (f"{one_line(value, _MAX_SHOWN)} {_DATE}",)
    return tuple(in_words(problem) for problem in problems)


def _is_offered(value: Json, offered: Choices) -> bool:
    return any(json.dumps(value) == json.dumps(each) for each, _ in offered)


# What is shown.


def _prompt(name: str, field: Schema, default: Json, is_required: bool) -> Iterator[str]:
    """Lines above the prompt, and the prompt itself: `Days (how long; whole number, at least 1): `.

    A description that would leave no room to type, the choices, and all but the last line of a title come above.
    """
    *lines, title = title_of(name, field).splitlines() or [name]
    about, listed = description(field), numbered(field)
    yield from (f"    {line}" for line in lines)
    prompt = f"    {title}{_hint(about, field, default, is_required)}: "
    width = layout.columns(sys.stderr) or 0
    is_long = "\n" in about or len(prompt) > max(width - _ROOM_TO_TYPE, 2 * _ROOM_TO_TYPE) > 2 * _ROOM_TO_TYPE
    if listed or (about and is_long):
        prompt = f"    {title}{_hint('', field, default, is_required)}: "
        yield f"    {title}: {about}" if about else f"    {title}:"
    for choice in listed:
        yield f"      {choice}"
    yield prompt


def _hint(about: str, field: Schema, default: Json, is_required: bool) -> str:
    details = [about] if about else []
    optional = default is _MISSING and not is_required
    if type_of(field) == "boolean":
        shown = f" ({'; '.join([*details, *(['optional'] if optional else [])])})" if details or optional else ""
        return f"{shown} {yes_or_no(None if default is _MISSING else default)}"
    kind = [kind_of(field)]
    if default is not _MISSING:
        kind.append(f"Enter for {printable(readable(default, field))}")
    elif optional:
        kind.append("optional")
    return f" ({'; '.join([*details, ', '.join(kind)])})"


def yes_or_no(default: Json) -> str:
    """The capital letter is what Enter means. Without a default, Enter is no answer."""
    return {True: "[Y/n]", False: "[y/N]", None: "[y/n]"}[as_flag(default)]


def as_flag(value: Json) -> bool | None:
    return value if isinstance(value, bool) else FLAGS.get(str(value).lower())
