"""Calls that an engine defers, as the desk and the home know them. What Claude does with them is in `tests/real`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from askback.process.workspace import Workspace
from askback.work.turn.asking import RECORDED, AskDesk, DeferredCall
from askback.work.turn.deferring import note_deferred

QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?"}
OTHER: dict[str, Any] = {"interaction_id": "size", "prompt": "Which size?"}


@pytest.fixture
def desk() -> AskDesk:
    desk = AskDesk()
    desk.begin_turn(may_hold=False)
    return desk


@pytest.mark.contract("F-4")
def test_only_a_proper_question_is_deferred(desk: AskDesk) -> None:
    assert [desk.defer(each) for each in ({**QUESTION, "prompt": " "}, None, "x")] == [False] * 3
    assert not desk.put.is_set()
    assert desk.defer(QUESTION)
    assert desk.question is not None
    assert not desk.defer(OTHER)
    assert desk.defer(QUESTION)


@pytest.mark.contract("F-4")
def test_a_call_that_is_made_all_the_same_is_recorded_once(desk: AskDesk) -> None:
    assert desk.defer(QUESTION)
    assert desk.take(QUESTION) == (True, RECORDED)
    accepted = desk.take(OTHER)
    assert isinstance(accepted, tuple)
    assert not accepted[0]


@pytest.mark.contract("B-4")
def test_the_answer_is_given_once_and_the_next_question_is_deferred(desk: AskDesk) -> None:
    desk.begin_turn(may_hold=False, deferred=DeferredCall(answer="blue"))
    assert desk.has_answer_left
    assert (desk.defer(QUESTION), desk.take(QUESTION)) == (False, (True, "blue"))
    assert (desk.has_answer_left, desk.question) == (False, None)
    assert desk.defer(OTHER)
    assert desk.question is not None


def test_a_call_whose_answer_is_a_message_stays_deferred_and_asks_nothing(desk: AskDesk) -> None:
    desk.begin_turn(may_hold=False, deferred=DeferredCall(answer=None))
    assert (desk.defer(QUESTION), desk.question, desk.has_answer_left) == (True, None, False)
    assert desk.defer(OTHER)
    assert desk.question is not None


def test_nothing_is_deferred_between_turns(desk: AskDesk) -> None:
    desk.end_turn()
    assert not desk.defer(QUESTION)


def test_what_is_noted_of_a_call_leaves_the_home_to_nobody_else(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("kept")
    mark = workspace.home / ".askback-deferred"
    mark.symlink_to(outside)
    note_deferred(workspace, deferred=True)
    assert (outside.read_text(), mark.is_symlink()) == ("kept", False)
    note_deferred(workspace, deferred=False)
    note_deferred(workspace, deferred=False)
    assert not mark.exists()
