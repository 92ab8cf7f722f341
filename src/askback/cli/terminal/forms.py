"""Forms on the terminal: the fields of a schema asked one after the other, and the questions of a form reviewed before they are
sent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from askback.cli import output
from askback.cli.terminal.prompt import ANSWER_NEEDED, Settled, echo_off, read_line
from askback.core.interactions import FormField, Interaction, Json
from askback.core.secrecy import Secrecy
from askback.questions.typed_answers import as_flag, field_problems, value_of
from askback.skills.field_values import (
    Schema,
    describe,
    description,
    introduced,
    kind_of,
    numbered,
    readable,
    title_of,
    type_of,
    whole_description,
)
from askback.text.formatting import one_line, printable

Write = Callable[[str], None]

_MISSING = object()
_SETTLED = object()
_ROOM_TO_TYPE = 20
"""Columns that a prompt leaves free in its line."""
NOT_SHOWN = "(not shown)"
_MAX_PROMPT = 200
_MAX_ANSWER = 200


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
    hides = Secrecy.by(schema)
    for name, field in schema.get("properties", {}).items():
        known = isinstance(defaults, Mapping) and name in defaults
        default = defaults[name] if known else field.get("default", _MISSING)
        is_required = name in schema.get("required", ())
        hidden = not secret and (hides.whole or name in hides.fields)
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


def _prompt(name: str, field: Schema, default: Json, is_required: bool) -> Iterator[str]:
    """Lines above the prompt, and the prompt itself: `Days (how long; whole number, at least 1): `.

    A description that would leave no room to type, the choices, and all but the last line of a title come above.
    """
    *lines, title = title_of(name, field).splitlines() or [name]
    about, listed = description(field), numbered(field)
    yield from (f"    {line}" for line in lines)
    prompt = f"    {title}{_hint(about, field, default, is_required)}: "
    width = output.columns(sys.stderr) or 0
    is_long = "\n" in about or len(prompt) > max(width - _ROOM_TO_TYPE, 2 * _ROOM_TO_TYPE) > 2 * _ROOM_TO_TYPE
    if listed or (about and is_long):
        prompt = f"    {title}{_hint('', field, default, is_required)}: "
        yield f"    {introduced(title)} {whole_description(field)}".rstrip()
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


def form_lines(questions: Sequence[FormField]) -> Iterator[str]:
    """The questions of a form, each with its id and what it takes: enough to write the answer as JSON."""
    for number, field in enumerate(questions, 1):
        optional = "" if field.required else ", optional"
        takes = describe({**(field.response_schema or {}), "description": ""})
        yield f"{number}. {one_line(field.prompt, _MAX_PROMPT)} ({printable(field.id)}: {takes}{optional})"


def format_answer(interaction: Interaction, response: Json) -> str:
    """An answer as a person reads it, without its secrets."""
    hidden = interaction.secrecy
    if hidden.whole or (hidden.fields and not isinstance(response, Mapping)):
        return NOT_SHOWN
    if hidden.fields:
        response = {name: NOT_SHOWN if name in hidden.fields else value for name, value in response.items()}
    return readable(response, interaction.response_schema)


async def ask_form(interaction: Interaction, write: Write, settled: Settled) -> dict[str, Json] | None:
    """Ask every question, then show all answers; each can be changed until they are sent. None if settled elsewhere."""
    questions = interaction.questions
    answers = await ask_fields(_schema(questions), {}, write, settled)
    while answers is not None:
        write("")
        for line in _review(questions, answers):
            write(f"    {line}")
        word = await read_line(
            "    Enter to send, or the number of an answer to change: ", secret=False, settled=settled
        )
        if word is None or not word.strip():
            return None if word is None else answers
        number = word.strip()
        if not (number.isdecimal() and len(number) < 4 and 1 <= int(number) <= len(questions)):
            write(f"    {one_line(number, 20)} is not the number of an answer; choose 1-{len(questions)}")
            continue
        answers = await _changed(questions, int(number), answers, write, settled)
    return None


async def _changed(
    questions: Sequence[FormField], number: int, answers: dict[str, Json], write: Write, settled: Settled
) -> dict[str, Json] | None:
    """The answers after one question was asked again. Enter keeps its answer."""
    field = questions[number - 1]
    schema = _schema(questions)
    alone = {**schema, "properties": {field.id: schema["properties"][field.id]}}
    known = {} if field.secret else {name: value for name, value in answers.items() if name == field.id}
    again = await ask_fields(alone, known, write, settled)
    return None if again is None else {**answers, **again}


def _schema(questions: Sequence[FormField]) -> dict[str, Any]:
    """The schema of the form, with the place of each question in its title."""
    total = len(questions)
    numbered = {
        field.id: {**(field.response_schema or {}), "title": f"{number}/{total} {field.prompt}"}
        for number, field in enumerate(questions, 1)
    }
    return {"properties": numbered, "required": [field.id for field in questions if field.required]}


def _review(questions: Sequence[FormField], answers: Mapping[str, Json]) -> Iterator[str]:
    for number, field in enumerate(questions, 1):
        shown = "(no answer)"
        if field.id in answers:
            shown = (
                NOT_SHOWN if field.secret else one_line(readable(answers[field.id], field.response_schema), _MAX_ANSWER)
            )
        yield f"{number}. {introduced(one_line(field.prompt, _MAX_PROMPT))} {printable(shown)}"
