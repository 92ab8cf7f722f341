"""Questions to the user: single ones and forms, their answers, and how they ended.

A form is several questions in one ask. Its fields have schemas of their answers, and some answers are secret. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

from askback.core.actors import Actor
from askback.core.secrecy import Secrecy

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict."""
FORM = "form"
"""The kind of an interaction with several questions."""
APPROVAL = "approval"
"""The kind of an interaction that is about a tool call. No engine can ask one by itself."""
MAX_FORM_FIELDS = 20

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}
_TYPES: Mapping[str, str] = {"confirm": "boolean", "boolean": "boolean", "number": "number", "integer": "integer"}


class InteractionOutcome(StrEnum):
    """How a question ended."""

    PENDING = "pending"
    ANSWERED = "answered"
    AUTO_DECIDED = "auto_decided"
    EXPIRED = "expired"
    CANCELED = "canceled"
    ABANDONED = "abandoned"
    """The run ended in another way, for example because its process was lost."""


class InboxOrder(StrEnum):
    """How a list of open questions is sorted."""

    OLDEST = "oldest"
    """The oldest question first."""
    DEADLINE = "deadline"
    """The nearest deadline first, then the oldest without a deadline."""


class AnsweredBy(StrEnum):
    """Whether a person answered, or the engine decided because nobody did."""

    USER = "user"
    AUTO_DECIDE = "auto_decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One question of a form. Its answer is the property `id` of the form's answer."""

    id: str
    prompt: str
    kind: str = "text"
    options: tuple[Any, ...] = ()
    default: Any = None
    required: bool = True
    response_schema: dict[str, Any] | None = None
    """What the engine asked for; in an interaction, the whole schema of the answer."""
    context: Any = None

    @property
    def secret(self) -> bool:
        """Whether its answer, or a part of it, must not be shown."""
        return secrecy(self.kind, self.response_schema).any


def option_label(option: Any) -> str:
    if isinstance(option, Mapping):
        return str(option.get("label", option.get("value", "")))
    return str(option)


def option_value(option: Any) -> Any:
    if isinstance(option, Mapping):
        return option.get("value", option.get("label"))
    return option


def heading(prompt: str, questions: Sequence[Any]) -> str:
    """A question for one line, such as that of a list: a form says how many questions it has."""
    return f"{prompt} ({len(questions)} questions)" if len(questions) > 1 else prompt


