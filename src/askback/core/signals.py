"""What can happen to a run. The signals of a worker carry the epoch under which it holds the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from askback.core.errors import RunError, RunWarning
from askback.core.interactions import Json
from askback.core.outcomes import TurnOutcome
from askback.core.runs import Handle, ProcessIdentity, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAcquired:
    worker: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    epoch: int
    process: ProcessIdentity
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleNamed:
    epoch: int
    handle: Handle
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The engine's turn is over; of a resumable run nothing lives any more."""

    epoch: int
    outcome: TurnOutcome
    at: datetime
    usage: Usage | None = None
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """`owner` is who carries the run on from here."""

    interaction_id: str
    response: Json
    owner: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    interaction_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTreeEnded:
    """Nothing of the run's engine lives any more, after a cancel was asked for or a deadline had passed."""

    epoch: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLost:
    """The turn was cut off on our side, and nothing of it lives. A planned stop does not count against the run.

    `why` says by what, for people.
    """

    epoch: int
    at: datetime
    counted: bool = True
    why: str = "the program that carried it out was gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLost:
    """The process that a sticky run waits with is gone. `error` says why, where that is known."""

    epoch: int
    at: datetime
    error: RunError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Another program carries the run on: the one that it was `left_by` is dead."""

    owner: str
    left_by: str
    at: datetime


Signal = (
    SlotAcquired
    | ProcessStarted
    | HandleNamed
    | TurnEnded
    | Replied
    | DeadlinePassed
    | CancelRequested
    | ProcessTreeEnded
    | TurnLost
    | ProcessLost
    | Adopted
)
