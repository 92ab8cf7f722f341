"""Questions to the user, and how they ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, assert_never

from askback.core.actors import Actor
from askback.core.forms import FormField, heading, secrecy
from askback.core.forms import option_label as option_label
from askback.core.forms import option_value as option_value
from askback.core.secrecy import Secrecy

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict."""


class InteractionOutcome(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    AUTO_DECIDED = "auto_decided"
    EXPIRED = "expired"
    CANCELED = "canceled"
    ABANDONED = "abandoned"
    """The run ended in another way, for example because its process was lost."""


class InboxOrder(StrEnum):
    OLDEST = "oldest"
    """The oldest question first."""
    DEADLINE = "deadline"
    """The nearest deadline first, then the oldest without a deadline."""


class AnsweredBy(StrEnum):
    USER = "user"
    AUTO_DECIDE = "auto_decide"


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


MAX_QUESTION_BYTES = 64_000
"""The size limit of a question as JSON: prompt, options, schema, default, context, and the fields of a form."""
MAX_PROMPT_BYTES = 32_000

_CUT = "\n[… truncated: the question is too long]"


def bounded(question: Question) -> Question:
    """The question, shortened if it is too large.

    The prompt is cut, and marked as cut. Options and the fields of a form are kept while there is room. Then the schema,
    the default and the context are kept if they fit.
    """
    if _size(_parts(question)) <= MAX_QUESTION_BYTES and _size(question.prompt) <= MAX_PROMPT_BYTES:
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
    """The first fields, while there is room. A form keeps at least one: too large, it becomes a plain question."""
    kept: list[FormField] = []
    for field in fields:
        if (left := room - _size(asdict(field))) < 0:
            break
        kept.append(field)
        room = left
    if fields and not kept:
        plain = FormField(id=fields[0].id, prompt=_cut(fields[0].prompt), kind="text", required=fields[0].required)
        return (replace(plain, kind="secret") if fields[0].secret else plain,), 0
    return tuple(kept), room


def _parts(question: Question) -> list[Json]:
    rest = [question.response_schema, question.default, question.context, [asdict(each) for each in question.questions]]
    return [question.prompt, question.interaction_id, question.kind, list(question.options), *rest]


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
