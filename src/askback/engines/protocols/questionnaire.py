"""A model's call of its program's ask tool: a few questions, each with a header and options, in one call.

The programs differ in how the answers are handed back, not in what is asked; so the answers are given here in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from askback.core.interactions import Json, Question
from askback.engines.answers.questions import cut, options_of
from askback.engines.base import Reply
from askback.engines.protocols.json_lines import text_at

Answer = str | list[str]
_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One of the questions. `key` is what an answer to it is called in a reply to several."""

    key: str
    header: str
    text: str
    options: tuple[Mapping[str, Json], ...]
    several: bool

    @property
    def labels(self) -> list[str]:
        return [str(option["label"]) for option in self.options]

    @property
    def field(self) -> dict[str, Json]:
        """The field of a form that asks it."""
        described: dict[str, Json] = {"title": self.header, "description": self.text}
        if not self.options:
            return {"type": "string", **described}
        if self.several:
            return {"type": "array", **described, "items": {"type": "string", "enum": self.labels}}
        return {"type": "string", **described, "enum": self.labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Questionnaire:
    items: tuple[Item, ...]

    @property
    def question(self) -> Question:
        """One question with a single choice, or a text, is asked as it is; all else is a form."""
        first = self.items[0]
        if len(self.items) == 1 and not first.several:
            kind = "choice" if first.options else "text"
            return Question(prompt=cut(first.text), kind=kind, options=first.options)
        fields = {item.key: item.field for item in self.items}
        schema = {"type": "object", "properties": fields, "required": list(fields)}
        return Question(prompt=cut("\n\n".join(item.text for item in self.items)), response_schema=schema)

    def answers(self, reply: Reply | None) -> list[Answer] | None:
        """An answer to each, in order; None when there is none to give. What nobody decided is the first option."""
        if reply is None:
            return None
        if not reply.decided:
            chosen = [[item.labels[0]] if item.several else item.labels[0] for item in self.items if item.options]
            return chosen if len(chosen) == len(self.items) else None
        if isinstance(reply.response, Mapping) and self.question.response_schema is not None:
            return [_answer(reply.response.get(item.key), item) for item in self.items]
        return [_answer(reply.response, item) for item in self.items]


def read_questionnaire(listed: Json) -> Questionnaire | None:
    """The questions of a call; None when there is not one that could be shown."""
    questions = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    items = tuple(item for at, each in enumerate(questions[:_MOST], 1) if (item := _item(each, at)) is not None)
    return Questionnaire(items=items) if items and len(items) == len(listed) else None


def _item(asked: Mapping[str, Any], at: int) -> Item | None:
    text = text_at(asked, "question").strip()
    options = tuple(
        {**option, "value": option["label"]}
        for option in options_of(asked.get("options"))
        if isinstance(option, dict) and isinstance(option.get("label"), str)
    )
    several = bool(options) and asked.get("multiSelect") is True
    header = text_at(asked, "header").strip() or f"Question {at}"
    return Item(key=f"answer_{at}", header=header, text=text, options=options, several=several) if text else None


def _answer(value: Json, item: Item) -> Answer:
    """What was replied, in the form that the item wants."""
    texts = [_text(each) for each in value] if isinstance(value, list) else [_text(value)]
    return texts if item.several else ", ".join(texts)


def _text(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
