"""When a run that meets a limit is parked, until when, and how its turn is executed again."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from askback.core.actors import Actor, Channel
from askback.core.errors import ErrorCode, Limit, LimitKind, RunError
from askback.core.lifecycle import Decision, Stay, decide
from askback.core.outcomes import TurnError
from askback.core.runs import (
    Handle,
    OnLimit,
    Parking,
    ProfileKind,
    Run,
    RunOptions,
    RunState,
    TurnKind,
    TurnOrder,
    Usage,
)
from askback.core.signals import LimitKnown, ParkEnded, SlotAcquired, TurnEnded
from support.specimens import DONE, EPOCH, HANDLE, NOW, decision, event_types, queued_run, running_run

HOUR = timedelta(hours=1)
WEEK = 7 * 24 * HOUR
PARK = RunOptions(on_limit=OnLimit.PARK)


def limited(
    resets_at: datetime | None = NOW + HOUR, kind: LimitKind = LimitKind.USAGE_WINDOW, **rest: object
) -> TurnEnded:
    error = RunError(code=ErrorCode.ENGINE_RATE_LIMITED, message="no more", limit=Limit(kind=kind, resets_at=resets_at))
    made = TurnEnded(epoch=EPOCH, outcome=TurnError(error=error), at=NOW)
    return replace(made, **rest)  # type: ignore[arg-type]


def parked(run: Run, signal: TurnEnded) -> Parking:
    made = decision(run, signal)
    assert made.run.state is RunState.QUEUED, made.run.error
    assert made.run.parking is not None
    return made.run.parking


def running(**changes: object) -> Run:
    return running_run(options=PARK, **changes)


@pytest.mark.contract("U-4")
def test_a_run_is_parked_beyond_the_end_of_its_limit_without_a_slot() -> None:
    made = decision(running(), limited())
    parking = made.run.parking
    assert parking is not None
    assert (made.run.state, made.run.worker, made.run.process) == (RunState.QUEUED, None, None)
    assert parking.until == NOW + HOUR
    assert parking.not_before == made.run.not_before
    assert timedelta(seconds=30) <= made.run.not_before - parking.until <= timedelta(seconds=120)
    assert event_types(made)[-2:] == ["run.parked", "run.state"]
    assert made.events[-2].data["limit"] == {"kind": "usage_window", "resets_at": NOW + HOUR}
    assert not made.run.in_queue


@pytest.mark.contract("U-4")
def test_by_default_a_limit_fails_the_run() -> None:
    made = decision(running_run(), limited())
    assert made.run.state is RunState.FAILED
    assert made.run.error is not None
    assert made.run.error.code is ErrorCode.ENGINE_RATE_LIMITED


@pytest.mark.contract("U-4")
def test_a_hundred_runs_do_not_start_in_the_same_second() -> None:
    times = {decision(running(id=f"run-{number}"), limited()).run.not_before for number in range(100)}
    assert len(times) > 50


@pytest.mark.contract("U-4")
def test_a_turn_without_tools_is_repeated_as_if_it_had_not_begun() -> None:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=3, interaction_id="colour")
    usage = Usage(input_tokens=7, total_tokens=7)
    run = running(next_turn=order, attempt_number=3, handle=HANDLE, restarts=0, max_attempt=3)
    made = decision(run, limited(usage=usage))
    assert made.run.next_turn == order
    assert made.run.handle == HANDLE
    assert made.run.max_attempt == 3
    # What the session counts starts again from before the turn; what was used is used.
    assert (made.run.usage, made.run.session_usage) == (usage, Usage())


@pytest.mark.contract("U-4")
def test_the_session_of_a_first_turn_is_started_anew() -> None:
    own = Handle(engine="scripted", handle_type="session_id", handle_value="new", created_at_turn=1)
    made = decision(running(handle=own, attempt_number=1), limited())
    assert made.run.handle is None
    assert made.run.starts_session


@pytest.mark.contract("U-4")
def test_a_turn_that_has_used_tools_is_continued_in_its_session() -> None:
    own = Handle(engine="scripted", handle_type="session_id", handle_value="new", created_at_turn=1)
    made = decision(running(handle=own, attempt_number=1, max_attempt=1), limited(used_tools=True))
    assert made.run.handle == own
    assert made.run.next_turn.continues
    assert (made.run.next_turn.attempt_number, made.run.max_attempt) == (2, 2)
    assert not made.run.starts_session
    resumed = decision(made.run, ParkEnded(at=made.run.not_before or NOW))
    assert decision(resumed.run, SlotAcquired(worker="w", at=NOW)).events[-1].data["kind"] == "continue"


@pytest.mark.contract("U-4")
@pytest.mark.parametrize("resets_at", [None, NOW - HOUR, NOW])
def test_an_end_that_is_unknown_or_past_is_tried_after_pauses_that_double(resets_at: datetime | None) -> None:
    run, pauses = running(), []
    for _ in range(7):
        parking = parked(run, limited(resets_at))
        pauses.append((parking.until - NOW).total_seconds() / 60)
        run = running(parking=replace(parking, not_before=None))
    assert pauses == [15, 30, 60, 120, 240, 240, 240]


@pytest.mark.contract("U-4")
def test_an_engine_that_always_promises_an_early_end_is_tried_less_and_less_often() -> None:
    run, pauses = running(), []
    for _ in range(4):
        parking = parked(run, limited(NOW + timedelta(seconds=2)))
        pauses.append((parking.until - NOW).total_seconds())
        run = running(parking=replace(parking, not_before=None))
    assert pauses == [2, 120, 240, 480]


@pytest.mark.contract("U-4")
@pytest.mark.parametrize(
    ("resets_at", "since"),
    [(NOW + 2 * WEEK, NOW), (NOW + 3600 * HOUR, NOW), (None, NOW - 2 * WEEK), (NOW + HOUR, NOW - 8 * 24 * HOUR)],
)
def test_beyond_max_park_sec_a_run_fails(resets_at: datetime | None, since: datetime) -> None:
    limit = Limit(kind=LimitKind.USAGE_WINDOW)
    before = Parking(limit=limit, until=since, not_before=None, since=since, times=1)
    made = decision(running(parking=before), limited(resets_at))
    assert made.run.state is RunState.FAILED
    assert made.run.not_before is None


def test_the_last_pause_ends_with_max_park_sec() -> None:
    run = running_run(options=replace(PARK, max_park_sec=600.0))
    assert parked(run, limited(None)).until == NOW + timedelta(minutes=10)


@pytest.mark.contract("U-4")
@pytest.mark.parametrize(
    ("kind", "resets_at", "state"),
    [
        (LimitKind.CREDITS, None, RunState.FAILED),
        (LimitKind.CREDITS, NOW + HOUR, RunState.FAILED),
        (LimitKind.SPENDING_CAP, None, RunState.FAILED),
        (LimitKind.SPENDING_CAP, NOW + HOUR, RunState.QUEUED),
        (LimitKind.QUOTA, None, RunState.QUEUED),
        (LimitKind.RATE, None, RunState.QUEUED),
    ],
)
def test_a_limit_that_does_not_end_by_itself_fails_the_run(
    kind: LimitKind, resets_at: datetime | None, state: RunState
) -> None:
    assert decision(running(), limited(resets_at, kind)).run.state is state


@pytest.mark.contract("U-4")
@pytest.mark.parametrize(("number", "used_tools"), [(1, True), (2, False)])
def test_a_sticky_run_is_parked_only_before_its_process_has_done_anything(number: int, used_tools: bool) -> None:
    kind = TurnKind.START if number == 1 else TurnKind.REPLY
    order = TurnOrder(kind=kind, attempt_number=number)
    run = running(profile=ProfileKind.STICKY_PROCESS, next_turn=order, attempt_number=number)
    assert decision(run, limited(used_tools=used_tools)).run.state is RunState.FAILED


def test_a_turn_that_ends_otherwise_forgets_the_limits_before() -> None:
    before = Parking(limit=Limit(kind=LimitKind.RATE), until=NOW, not_before=None, since=NOW, times=3)
    done = decision(running(parking=before), TurnEnded(epoch=EPOCH, outcome=DONE, at=NOW))
    assert done.run.parking is None


@pytest.mark.contract("U-4")
def test_a_parked_run_is_resumed_at_its_time_or_by_somebody() -> None:
    run = decision(running(), limited()).run
    assert run.not_before is not None
    assert isinstance(decide(run, ParkEnded(at=run.not_before - timedelta(microseconds=1))), Stay)
    for signal in (ParkEnded(at=run.not_before), ParkEnded(at=NOW, by=Actor(name="ann", via=Channel.API))):
        made = decide(run, signal)
        assert isinstance(made, Decision)
        assert made.run.in_queue
        assert event_types(made) == ["run.resumed"]


KNOWN = LimitKnown(limit=Limit(kind=LimitKind.USAGE_WINDOW), until=NOW + HOUR, at=NOW)


@pytest.mark.contract("U-5")
def test_a_queued_run_avoids_a_limit_that_another_one_has_met() -> None:
    made = decision(queued_run(options=PARK), KNOWN)
    assert made.run.not_before is not None
    assert made.run.not_before > KNOWN.until
    assert (made.run.epoch, made.run.parking and made.run.parking.times) == (0, 0)


@pytest.mark.contract("U-5")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"options": PARK, "env_names": ("OPENAI_API_KEY",)},
        {"options": replace(PARK, max_park_sec=60.0)},
    ],
    ids=["not wanted", "its own sign-in", "too long"],
)
def test_other_runs_try_it_themselves(changes: dict[str, object]) -> None:
    assert isinstance(decide(queued_run(**changes), KNOWN), Stay)


@pytest.mark.contract("U-5")
def test_a_run_that_somebody_has_resumed_is_tried_in_spite_of_the_limit() -> None:
    run = decision(queued_run(options=PARK), KNOWN).run
    forced = decision(run, ParkEnded(at=NOW, by=Actor(name="ann", via=Channel.PAGE))).run
    assert isinstance(decide(forced, KNOWN), Stay)
    in_time = decision(run, ParkEnded(at=run.not_before or NOW)).run
    assert isinstance(decide(in_time, replace(KNOWN, until=NOW + 3 * HOUR)), Decision)
