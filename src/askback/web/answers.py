"""How a question was closed, as text of the page: by whom, and the answer as its buttons and fields showed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from askback.core.actors import Channel
from askback.core.interactions import option_label, option_value
from askback.skills.field_values import choices, introduced
from askback.text.formatting import one_line
from askback.web.translations import Translations
from askback.wire import questions as question_wire
from askback.wire.base import Actor


def outcome_text(closed: question_wire.Interaction, texts: Translations) -> str:
    """How the question was closed; by whom, if that is a person."""
    named = None
    if closed.answered_with is not None and closed.answered_with.via != Channel.ASKBACK:
        named = texts.find(f"answered.outcome.{closed.outcome}.by")
    if named is None or closed.answered_with is None:
        return texts(f"answered.outcome.{closed.outcome}")
    return named.replace("{who}", who_text(closed.answered_with, texts))


def answer_text(closed: question_wire.Interaction, texts: Translations) -> str | None:
    """The answer in words; None if there is none or if it is secret."""
    match closed.response:
        case None:
            return texts("answered.secret") if closed.secrecy.any and closed.outcome == "answered" else None
        case Mapping() as fields:
            return _form_text(closed, fields, texts)
        case "yes" | "no" as word if closed.kind == "confirm" and not closed.options:
            return texts(f"form.{word}")
        case value:
            chosen = [option_label(each) for each in closed.options if _same(option_value(each), value)]
            return chosen[0] if chosen else _in_words(value, closed.response_schema, texts)


def _form_text(closed: question_wire.Interaction, answers: Mapping[str, Any], texts: Translations) -> str:
    prompts = {field.id: field.prompt for field in closed.questions}
    schemas = (closed.response_schema or {}).get("properties") or {}
    hidden = closed.secrecy.fields
    shown = {
        name: texts("answered.secret") if name in hidden else _in_words(value, schemas.get(name), texts)
        for name, value in answers.items()
    }
    return " · ".join(f"{introduced(prompts.get(name, name))} {value}" for name, value in shown.items())


def _in_words(value: Any, schema: Any, texts: Translations) -> str:
    """A value of this schema: by the title of the choice, if it is one."""
    schema = schema if isinstance(schema, Mapping) else {}
    if isinstance(value, list) and not any(isinstance(each, list | Mapping) for each in value):
        return ", ".join(_in_words(each, schema.get("items"), texts) for each in value)
    titles = [title for each, title in choices(schema) if _same(each, value)]
    if titles:
        return titles[0]
    if isinstance(value, bool):
        return texts("form.yes" if value else "form.no")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: in Python, true equals 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


_MOST_CHARACTERS = 80


def who_text(actor: Actor, texts: Translations) -> str:
    """`anna, by link`. A newer version may have other channels."""
    name = one_line(actor.name, _MOST_CHARACTERS)
    if actor.via == Channel.ASKBACK:
        return name
    return texts("frame.who", way=texts.find(f"frame.via.{actor.via}") or actor.via, who=name)