def secrecy(kind: str, schema: Mapping[str, Any] | None) -> Secrecy:
    """What must not be shown of an answer: by the question's kind, or by its schema."""
    return Secrecy(whole=True) if kind == "secret" else Secrecy.by(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an engine asks. `options` are texts, or objects with `label` and `value`."""

    prompt: str
    interaction_id: str | None = None
    kind: str = "text"
    options: tuple[Json, ...] = ()
    default: Json = None
    response_schema: Mapping[str, Json] | None = None
    context: Json = None
    questions: tuple[FormField, ...] = ()
    """The fields of a form, as the engine gave them. It has no other options, schema or default."""
    schema_ignored: bool = False
    """The engine gave a schema of a form that is not supported."""
    approval: bool = False
    """Askback asks it, because of a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One question to the user, with its answer once there is one."""

    interaction_id: str
    kind: str
    prompt: str
    attempt_number: int
    asked_at: datetime
    options: tuple[Json, ...] = ()
    default: Json = None
    response_schema: dict[str, Json] | None = None
    context: Json = None
    questions: tuple[FormField, ...] = ()
    """The fields of a form. `response_schema` and `default` are made of them."""
    outcome: InteractionOutcome = InteractionOutcome.PENDING
    response: Json = None
    answered_by: AnsweredBy | None = None
    answered_at: datetime | None = None
    answered_with: Actor | None = None
    """Who closed it, and through which channel. None while it is pending, and if it was closed by an earlier version."""

    @property
    def secrecy(self) -> Secrecy:
        """What must not be shown of the answer."""
        return secrecy(self.kind, self.response_schema)

    @property
    def secret(self) -> bool:
        """Whether the whole answer must not appear on a screen or in an event."""
        return self.secrecy.whole

    @property
    def closing(self) -> Closing:
        """How it was closed, without its content."""
        return Closing(interaction_id=self.interaction_id, outcome=self.outcome, answered_with=self.answered_with)

    @property
    def asks_secrets(self) -> bool:
        """Whether the answer, or a part of it, is secret."""
        return self.secrecy.any

    @property
    def heading(self) -> str:
        """The question for one line, such as that of a list or of a notification."""
        return heading(self.prompt, self.questions)

    @property
    def shown_response(self) -> Json:
        """The answer with null for everything secret in it."""
        return self.secrecy.shown(self.response)

    @property
    def secret_response(self) -> Json:
        """What is secret in the answer: all of it, or its secret fields; None if nothing is."""
        return self.secrecy.hidden(self.response)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How a question was closed, and by whom."""

    interaction_id: str
    outcome: InteractionOutcome
    answered_with: Actor | None = None

    def __str__(self) -> str:
        """For people, as the reason why it cannot be answered."""
        by = "" if self.answered_with is None else f" by {self.answered_with}"
        question = f"question {self.interaction_id!r}"
        match self.outcome:
            case InteractionOutcome.PENDING:
                return f"{question} is pending"
            case InteractionOutcome.ANSWERED:
                return f"{question} is no longer pending: it was answered{by}"
            case InteractionOutcome.AUTO_DECIDED:
                return f"{question} is no longer pending: its time was up, and the engine decided"
            case InteractionOutcome.EXPIRED:
                return f"{question} is no longer pending: its time was up"
            case InteractionOutcome.CANCELED:
                return f"{question} is no longer pending: the run was canceled{by}"
            case InteractionOutcome.ABANDONED:
                return f"{question} is no longer pending: the run has failed"
            case _:
                assert_never(self.outcome)


# The form as it is asked.


def complete_fields(fields: Sequence[FormField]) -> tuple[FormField, ...]:
    """The fields with unique ids, and with the schemas of their answers."""
    taken: set[str] = set()
    completed = []
    for number, field in enumerate(fields, 1):
        name = field.id if _ID.fullmatch(field.id) else f"question-{number}"
        while name in taken:
            name += "x"
        taken.add(name)
        schema = _schema(field)
        default = _default(field, schema)
        if default is not None:
            schema["default"] = default
        completed.append(replace(field, id=name, default=default, response_schema=schema))
    return tuple(completed)


def form_schema(fields: Sequence[FormField]) -> dict[str, Any]:
    """The schema of a form's answer. The fields are complete."""
    return {
        "type": "object",
        "properties": {field.id: field.response_schema for field in fields},
        "required": [field.id for field in fields if field.required],
        "additionalProperties": False,
    }


def form_default(fields: Sequence[FormField]) -> dict[str, Any] | None:
    """The answer if nobody answers; None unless every required field has a default."""
    known = {field.id: field.default for field in fields if field.default is not None}
    return known if known and all(field.id in known for field in fields if field.required) else None


def _schema(field: FormField) -> dict[str, Any]:
    shown: dict[str, Any] = {"title": field.prompt}
    if isinstance(field.context, str):
        shown["description"] = field.context
    kind = _TYPES.get(field.kind, "string")
    by_kind = {"type": kind, "minLength": 1} if kind == "string" and field.required else {"type": kind}
    schema = {**(field.response_schema or (_choice(field.options) if field.options else by_kind)), **shown}
    if field.secret:
        schema |= {"writeOnly": True, **({"format": "password"} if schema.get("type") == "string" else {})}
    return schema


def _choice(options: Sequence[Any]) -> dict[str, Any]:
    """Each value once: in a `oneOf`, a value that is there twice would match nothing."""
    offered = {json.dumps(option_value(option)): option for option in reversed(options)}
    distinct = list(reversed(offered.values()))
    values = [option_value(option) for option in distinct]
    typed: dict[str, Any] = {"type": "string"} if all(isinstance(value, str) for value in values) else {}
    if not any(isinstance(option, Mapping) for option in distinct):
        return {**typed, "enum": values}
    titled = [{"const": option_value(option), "title": option_label(option)} for option in distinct]
    for option, schema in zip(distinct, titled, strict=True):
        if about := isinstance(option, Mapping) and option.get("description"):
            schema["description"] = str(about)
    return {**typed, "oneOf": titled}


def _default(field: FormField, schema: Mapping[str, Any]) -> Any:
    """The default as a value that the field takes; None if it is none."""
    given = field.default
    if field.options and field.response_schema is None:
        named = (option_value(option) for option in field.options)
        by_label = (option_value(option) for option in field.options if option_label(option) == given)
        # As JSON: in Python, true equals 1.
        return next((value for value in named if json.dumps(value) == json.dumps(given)), next(by_label, None))
    match schema.get("type"):
        case "boolean":
            return given if isinstance(given, bool) else _FLAGS.get(str(given).lower())
        case "integer" | "number":
            return given if isinstance(given, int | float) and not isinstance(given, bool) else None
        case "array":
            return given if isinstance(given, list) else None
        case _:
            return given if isinstance(given, str) and given else None


# The size of a question.

MAX_QUESTION_BYTES = 64_000
"""The size limit of a question as JSON: prompt, options, schema, default, context, and the fields of a form."""
MAX_PROMPT_BYTES = 32_000

_CUT = "\n[… truncated: the question is too long]"


def bounded(question: Question) -> Question:
    """The question, shortened if it is too large.

    The prompt is cut, and marked as cut. Options and the fields of a form stay while there is room. Then the schema,
    the default and the context stay if they fit.
    """
    if question.approval:
        # A person must see all of a call; `core.approvals` limits its size.
        return question
    parts = [question.prompt, question.interaction_id, question.kind, list(question.options), question.response_schema]
    parts += [question.default, question.context, [asdict(each) for each in question.questions]]
    if _size(parts) <= MAX_QUESTION_BYTES and _size(question.prompt) <= MAX_PROMPT_BYTES:
        return question
    prompt = _cut(question.prompt)
    room = MAX_QUESTION_BYTES - _size([prompt, question.interaction_id, question.kind])
    options: list[Json] = []
    for option in question.options:
        if (room := room - _size(option)) < 0:
            break
        options.append(option)
    fields, room = _fitting_fields(question.questions, room)
    schema, room = _fitting(question.response_schema, room)
    default, room = _fitting(question.default, room)
    context, room = _fitting(question.context, room)
    is_hidden = secrecy(question.kind, schema).covers(secrecy(question.kind, question.response_schema))
    return replace(
        question,
        prompt=prompt,
        kind=question.kind if is_hidden else "secret",
        options=tuple(options),
        questions=fields,
        response_schema=schema,
        default=default,
        context=context,
    )


def _fitting_fields(fields: Sequence[FormField], room: int) -> tuple[tuple[FormField, ...], int]:
    """The first fields, while there is room. At least one stays: if it is too large, it becomes a plain question."""
    fitting: list[FormField] = []
    for field in fields:
        if (left := room - _size(asdict(field))) < 0:
            break
        fitting.append(field)
        room = left
    if fields and not fitting:
        plain = FormField(id=fields[0].id, prompt=_cut(fields[0].prompt), kind="text", required=fields[0].required)
        return (replace(plain, kind="secret") if fields[0].secret else plain,), 0
    return tuple(fitting), room


def _size(value: Json) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) + 1


def _fitting(value: Json, room: int) -> tuple[Json, int]:
    left = room - _size(value)
    return (value, left) if left >= 0 else (None, room)


def _cut(prompt: str) -> str:
    if _size(prompt) <= MAX_PROMPT_BYTES:
        return prompt
    text = prompt[:MAX_PROMPT_BYTES]
    while _size(text + _CUT) > MAX_PROMPT_BYTES:
        text = text[: len(text) * 9 // 10]
    return text + _CUT
