"""A question on the terminal: how it is shown, and what a typed answer means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from askback.cli.terminal.prompt import (
    ANSWER_NEEDED,
    MAX_PLAIN_LINE,
    Settled,
    TooLong,
    discard_typed,
    echo_off,
    read_line,
)
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.skills.validation import fits_reply, typed_value
from askback.text.formatting import printable
from askback.wire import runs as wire

Write = Callable[[str], None]

_MAX_DIGITS = 9


def read_answer(interaction: Interaction, line: str) -> Json:
    """An option by number, label or value; the default for an empty line; otherwise what the schema makes of the text."""
    text = line.strip("\r\n")
    word = text.strip()
    if not word and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if word in (option_label(option), str(option_value(option))):
            return option_value(option)
    if word.isdecimal() and len(word) <= _MAX_DIGITS and 1 <= int(word) <= len(interaction.options):
        return option_value(interaction.options[int(word) - 1])
    return _structured(interaction, text)


def _structured(interaction: Interaction, text: str) -> Json:
    """Parse a scalar by its type; parse JSON if the schema is that of an object and the value matches it."""
    schema = interaction.response_schema
    if schema is None:
        return text
    if schema.get("type") != "object":
        return _value(text, schema) if text.strip() else schema.get("default", text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) or fits_reply(interaction, value) else value


def show(interaction: Interaction, write: Write) -> None:
    write("")
    for line in printable(interaction.prompt).splitlines() or [""]:
        write(f"  ? {line}")
    if interaction.context:
        for line in printable(_short(interaction.context)).splitlines():
            write(f"    {line}")
    for number, option in enumerate(interaction.options, 1):
        write(f"    {number}) {_option(interaction, option)}")


def _option(interaction: Interaction, option: Json) -> str:
    line = printable(option_label(option))
    if isinstance(option, Mapping) and option.get("description"):
        line += f": {printable(str(option['description']))}"
    default = interaction.default
    is_default = default is not None and default in (option_value(option), option_label(option))
    return f"{line}  (default)" if is_default else line


def hint(interaction: Interaction) -> str:
    """The line in front of the cursor."""
    parts = []
    schema = interaction.response_schema
    if interaction.options:
        numbers = "1" if len(interaction.options) == 1 else f"1-{len(interaction.options)}"
        parts.append(f"{numbers} or your own words" if schema is None else numbers)
    elif schema is not None:
        parts.append(_kind(schema))
    if interaction.default is not None:
        parts.append(f"Enter for {printable(_short(interaction.default))}")
    if interaction.secret:
        parts.append("not shown")
    return f"  Your answer ({', '.join(parts)}): " if parts else "  Your answer: "


def _short(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def how_to_answer(run_id: str, asked: Interaction | wire.Interaction | None) -> str:
    return f"run {run_id} waits for an answer; answer with: {reply_command(run_id, asked)}"


def reply_command(run_id: str, asked: Interaction | wire.Interaction | None) -> str:
    """The command that answers a question. It asks for secrets, which the shell would keep, and for forms."""
    schema = (asked.response_schema if asked else None) or {}
    asks = asked is not None and (asked.secret or schema.get("type") == "object")
    return f"askback reply {printable(run_id)}" + ("" if asks else " TEXT")


async def ask(interaction: Interaction, write: Write, settled: Settled, *, can_leave: bool = True) -> Json:
    """Ask until the answer is valid. Returns None if the question was settled elsewhere.

    `can_leave`: whether the run waits if the user leaves.
    """
    with echo_off() if interaction.secret else nullcontext():
        show(interaction, write)
        if can_leave:
            write("    (Ctrl-D: answer later)")
        discard_typed()
        return await _until_valid(interaction, write, settled)


async def _until_valid(interaction: Interaction, write: Write, settled: Settled) -> Json:
    while True:
        try:
            response = await _ask_once(interaction, write, settled)
        except TooLong:
            write(
                f"    this terminal cuts a line after {MAX_PLAIN_LINE:,} bytes; for a longer answer, press Ctrl-D, then:"
            )
            write("    askback reply RUN < FILE")
            continue
        if response is None:
            return None
        problems = fits_reply(interaction, response) if response != "" else (ANSWER_NEEDED,)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


async def _ask_once(interaction: Interaction, write: Write, settled: Settled) -> Json:
    schema = interaction.response_schema or {}
    if schema.get("type") == "object" and not interaction.options:
        return await ask_fields(interaction, write, settled)
    line = await read_line(hint(interaction), secret=interaction.secret, settled=settled)
    return None if line is None else read_answer(interaction, line)


_FLAGS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_MISSING = object()


async def ask_fields(interaction: Interaction, write: Write, settled: Settled) -> dict[str, Json] | None:
    """Ask for one field after the other. An empty line leaves out an optional field."""
    schema: dict[str, Any] = interaction.response_schema or {}
    fields: dict[str, Json] = {}
    for name, field in schema.get("properties", {}).items():
        default = _default(interaction, name, field)
        required = name in schema.get("required", ())
        while True:
            line = await read_line(_hint(name, field, default, required), secret=interaction.secret, settled=settled)
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
    """The question's default for this field, else the field's own."""
    if isinstance(interaction.default, Mapping) and name in interaction.default:
        return interaction.default[name]
    return field.get("default", _MISSING)


def _value(line: str, field: Mapping[str, Any]) -> Json:
    """Convert a line to the field's type. What cannot be converted stays text, and validation reports it."""
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
    """The allowed values with their titles."""
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
        details.append("optional")
    return f"    {title} ({', '.join(details)}): "


def _kind(field: Mapping[str, Any]) -> str:
    choices = " | ".join(printable(str(title)) for title in _choices(field).values())
    kind = str(field.get("type", "string"))
    if kind == "array":
        return f"any of {choices}, separated by commas"
    return choices or {"string": "text", "boolean": "yes or no", "integer": "whole number"}.get(kind, kind)
