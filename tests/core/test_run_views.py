"""How runs, questions and events look from outside: the names of the interface, and no secret reply."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from askback.core.errors import ErrorCode, RunError
from askback.core.events import Event, EventType
from askback.core.interactions import Interaction, Question, option_label, option_value
from askback.core.outcomes import AskUser
from askback.core.runs import Run, RunState, Usage
from askback.core.signals import Replied
from askback.runs.service import Result
from askback.wire import questions as question_wire
from askback.wire import runs as wire
from askback.wire.base import plain
from support.specimens import (
    ASKING,
    BROKEN,
    CREATED,
    NOW,
    decision,
    ended,
    final_run,
    queued_run,
    running_run,
    waiting_run,
)

ALWAYS = {
    "id",
    "state",
    "skill",
    "engine",
    "mode",
    "attempt_number",
    "interactive_profile",
    "warnings",
    "created_at",
    "updated_at",
}


def shown_run(run: Run) -> dict[str, Any]:
    shown: dict[str, Any] = plain(wire.Run.of(run))
    return shown


def test_a_run_shows_its_profile() -> None:
    shown = shown_run(queued_run())["interactive_profile"]
    assert shown == {"kind": "resumable", "reason": "seen", "session_timeout_sec": 1200}


def test_a_run_leaves_out_what_it_does_not_have() -> None:
    assert set(shown_run(queued_run())) == ALWAYS


def test_a_waiting_run_shows_its_question() -> None:
    shown = shown_run(waiting_run())
    assert shown["pending_interaction"]["interaction_id"] == "colour"
    assert shown["pending_interaction"]["outcome"] == "pending"


def test_a_failed_run_shows_its_error_without_empty_parts() -> None:
    shown = shown_run(final_run(RunState.FAILED))
    assert shown["error"] == {"code": "ENGINE_CRASHED", "message": BROKEN.error.message}
    error = RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="m", cause=ErrorCode.TURN_TIMEOUT, detail="d")
    shown = shown_run(final_run(RunState.FAILED).evolve(error=error))
    assert shown["error"] == {"code": "SESSION_RESUME_FAILED", "message": "m", "cause": "TURN_TIMEOUT", "detail": "d"}


def test_what_is_shown_is_json() -> None:
    for run in (queued_run(), running_run(usage=Usage(input_tokens=1)), waiting_run(), final_run(RunState.FAILED)):
        assert json.loads(json.dumps(shown_run(run)))["state"] == run.state


def test_times_are_in_utc() -> None:
    local = datetime(2026, 1, 1, 2, 30, tzinfo=timezone(timedelta(hours=2)))
    assert shown_run(queued_run(created_at=local))["created_at"] == "2026-01-01T00:30:00Z"


def test_a_secret_reply_is_not_shown() -> None:
    asked = AskUser(question=Question(interaction_id="key", prompt="The key?", kind="secret"))
    waiting = decision(running_run(), ended(running_run(), asked)).run
    closed = decision(waiting, Replied(interaction_id="key", response="hush", owner="", at=NOW)).closed
    assert closed is not None
    assert "hush" not in json.dumps(plain(question_wire.Interaction.of(closed)))


def test_an_answered_question_shows_who_and_when() -> None:
    waiting = decision(running_run(), ended(running_run(), ASKING)).run
    later = NOW + timedelta(seconds=1)
    closed = decision(waiting, Replied(interaction_id="colour", response={"a": 1}, owner="", at=later)).closed
    assert closed is not None
    shown = plain(question_wire.Interaction.of(closed))
    assert (shown["prompt"], shown["response"], shown["answered_by"]) == ("Which colour?", {"a": 1}, "user")
    assert (shown["asked_at"], shown["answered_at"]) == ("2026-01-01T01:00:00Z", "2026-01-01T01:00:01Z")


def test_a_result_shows_how_the_run_ended() -> None:
    shown = plain(wire.Result.of(Result(run=final_run(RunState.SUCCEEDED), data={"ok": True}, artifacts=())))
    assert shown == {"status": "succeeded", "data": {"ok": True}, "warnings": (), "error": None, "artifacts": ()}


def test_an_event_shows_its_number_and_time() -> None:
    event = Event(seq=3, run_id="run-1", type=EventType.RUN_STATE, at=CREATED, data={"from": "queued", "to": "running"})
    assert plain(wire.Event.of(event)) == {
        "seq": 3,
        "run_id": "run-1",
        "type": "run.state",
        "at": "2026-01-01T00:00:00Z",
        "data": {"from": "queued", "to": "running"},
    }


@pytest.mark.parametrize(
    ("option", "label", "value"),
    [
        ("red", "red", "red"),
        (3, "3", 3),
        ({"label": "Red", "value": "r"}, "Red", "r"),
        ({"value": 5}, "5", 5),
        ({"label": "Red"}, "Red", "Red"),
    ],
)
def test_an_option_has_a_label_and_a_value(option: object, label: str, value: object) -> None:
    assert (option_label(option), option_value(option)) == (label, value)


def test_only_the_kind_makes_a_question_secret() -> None:
    kinds = [
        Interaction(interaction_id="q", kind=k, prompt="?", attempt_number=1, asked_at=NOW) for k in ("secret", "text")
    ]
    assert [interaction.secret for interaction in kinds] == [True, False]
