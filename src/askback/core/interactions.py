"""Questions to the user and how they ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict."""


class InteractionOutcome(StrEnum):
    PENDING = "pending"
    ANSWERED = "answered"
    AUTO_DECIDED = "auto_decided"
    EXPIRED = "expired"
    CANCELED = "canceled"


class AnsweredBy(StrEnum):
    USER = "user"
    AUTO_DECIDE = "auto_decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an engine wants to know. `options` are texts, or objects with `label` and `value`."""

    prompt: str
    interaction_id: str | None = None
    kind: str = "text"
    options: tuple[Json, ...] = ()
    default: Json = None
    response_schema: Mapping[str, Json] | None = None
    context: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One question to the user, with its reply once there is one."""

    interaction_id: str
    kind: str
    prompt: str
    attempt_number: int
    asked_at: datetime
    options: tuple[Json, ...] = ()
    default: Json = None
    response_schema: dict[str, Json] | None = None
    context: Json = None
    outcome: InteractionOutcome = InteractionOutcome.PENDING
    response: Json = None
    answered_by: AnsweredBy | None = None
    answered_at: datetime | None = None

    @property
    def secret(self) -> bool:
        """The reply must not be shown on a screen or in an event."""
        return self.kind == "secret"


def option_label(option: Json) -> str:
    if isinstance(option, Mapping):
        return str(option.get("label", option.get("value", "")))
    return str(option)


def option_value(option: Json) -> Json:
    if isinstance(option, Mapping):
        return option.get("value", option.get("label"))
    return option
