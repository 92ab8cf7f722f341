"""A question as an elicitation form or as a message, and what an answer to it means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from acp.schema import ElicitationSchema
from pydantic import ValidationError

from askback.client import Interaction as ShownInteraction
from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.questions.forms import Form
from askback.questions.typed_answers import answer_problems, is_confirmation, read_answer, value_of
from askback.questions.view import fields_of, is_form, view_of
from askback.skills.field_values import describe, kind_of, readable


def elicitation_of(form: Form) -> ElicitationSchema | None:
    """The form in the protocol; None if the protocol cannot express it."""
    try:
        return ElicitationSchema.model_validate(form.schema)
    except ValidationError:
        return None


def form_text(asked: Interaction) -> str:
    """What a form or a page is about: the question, and what the skill says about it."""
    view = view_of(asked)
    return "\n\n".join(part for part in (view.prompt, view.context) if part)


def question_text(asked: Interaction) -> str:
    return "\n".join(_lines(asked))


def _lines(asked: Interaction) -> Iterator[str]:
    view = view_of(asked)
    yield f"**{view.prompt}**"
    if view.context:
        yield f"\n{view.context}"
    yield ""
    for number, option in enumerate(view.options, 1):
        yield f"{number}. {option.line}{' (default)' if option.is_default else ''}"
    for field in view.fields:
        title = field.schema.get("title") or field.name
        shown = describe({**field.schema, "description": ""})
        yield f"- `{field.name}`: {title} ({shown}{'' if field.required else ', optional'})"
    if hint := _how(asked):
        yield f"\n{hint}"


def _how(asked: Interaction) -> str:
    schema = asked.response_schema
    if asked.asks_secrets:
        return ""
    if asked.options:
        return "Reply with a number" + (", or in your own words." if schema is None else ".")
    if is_confirmation(asked):
        return "Reply with yes or no."
    if is_form(asked):
        return "Reply with one line for each question, such as `name: value`, or with a JSON object."
    default = "" if asked.default is None else f" Suggested: {readable(asked.default, schema)}."
    return f"Reply with: {kind_of(schema)}.{default}" if schema is not None else f"Reply with your answer.{default}"


def answer_text(asked: ShownInteraction) -> str:
    """An answer as a person reads it, without its secrets."""
    return "(not shown)" if asked.secret else readable(asked.response, asked.response_schema)


def read_reply(asked: Interaction, text: str) -> Json:
    """What a typed message means. Raises `Invalid` if it cannot be an answer."""
    fields = {field.name: field.schema for field in fields_of(asked)}
    response = _typed_form(fields, text) if fields else read_answer(asked, text)
    check_reply(asked, response)
    return response


def is_option(asked: Interaction, text: str) -> bool:
    """Whether the text is an option of the question, word for word."""
    return any(text.strip() in (option_label(each), option_value(each)) for each in asked.options)


def check_reply(asked: Interaction, response: Json) -> None:
    problems = answer_problems(asked, response) if response not in ("", None) else ("the answer is empty",)
    if problems:
        raise Invalid(RefusalCode.REPLY_INVALID, "this is not an answer to the question", problems)


def _typed_form(fields: Mapping[str, Mapping[str, Any]], text: str) -> Json:
    """A JSON object, or lines such as `name: value`. A form with one field takes its value alone."""
    try:
        value = json.loads(text)
        if isinstance(value, dict):
            return value
    except (ValueError, RecursionError):
        pass
    lines = [line.partition(":") for line in text.splitlines() if line.strip()]
    answers = {name.strip(" -`"): value.strip() for name, _, value in lines}
    if lines and answers.keys() <= fields.keys():
        return {name: value_of(value, fields[name]) for name, value in answers.items() if value}
    if len(fields) == 1:
        return {name: value_of(text, field) for name, field in fields.items()}
    unknown = [name for name in answers if name not in fields] or ["the message"]
    problems = (f"{each[:60]}: is not the name of a question; they are: {', '.join(fields)}" for each in unknown)
    raise Invalid(RefusalCode.REPLY_INVALID, "this is not an answer to the questions", tuple(problems))
