"""A question as an elicitation form or as a message, and what an answer to it means."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from acp.schema import ElicitationSchema
from pydantic import ValidationError

from askback.client import Interaction as ShownInteraction
from askback.core.errors import Invalid, RefusalCode
from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.questions.typed_answers import (
    answer_problems,
    as_flag,
    confirmation,
    is_confirmation,
    read_answer,
    value_of,
)
from askback.skills.field_values import describe, kind_of, readable

_ANSWER = "answer"
_OWN_WORDS = "own_words"
_MAX_TITLE = 300


def stored(shown: ShownInteraction) -> Interaction:
    """A question of the API as the rules for answers take it."""
    return msgspec.convert(msgspec.to_builtins(shown), Interaction)


# As a form.


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    schema: ElicitationSchema
    read: Callable[[Mapping[str, Json]], Json]
    """The answer in what the client sent; None if there is none."""


def form_of(asked: Interaction) -> Form | None:
    """The question as a form; None if the forms of the protocol cannot express it, or must not: a secret."""
    if asked.asks_secrets:
        return None
    document, read = _form(asked)
    try:
        return Form(schema=ElicitationSchema.model_validate(document), read=read)
    except ValidationError:
        return None


def _form(asked: Interaction) -> tuple[dict[str, Any], Callable[[Mapping[str, Json]], Json]]:
    if asked.options:
        return _options_form(asked)
    schema = asked.response_schema
    if schema is not None and schema.get("type") == "object":
        return schema, lambda content: {name: value for name, value in content.items() if value is not None}
    title = asked.prompt[:_MAX_TITLE]
    if is_confirmation(asked):
        flag = {"type": "boolean", "title": title, "default": as_flag(asked.default)}
        return _one(flag), lambda content: confirmation(given := content.get(_ANSWER)) or given
    default = {} if asked.default is None else {"default": asked.default}
    return _one({"title": title, **(schema or {"type": "string"}), **default}), lambda content: content.get(_ANSWER)


def _one(field: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in field.items() if value is not None}
    return {"type": "object", "properties": {_ANSWER: kept}, "required": [_ANSWER]}


def _options_form(asked: Interaction) -> tuple[dict[str, Any], Callable[[Mapping[str, Json]], Json]]:
    """A choice, and a text for other answers unless the schema forbids them."""
    names = {_option_name(number, asked): option_value(each) for number, each in enumerate(asked.options, 1)}
    choice: dict[str, Any] = {"type": "string", "title": asked.prompt[:_MAX_TITLE]}
    choice["oneOf"] = [{"const": name, "title": name} for name in names]
    default = next((name for name, value in names.items() if asked.default in (value, name)), None)
    if asked.default is not None and default is not None:
        choice["default"] = default
    if asked.response_schema is not None:
        return _one(choice), lambda content: names.get(str(content.get(_ANSWER)))
    own = {"type": "string", "title": "Or answer in your own words"}
    document = {"type": "object", "properties": {_ANSWER: choice, _OWN_WORDS: own}}
    return document, lambda content: content.get(_OWN_WORDS) or names.get(str(content.get(_ANSWER)))


def _option_name(number: int, asked: Interaction) -> str:
    """The label, with its number if another option has the same."""
    labels = [option_label(each) for each in asked.options]
    label = labels[number - 1]
    return label if labels.count(label) == 1 else f"{number}. {label}"


def form_text(asked: Interaction) -> str:
    """What a form or a page is about: the question, and what the skill says about it."""
    return "\n\n".join([asked.prompt.strip(), *([readable(asked.context)] if asked.context else [])])


# As a message.


def question_text(asked: Interaction) -> str:
    return "\n".join(_lines(asked))


def _lines(asked: Interaction) -> Iterator[str]:
    yield f"**{asked.prompt.strip()}**"
    if asked.context:
        yield f"\n{readable(asked.context)}"
    yield ""
    for number, option in enumerate(asked.options, 1):
        yield f"{number}. {_option_line(asked, option)}"
    for name, field, required in _fields(asked):
        title = field.get("title") or name
        shown = describe({**field, "description": ""})
        yield f"- `{name}`: {title} ({shown}{'' if required else ', optional'})"
    if hint := _how(asked):
        yield f"\n{hint}"


def _option_line(asked: Interaction, option: Json) -> str:
    about = option.get("description") if isinstance(option, Mapping) else None
    is_default = asked.default is not None and asked.default in (option_value(option), option_label(option))
    return option_label(option) + (f": {about}" if about else "") + (" (default)" if is_default else "")


def _how(asked: Interaction) -> str:
    """How to answer."""
    schema = asked.response_schema
    if asked.asks_secrets:
        return ""
    if asked.options:
        return "Reply with a number" + (", or in your own words." if schema is None else ".")
    if is_confirmation(asked):
        return "Reply with yes or no."
    if _fields(asked):
        return "Reply with one line for each question, such as `name: value`, or with a JSON object."
    default = "" if asked.default is None else f" Suggested: {readable(asked.default, schema)}."
    return f"Reply with: {kind_of(schema)}.{default}" if schema is not None else f"Reply with your answer.{default}"


def _fields(asked: Interaction) -> list[tuple[str, Mapping[str, Any], bool]]:
    """The fields of a form: name, schema, and whether it must be answered."""
    schema = asked.response_schema or {}
    if schema.get("type") != "object" or asked.options:
        return []
    required = schema.get("required") or []
    return [(name, field, name in required) for name, field in (schema.get("properties") or {}).items()]


def answer_text(asked: ShownInteraction) -> str:
    """An answer as a person reads it, without its secrets."""
    return "(not shown)" if asked.secret else readable(asked.response, asked.response_schema)


# Typed answers.


def read_reply(asked: Interaction, text: str) -> Json:
    """What a typed message means. Raises `Invalid` if it cannot be an answer."""
    fields = {name: field for name, field, _ in _fields(asked)}
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
