"""What can happen to a run. The signals of a worker carry the epoch under which it holds the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from askback.core.actors import ASKBACK, Actor
from askback.core.errors import Limit, RunError, RunWarning
from askback.core.interactions import Json
from askback.core.outcomes import TurnOutcome
from askback.core.permissions import Ruling
from askback.core.runs import Handle, ProcessIdentity, Usage


class TurnProcess(StrEnum):
    """The process of a turn that takes a slot."""

    NEW = "new"
    WARM = "warm"
    """The process of the run's last turn, which was still alive."""
    PREWARMED = "prewarmed"
    """One that was started before the run was submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAcquired:
    """A worker has claimed the queued run, and starts its next turn."""

    worker: str
    at: datetime
    process: TurnProcess = TurnProcess.NEW


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    """The engine's process of the turn has started."""

    epoch: int
    process: ProcessIdentity
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleNamed:
    """The engine has named its session, so that it can be resumed."""

    epoch: int
    handle: Handle
    at: datetime
    process: ProcessIdentity | None = None
    """The process that named it, unless it is stored already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided:
    """The engine wants to make a call of a tool, and gets this decision once it is stored. `rule` says why.

    `uses_approval`: the call starts because a person has approved it, which is used up by that.
    """

    epoch: int
    tool: str
    digest: str
    decision: Ruling
    rule: str
    at: datetime
    uses_approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """The engine's turn is over. All processes of a resumable run have ended, except one that is kept warm."""

    epoch: int
    outcome: TurnOutcome
    at: datetime
    usage: Usage | None = None
    warnings: tuple[RunWarning, ...] = ()
    archive_key: str | None = None
    """The key of the stored archive with the run's files as the turn left them. None: there is none."""
    process_alive: bool = False
    """Whether a process of the turn is alive, for the next turn. The run must not be over before it has ended."""
    used_tools: bool = False
    """Whether a tool was started in it, so that it has perhaps changed something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """Somebody has answered the pending question. From now on, `owner` executes the run."""

    interaction_id: str
    response: Json
    owner: str
    at: datetime
    by: Actor = ASKBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineNear:
    """It is time to announce the deadline of a question. Each is announced once."""

    interaction_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinePassed:
    """The deadline of a question has passed without an answer."""

    interaction_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitKnown:
    """A turn of a queued run would only meet this limit, which another run with the same sign-in has met."""

    limit: Limit
    until: datetime
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkEnded:
    """A parked run may be executed again: its time has come or, with `by`, somebody wants it now."""

    at: datetime
    by: Actor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody wants the run to end."""

    at: datetime
    by: Actor = ASKBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTreeEnded:
    """All processes of the run have ended, after a cancel request or a deadline."""

    epoch: int
    at: datetime
    warnings: tuple[RunWarning, ...] = ()
    archive_key: str | None = None
    """As in `TurnEnded`; None: the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLost:
    """Askback, not the engine, interrupted the turn, and no process of it is alive. `why` is for people.

    A planned stop is not `counted` as a restart.
    """

    epoch: int
    at: datetime
    counted: bool = True
    why: str = "the program that executed it had died"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLost:
    """The resident process of a waiting run has ended. `error` says why, if that is known."""

    epoch: int
    at: datetime
    error: RunError | None = None
    warnings: tuple[RunWarning, ...] = ()
    archive_key: str | None = None
    """As in `TurnEnded`; None: the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesStored:
    """The files of the run, which were only on the machine of its last turn, are stored now. `epoch` is that of the turn."""

    epoch: int
    archive_key: str
    """As in `TurnEnded`."""
    at: datetime
    warnings: tuple[RunWarning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """Another instance becomes the owner, because the previous one (`left_by`) has died."""

    owner: str
    left_by: str
    at: datetime


Signal = (
    SlotAcquired
    | ProcessStarted
    | HandleNamed
    | CallDecided
    | TurnEnded
    | Replied
    | DeadlineNear
    | DeadlinePassed
    | LimitKnown
    | ParkEnded
    | CancelRequested
    | ProcessTreeEnded
    | TurnLost
    | ProcessLost
    | FilesStored
    | Adopted
)
