"""Questions that engines ask through a protocol: MCP elicitation forms, and questionnaires of several questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from askback.core.interactions import Json, Question, option_label, option_value
from askback.core.secrecy import Secrecy
from askback.engines.base import Reply
from askback.engines.protocols.json_lines import object_at, text_at
from askback.questions.schemas import flat_schema, marked_secret, options_of

DECLINED: Mapping[str, Json] = {"action": "decline"}
_MAX_ASKED = 100
"""The most questions that a program may have open at a time."""


class Asking(Protocol):
    """A question for the user. Turns the answer into the response to the program's request."""

    @property
    def question(self) -> Question: ...

    def answer(self, reply: Reply | None) -> Mapping[str, Json]: ...


class PendingQuestions:
    """The questions that a program waits for, oldest first, by the ids of its requests."""

    def __init__(self) -> None:
        self._asked: deque[tuple[Json, Asking]] = deque()

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def is_full(self) -> bool:
        return len(self._asked) >= _MAX_ASKED

    @property
    def oldest(self) -> Question:
        return self._asked[0][1].question

    def add(self, request_id: Json, asking: Asking) -> None:
        self._asked.append((request_id, asking))

    def answer(self, reply: Reply | None) -> tuple[Json, Mapping[str, Json]]:
        """Remove the oldest question. Returns the id of its request and the response to it."""
        request_id, asking = self._asked.popleft()
        return request_id, asking.answer(reply)

    def withdraw(self, request_id: Json) -> None:
        """Remove a question that the program no longer waits for."""
        self._asked = deque(pending for pending in self._asked if pending[0] != request_id)

    def clear(self) -> None:
        self._asked.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A question, and the schema of the form that its answer fills in."""

    question: Question
    schema: Mapping[str, Json]

    @property
    def fields(self) -> Mapping[str, Any]:
        return object_at(self.schema, "properties")

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        """The response to the program. If nobody decided, the defaults are used, provided that they fill the form."""
        content = None
        if reply is not None:
            content = self._filled(reply.response) if reply.answered else self._defaults()
        return DECLINED if content is None else {"action": "accept", "content": content}

    def _filled(self, response: Json) -> Mapping[str, Json] | None:
        if isinstance(response, Mapping):
            return {name: value for name, value in response.items() if name in self.fields}
        if len(self.fields) != 1 or response is None:
            return None
        # The label of an option stands for its value.
        named = (option_value(option) for option in self.question.options if option_label(option) == response)
        return dict.fromkeys(self.fields, next(named, response))

    def _defaults(self) -> Mapping[str, Json] | None:
        required = self.schema.get("required", ())
        filled = {name: _default(field) for name, field in self.fields.items()}
        known = {name: value for name, value in filled.items() if value is not None}
        return known if known and all(name in known for name in required) else None


def read_form(params: Mapping[str, Any]) -> Form | None:
    """The form in a request; None if it cannot be shown to a user, such as a URL to open."""
    schema, prompt = flat_schema(params.get("requestedSchema")), text_at(params, "message")
    if text_at(params, "mode") not in ("", "form") or schema is None or not prompt.strip():
        return None
    fields = list(schema["properties"].values())
    # A choice has no schema that could say that it is secret.
    is_choice = len(fields) == 1 and not Secrecy.by(schema).any
    options = _options(fields[0]) if is_choice else ()
    if not options:
        return Form(question=Question(prompt=prompt, response_schema=schema), schema=schema)
    question = Question(prompt=prompt, kind="choice", options=options, default=fields[0].get("default"))
    return Form(question=question, schema=schema)


def _options(field: Mapping[str, Any]) -> tuple[Json, ...]:
    """The options of a single-choice field."""
    if field["type"] == "boolean":
        return ({"label": "yes", "value": True}, {"label": "no", "value": False})
    if titled := field.get("oneOf"):
        return tuple({"label": each.get("title", each["const"]), "value": each["const"]} for each in titled)
    values, names = field.get("enum", ()), field.get("enumNames", ())
    if len(names) != len(values):
        return tuple(values)
    return tuple({"label": name, "value": value} for value, name in zip(values, names, strict=True))


def _default(field: Mapping[str, Any]) -> Json:
    """The value if nobody answers: the default, or else the first option, which is the recommended one."""
    options = () if field["type"] == "boolean" else _options(field)
    return field.get("default", option_value(options[0]) if options else None)


Answer = str | list[str]
_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question of a questionnaire. `key` is the property of its answer in a form with several questions."""

    key: str
    header: str
    text: str
    options: tuple[Mapping[str, Json], ...]
    several: bool
    secret: bool = False

    @property
    def labels(self) -> list[str]:
        return [str(option["label"]) for option in self.options]

    @property
    def field(self) -> dict[str, Json]:
        """The question as a form field."""
        schema: dict[str, Json] = {"type": "string", "title": self.header, "description": self.text}
        if self.several:
            schema |= {"type": "array", "items": {"type": "string", "enum": self.labels}}
        elif self.options:
            schema["enum"] = self.labels
        return marked_secret(schema) if self.secret else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Questionnaire:
    items: tuple[Item, ...]

    @property
    def question(self) -> Question:
        """A lone single-choice or text question is asked directly; anything else becomes a form."""
        first = self.items[0]
        if len(self.items) == 1 and not first.several:
            kind = "secret" if first.secret else "choice" if first.options else "text"
            return Question(prompt=first.text, kind=kind, options=first.options)
        fields = {item.key: item.field for item in self.items}
        schema = {"type": "object", "properties": fields, "required": list(fields)}
        return Question(prompt="\n\n".join(item.text for item in self.items), response_schema=schema)

    def answers(self, reply: Reply | None) -> list[Answer] | None:
        """The answers in order, or None if there are none. If nobody decided, the first options are chosen."""
        if reply is None:
            return None
        if not reply.answered:
            chosen = [[item.labels[0]] if item.several else item.labels[0] for item in self.items if item.options]
            return chosen if len(chosen) == len(self.items) else None
        if isinstance(reply.response, Mapping) and self.question.response_schema is not None:
            return [_answer(reply.response.get(item.key), item) for item in self.items]
        return [_answer(reply.response, item) for item in self.items]


def joined(answer: Answer) -> str:
    return answer if isinstance(answer, str) else ", ".join(answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolQuestions:
    """A call of a program's own ask tool."""

    asked: Questionnaire
    respond: Callable[[Sequence[Answer] | None], Mapping[str, Json]]
    """Turns the answers into the response to the call; None stands for no answers."""
    interaction_id: str | None = None

    @property
    def question(self) -> Question:
        question = self.asked.question
        return question if self.interaction_id is None else replace(question, interaction_id=self.interaction_id)

    def answer(self, reply: Reply | None) -> Mapping[str, Json]:
        return self.respond(self.asked.answers(reply))


def read_questionnaire(listed: Json) -> Questionnaire | None:
    """The questions of a call; None if it has none, or one that cannot be shown."""
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
    secret = asked.get("isSecret") is True
    item = Item(key=f"answer_{at}", header=header, text=text, options=options, several=several, secret=secret)
    return item if text else None


def _answer(value: Json, item: Item) -> Answer:
    """The answer to an item: a list for a multiple choice, otherwise a string."""
    texts = [_text(each) for each in value] if isinstance(value, list) else [_text(value)]
    return texts if item.several else ", ".join(texts)


def _text(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
