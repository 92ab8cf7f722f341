"""What happened to a run, in order. The store numbers the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from askback.core.values import OpenValue


class EventType(OpenValue):
    RUN_CREATED = "run.created"
    RUN_STATE = "run.state"
    RUN_WARNING = "run.warning"
    TURN_STARTED = "turn.started"
    TURN_ENDED = "turn.ended"
    ASSISTANT_MESSAGE = "assistant.message"
    TOOL_STARTED = "tool.started"
    TOOL_ENDED = "tool.ended"
    INTERACTION_ASKED = "interaction.asked"
    INTERACTION_EXPIRING = "interaction.expiring"
    INTERACTION_CLOSED = "interaction.closed"
    USAGE = "usage"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event without a number yet."""

    type: EventType
    at: datetime
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    seq: int
    run_id: str
    type: EventType
    at: datetime
    data: dict[str, Any]
