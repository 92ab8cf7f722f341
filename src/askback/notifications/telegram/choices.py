"""Which questions can be answered in a chat, which of their answers get a button, and the data of a button."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from askback.core.interactions import Interaction, Json, option_label, option_value
from askback.notifications.telegram.texts import Texts
from askback.questions.typed_answers import is_confirmation
from askback.skills.field_values import choices, type_of

_NOT_IN_CHAT = ("secret", "file", "form")
_DIGEST_CHARS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """An answer that can be tapped."""

    label: str
    answer: Json


def in_chat(asked: Interaction) -> bool:
    """Whether a message can answer it. A secret must never be in a chat; files and forms need a page."""
    is_object = (asked.response_schema or {}).get("type") == "object"
    return not (
        asked.asks_secrets or asked.questions or asked.kind in _NOT_IN_CHAT or (is_object and not asked.options)
    )


def choices_of(asked: Interaction, texts: Texts) -> Sequence[Choice]:
    """The answers with a button, in the order of their numbers."""
    if not in_chat(asked):
        return ()
    if asked.options:
        return [Choice(label=option_label(each), answer=option_value(each)) for each in asked.options]
    if is_confirmation(asked):
        return (Choice(label=texts("yes"), answer="yes"), Choice(label=texts("no"), answer="no"))
    schema = asked.response_schema or {}
    if type_of(schema) == "boolean":
        return (Choice(label=texts("yes"), answer=True), Choice(label=texts("no"), answer=False))
    if type_of(schema) == "array":
        return ()
    return [Choice(label=title, answer=value) for value, title in choices(schema)]


def label_of(asked: Interaction, answer: Json, texts: Texts) -> str | None:
    """The label of the choice that was made, if it was one."""
    wanted = json.dumps(answer, sort_keys=True)
    return next(
        (each.label for each in choices_of(asked, texts) if json.dumps(each.answer, sort_keys=True) == wanted), None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ButtonKey:
    """What a button sends when it is tapped, in at most 64 bytes. It grants nothing: the sender must be allowed to answer."""

    run_id: str
    question: str
    """A digest: an engine chooses the ids of its questions."""
    index: int

    @classmethod
    def of(cls, run_id: str, interaction_id: str, index: int) -> ButtonKey:
        return cls(run_id=run_id, question=_digest(interaction_id), index=index)

    @classmethod
    def parse(cls, data: str | None) -> ButtonKey | None:
        match (data or "").split(":"):
            case [run_id, question, index] if run_id and index.isascii() and index.isdecimal() and len(index) < 6:
                return cls(run_id=run_id, question=question, index=int(index))
        return None

    def belongs_to(self, asked: Interaction) -> bool:
        return self.question == _digest(asked.interaction_id)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.question}:{self.index}"


def _digest(interaction_id: str) -> str:
    return hashlib.sha256(interaction_id.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_CHARS]
