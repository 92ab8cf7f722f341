"""What is observed of runs, as data, and how it is made from the stored changes of this instance's runs.

Metrics and traces are made from the same observations: a change of state, a step of a reply, and episodes, which have a
beginning and an end. They contain the run, which has nothing that its user typed but the summary; code that sends them
elsewhere chooses single fields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from askback.core.decisions import Decision
from askback.core.errors import ErrorCode
from askback.core.events import EventType
from askback.core.runs import Run, RunState, TurnKind, Usage
from askback.core.signals import TurnProcess


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
    """Whether `began` is known. A turn of an instance that died is observed only at its end."""
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


log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A turn in progress. `replied_at` is None if it does not answer a question."""

    began: datetime
    replied_at: datetime | None
    is_warm: bool = False
    """Whether it has the process of the turn before, so that none is started."""
    marks: list[Mark] = field(default_factory=list)


class RunObserver:
    """Implements `StoreObserver`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self.measure_commit: Callable[[float], None] | None = None
        """Gets the duration of every commit, in the thread that writes."""
        self._clock = clock
        self._listeners: list[Listener] = []
        self._turns: dict[str, _Turn] = {}

    def add(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def committed(self, seconds: float) -> None:
        if self.measure_commit is not None:
            self.measure_commit(seconds)

    def changed(self, before: Run | None, decision: Decision) -> None:
        """A change of this instance was stored. `before` is None for a new run."""
        if self._listeners:
            self._report(self._observe(before, decision))

    def spawned(self, run: Run) -> None:
        """The process of the run's turn has started."""
        if self._listeners:
            self._report(self._reached(run, TurnStep.PROCESS_STARTED, self._clock()))

    def printed(self, run: Run) -> None:
        """The engine has printed its first line in this turn."""
        if self._listeners:
            self._report(self._reached(run, TurnStep.FIRST_OUTPUT, self._clock()))

    def _report(self, observations: Iterator[Observation]) -> None:
        """What is only observed must never disturb a run."""
        try:
            for each in observations:
                for listener in self._listeners:
                    listener(each)
        except Exception:
            log.exception("a change of a run could not be measured")

    def _observe(self, before: Run | None, decision: Decision) -> Iterator[Observation]:
        run = decision.run
        if before is None or before.state is not run.state:
            yield StateChanged(run=run)
        if before is None:
            return
        if before.state is RunState.QUEUED and run.state is not RunState.QUEUED:
            yield _episode(EpisodeKind.QUEUED, before, before.updated_at, run.updated_at, run.state)
        if decision.closed is not None:
            asked, closed_at = decision.closed.asked_at, decision.closed.answered_at or run.updated_at
            yield _episode(EpisodeKind.WAITING, before, asked, closed_at, decision.closed.outcome)
        yield from self._observe_turn(before, decision)
        if run.state.final:
            yield Episode(
                kind=EpisodeKind.RUN,
                run=run,
                began=run.created_at,
                ended=run.finished_at or run.updated_at,
                outcome=run.state,
                error=None if run.error is None else run.error.code,
            )

    def _observe_turn(self, before: Run, decision: Decision) -> Iterator[Observation]:
        run, usage = decision.run, decision.usage
        for event in decision.events:
            match event.type:
                case EventType.TURN_ENDED:
                    yield self._ended(before, decision, event.data["outcome"], usage)
                case EventType.TURN_STARTED:
                    is_warm = event.data.get("process") == TurnProcess.WARM
                    replied_at = _replied_at(before, decision)
                    self._turns[run.id] = _Turn(began=event.at, replied_at=replied_at, is_warm=is_warm)
                case _:
                    pass
        if run.state is not RunState.RUNNING and run.id in self._turns:
            # A canceled turn has no separate event.
            yield self._ended(before, decision, run.state, usage)

    def _ended(self, before: Run, decision: Decision, outcome: str, usage: Usage | None) -> Episode:
        turn = self._turns.pop(before.id, None)
        error = decision.run.error if outcome == "error" else None
        return Episode(
            kind=EpisodeKind.TURN,
            run=before,
            # Without memory of the turn, its last known change is the closest moment.
            began=before.updated_at if turn is None else turn.began,
            ended=decision.run.updated_at,
            outcome=outcome,
            exact=turn is not None,
            marks=() if turn is None else tuple(turn.marks),
            usage=usage,
            error=None if error is None else error.code,
        )

    def _reached(self, run: Run, step: TurnStep, at: datetime) -> Iterator[Observation]:
        turn = self._turns.get(run.id)
        if turn is None or (turn.is_warm and step is TurnStep.PROCESS_STARTED):
            return
        turn.marks.append(Mark(step=step, at=at))
        if turn.replied_at is not None:
            yield ReplyReached(run=run, step=step, seconds=max(0.0, (at - turn.replied_at).total_seconds()))


def _episode(kind: EpisodeKind, run: Run, began: datetime, ended: datetime, outcome: str) -> Episode:
    return Episode(kind=kind, run=run, began=began, ended=ended, outcome=outcome)


def _replied_at(before: Run, decision: Decision) -> datetime | None:
    """A run that was queued by a reply has not changed since. A turn that is started again was interrupted."""
    if decision.closed is not None:
        return decision.run.updated_at
    order = before.next_turn
    is_reply = before.state is RunState.QUEUED and order.kind is TurnKind.REPLY
    return before.updated_at if is_reply and before.attempt_number < order.attempt_number else None
