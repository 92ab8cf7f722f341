"""What happened to a run, in order. The store numbers the events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from askback.core.values import OpenValue


class EventType(OpenValue):
    """What happened to a run."""

    RUN_CREATED = "run.created", "The run was submitted; `data` is the request without its secrets."
    RUN_STATE = "run.state", "The run changed its state, `from` and `to`; with `error` if it failed."
    RUN_WARNING = "run.warning", "Something is worth knowing, with its code."
    TURN_STARTED = "turn.started", "The engine starts, or continues in its process."
    TURN_ENDED = "turn.ended", "The turn is over, with its `outcome`: `final`, `ask_user`, `error` or `interrupted`."
    ASSISTANT_MESSAGE = "assistant.message", "The engine wrote a whole message."
    TOOL_STARTED = "tool.started", "The engine called a tool."
    TOOL_ENDED = "tool.ended", "A tool returned, `ok` or not."
    PERMISSION_DECIDED = (
        "permission.decided",
        "A tool call of the engine met the run's `permissions`: its `tool`, the `digest` of its input, the `decision` and why.",
    )
    INTERACTION_ASKED = "interaction.asked", "The run has a question."
    INTERACTION_EXPIRING = "interaction.expiring", "The deadline of the question is near. Once for each question."
    INTERACTION_CLOSED = "interaction.closed", "The question is closed: who answered what, or why nobody did."
    RUN_PARKED = "run.parked", "A limit of the model provider was met: the turn is executed again at `not_before`."
    RUN_RESUMED = "run.resumed", "A parked run is queued again, at its time or, with `by`, because somebody wants it."
    USAGE = "usage", "What the turn has used, in all and by model. Null: the engine does not report it."


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
