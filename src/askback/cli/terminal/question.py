"""A question on the terminal: how it is shown, and what a typed line means as its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from askback.cli.terminal.prompt import ANSWER_NEEDED, LONGEST, Gone, TooLong, forget_typed, read_line, unseen
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.skills.validation import fits_reply, typed_value
from askback.text.terminal import printable

Write = Callable[[str], None]

_MOST_DIGITS = 9


def read_answer(interaction: Interaction, line: str) -> Json:
    """What a line means: an option by number, label or value; the default when empty; else what the schema makes of it."""
    text = line.strip("\r\n")
    word = text.strip()
    if not word and interaction.default is not None:
        return interaction.default
    for option in interaction.options:
        if word in (option_label(option), str(option_value(option))):
            return option_value(option)
    if word.isdecimal() and len(word) <= _MOST_DIGITS and 1 <= int(word) <= len(interaction.options):
        return option_value(interaction.options[int(word) - 1])
    return _structured(interaction, text)


def _structured(interaction: Interaction, text: str) -> Json:
    """A scalar by its type; for a form, an answer in JSON where it fits."""
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


async def ask(interaction: Interaction, write: Write, gone: Gone) -> Json:
    """Ask until the answer fits. Returns None when the question was settled elsewhere meanwhile."""
    with unseen() if interaction.secret else nullcontext():
        show(interaction, write)
        forget_typed()
        return await _until_it_fits(interaction, write, gone)


async def _until_it_fits(interaction: Interaction, write: Write, gone: Gone) -> Json:
    while True:
        try:
            response = await _ask_once(interaction, write, gone)
        except TooLong:
            write(f"    a terminal takes {LONGEST:,} bytes of a line and no more; answer a longer one with:")
            write("    Ctrl-D, then askback reply RUN < FILE")
            continue
        if response is None:
            return None
        problems = fits_reply(interaction, response) if response != "" else (ANSWER_NEEDED,)
        if not problems:
            return response
        for problem in problems:
            write(f"    {printable(problem)}")


async def _ask_once(interaction: Interaction, write: Write, gone: Gone) -> Json:
    schema = interaction.response_schema or {}
    if schema.get("type") == "object" and not interaction.options:
        return await ask_fields(interaction, write, gone)
    line = await read_line(hint(interaction), secret=interaction.secret, gone=gone)
    return None if line is None else read_answer(interaction, line)


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
