"""What is observed of a run, from its decisions alone: each episode once, with its true beginning and end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from askback.core.lifecycle import create
from askback.core.runs import ProfileKind, Run, RunState, TurnKind, TurnOrder, Usage
from askback.core.signals import (
    CancelRequested,
    ProcessTreeEnded,
    Replied,
    Signal,
    SlotAcquired,
    TurnLost,
    TurnProcess,
)
from askback.telemetry.run_observer import (
    Episode,
    EpisodeKind,
    Observation,
    ReplyReached,
    RunObserver,
    StateChanged,
    TurnStep,
)
from support.specimens import (
    ASKING,
    BROKEN,
    CREATED,
    DONE,
    NOW,
    OWNER,
    WRONG,
    decision,
    ended,
    queued_run,
    running_run,
    waiting_run,
)

REPLY = Replied(interaction_id="colour", response="red", owner=OWNER, at=NOW)


class Watching:
    """Applies signals to a run, and keeps what is observed."""

    def __init__(self, run: Run) -> None:
        self.seen: list[Observation] = []
        self.run = run
        self.now = NOW
        self.observer = RunObserver(lambda: self.now)
        self.observer.add(self.seen.append)

    def then(self, signal: Signal) -> Watching:
        made = decision(self.run, signal)
        self.observer.changed(self.run, made)
        self.run = made.run
        return self

    def spawned(self, at_sec: float) -> None:
        self.now = NOW + timedelta(seconds=at_sec)
        self.observer.spawned(self.run)

    @property
    def episodes(self) -> list[tuple[str, str]]:
        return [(each.kind, each.outcome) for each in self.seen if isinstance(each, Episode)]

    def one(self, kind: EpisodeKind) -> Episode:
        (found,) = (each for each in self.seen if isinstance(each, Episode) and each.kind is kind)
        return found


def claimed(at_sec: float = 0, process: TurnProcess = TurnProcess.NEW) -> SlotAcquired:
    return SlotAcquired(worker="worker", at=NOW + timedelta(seconds=at_sec), process=process)


def test_a_new_run_has_changed_its_state() -> None:
    watching = Watching(queued_run())
    watching.observer.changed(None, create(watching.run, {}))
    assert watching.seen == [StateChanged(run=watching.run)]


def test_a_run_from_queue_to_end() -> None:
    watching = Watching(queued_run()).then(claimed())
    watching.then(ended(watching.run, DONE, usage=Usage(input_tokens=3)))
    assert watching.episodes == [("queued", "running"), ("turn", "final"), ("run", "succeeded")]
    queued, turn, run = (watching.one(kind) for kind in (EpisodeKind.QUEUED, EpisodeKind.TURN, EpisodeKind.RUN))
    assert (queued.began, queued.ended, queued.seconds) == (CREATED, NOW, 3600)
    assert (turn.began, turn.exact, turn.usage) == (NOW, True, Usage(input_tokens=3))
    assert (run.began, run.ended) == (CREATED, NOW)
    assert [each.run.state for each in watching.seen if isinstance(each, StateChanged)] == ["running", "succeeded"]


def test_a_reply_is_measured_to_the_process_and_to_its_first_output() -> None:
    watching = Watching(waiting_run()).then(REPLY).then(claimed(2))
    watching.spawned(3)
    watching.now = NOW + timedelta(seconds=5)
    watching.observer.printed(watching.run)
    reached = [each for each in watching.seen if isinstance(each, ReplyReached)]
    assert [(each.step, each.seconds) for each in reached] == [
        (TurnStep.PROCESS_STARTED, 3.0),
        (TurnStep.FIRST_OUTPUT, 5.0),
    ]
    assert watching.one(EpisodeKind.WAITING).began == CREATED
    watching.then(ended(watching.run, DONE))
    assert [mark.step for mark in watching.one(EpisodeKind.TURN).marks] == list(TurnStep)


def test_a_reply_to_a_warm_process_starts_none() -> None:
    watching = Watching(waiting_run()).then(REPLY).then(claimed(2, TurnProcess.WARM))
    watching.spawned(3)
    watching.now = NOW + timedelta(seconds=5)
    watching.observer.printed(watching.run)
    reached = [each for each in watching.seen if isinstance(each, ReplyReached)]
    assert [(each.step, each.seconds) for each in reached] == [(TurnStep.FIRST_OUTPUT, 5.0)]
    watching.then(ended(watching.run, DONE))
    assert [mark.step for mark in watching.one(EpisodeKind.TURN).marks] == [TurnStep.FIRST_OUTPUT]


def test_a_reply_that_another_program_stored_is_measured_as_well() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
    watching = Watching(queued_run(next_turn=order, updated_at=NOW)).then(claimed(1))
    watching.spawned(2)
    assert [each.seconds for each in watching.seen if isinstance(each, ReplyReached)] == [2.0]


def test_a_turn_that_is_started_again_does_not_count_as_a_reply() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
    watching = Watching(queued_run(next_turn=order, attempt_number=2, updated_at=NOW)).then(claimed(1))
    watching.spawned(2)
    assert not any(isinstance(each, ReplyReached) for each in watching.seen)


def test_a_sticky_run_continues_in_its_process() -> None:
    watching = Watching(waiting_run(profile=ProfileKind.STICKY_PROCESS)).then(REPLY)
    watching.now = NOW + timedelta(seconds=1)
    watching.observer.printed(watching.run)
    watching.then(ended(watching.run, ASKING))
    assert watching.episodes == [("waiting", "answered"), ("turn", "ask_user")]
    assert [each.seconds for each in watching.seen if isinstance(each, ReplyReached)] == [1.0]


def test_a_repair_is_a_turn_of_its_own() -> None:
    order = TurnOrder(kind=TurnKind.START, attempt_number=1)
    watching = Watching(queued_run(next_turn=order, handle=running_run().handle)).then(claimed())
    watching.then(ended(watching.run, WRONG)).then(ended(watching.run, WRONG))
    assert watching.episodes == [
        ("queued", "running"),
        ("turn", "final"),
        ("turn", "final"),
        ("run", "failed"),
    ]
    numbers = [each.run.attempt_number for each in watching.seen if isinstance(each, Episode)]
    assert numbers[1:3] == [1, 2]


def test_a_failed_turn_has_its_code() -> None:
    watching = Watching(queued_run()).then(claimed())
    watching.then(ended(watching.run, BROKEN))
    assert watching.one(EpisodeKind.TURN).error == watching.one(EpisodeKind.RUN).error == BROKEN.error.code


@pytest.mark.parametrize("profile", list(ProfileKind))
def test_a_canceled_turn_is_one_episode(profile: ProfileKind) -> None:
    watching = Watching(queued_run(profile=profile)).then(claimed()).then(CancelRequested(at=NOW))
    if profile is ProfileKind.STICKY_PROCESS:
        watching.then(ended(watching.run, DONE))
    watching.then(ProcessTreeEnded(epoch=watching.run.epoch, at=NOW))
    outcome = "final" if profile is ProfileKind.STICKY_PROCESS else "canceled"
    assert watching.episodes == [("queued", "running"), ("turn", outcome), ("run", "canceled")]


def test_a_turn_of_a_dead_program_begins_where_it_was_last_seen() -> None:
    watching = Watching(running_run()).then(TurnLost(epoch=running_run().epoch, at=NOW))
    turn = watching.one(EpisodeKind.TURN)
    assert (turn.outcome, turn.exact, turn.began, turn.ended) == ("interrupted", False, CREATED, NOW)
    assert watching.run.state is RunState.QUEUED


def test_a_listener_that_fails_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    watching = Watching(queued_run())
    watching.observer.add(lambda seen: 1 / 0)  # type: ignore[arg-type, return-value]
    watching.then(claimed())
    assert watching.run.state is RunState.RUNNING
    assert "could not be measured" in caplog.text
