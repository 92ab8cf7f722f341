"""What is observed of runs, as data: a change of state, a step of a reply, and episodes, which have a beginning and an end.

Metrics and traces are made from the same observations. They contain the run, which has nothing that its user typed but
the summary; code that sends them elsewhere chooses single fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from askback.core.errors import ErrorCode
from askback.core.runs import Run, Usage


class EpisodeKind(StrEnum):
    RUN = "run"
    QUEUED = "queued"
    TURN = "turn"
    WAITING = "waiting"


class TurnStep(StrEnum):
    """What happens in a turn before there is a result."""

    PROCESS_STARTED = "process started"
    FIRST_OUTPUT = "first output"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    step: TurnStep
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A run, or a part of it, that is over. `run` is as it was in the episode; that of a whole run is final."""

    kind: EpisodeKind
    run: Run
    began: datetime
    ended: datetime
    outcome: str
    exact: bool = True
    """Whether `began` is known. A turn of a program that died is observed only at its end."""
    marks: tuple[Mark, ...] = ()
    usage: Usage | None = None
    error: ErrorCode | None = None

    @property
    def seconds(self) -> float:
        """The clock may have been set back."""
        return max(0.0, (self.ended - self.began).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyReached:
    """How long it took from a reply to a step of its turn."""

    run: Run
    step: TurnStep
    seconds: float


Observation = Episode | StateChanged | ReplyReached
Listener = Callable[[Observation], None]
"""Called in the event loop. Must be quick."""
