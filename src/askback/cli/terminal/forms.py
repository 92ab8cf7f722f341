"""A form of several questions on the terminal: its questions in a list, asked one by one, and shown before they are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from askback.cli.terminal.fields import Write, ask_fields
from askback.cli.terminal.prompt import Settled, read_line
from askback.core.interactions import FormField, Interaction, Json
from askback.skills.field_values import describe, introduced, readable
from askback.text.formatting import one_line, printable
from askback.wire import questions as question_wire

NOT_SHOWN = "(not shown)"
_MAX_PROMPT = 200
_MAX_ANSWER = 200


def form_lines(questions: Sequence[FormField | question_wire.FormField]) -> Iterator[str]:
    """The questions of a form, each with its id and what it takes: enough to write the answer as JSON."""
    for number, field in enumerate(questions, 1):
        optional = "" if field.required else ", optional"
        takes = describe({**(field.response_schema or {}), "description": ""})
        yield f"{number}. {one_line(field.prompt, _MAX_PROMPT)} ({printable(field.id)}: {takes}{optional})"


def said(interaction: Interaction | question_wire.Interaction, response: Json) -> str:
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
