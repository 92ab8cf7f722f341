"""Calls that an engine defers, as the desk and the home know them. What Claude does with them is in `tests/real`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from askback.engines.iflow import Iflow
from askback.engines.scripted import Scripted
from askback.process.ask_socket import Answer, HeldCall
from askback.process.ask_tool_program import RECORDED
from askback.worker.turn.ask_tool import AskTool, DeferredCall, deferred_call, mark_deferred
from askback.workspace.layout import Workspace
from support.asking import asking

QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?"}
OTHER: dict[str, Any] = {"interaction_id": "size", "prompt": "Which size?"}


def defers(desk: AskTool, arguments: Any) -> bool:
    return asyncio.run(desk.defer(arguments))


def told(desk: AskTool, arguments: Any) -> Answer | HeldCall:
    return asyncio.run(desk.take(arguments))


@pytest.fixture
def desk() -> AskTool:
    desk = AskTool()
    desk.begin_turn(may_hold=False)
    return desk


@pytest.mark.contract("F-4")
def test_only_a_proper_question_is_deferred(desk: AskTool) -> None:
    assert [defers(desk, each) for each in ({**QUESTION, "prompt": " "}, None, "x")] == [False] * 3
    assert not desk.put.is_set()
    assert defers(desk, QUESTION)
    assert desk.question is not None
    assert not defers(desk, OTHER)
    assert defers(desk, QUESTION)


@pytest.mark.contract("F-4")
def test_a_call_that_is_made_all_the_same_is_recorded_once(desk: AskTool) -> None:
    assert defers(desk, QUESTION)
    assert told(desk, QUESTION) == (True, RECORDED)
    accepted = told(desk, OTHER)
    assert isinstance(accepted, tuple)
    assert not accepted[0]


@pytest.mark.contract("B-4")
def test_the_answer_is_given_once_and_the_next_question_is_deferred(desk: AskTool) -> None:
    desk.begin_turn(may_hold=False, deferred=DeferredCall(answer="blue"))
    assert desk.has_answer_left
    assert (defers(desk, QUESTION), told(desk, QUESTION)) == (False, (True, "blue"))
    assert (desk.has_answer_left, desk.question) == (False, None)
    assert defers(desk, OTHER)
    assert desk.question is not None


def test_a_call_whose_answer_is_a_message_stays_deferred_and_asks_nothing(desk: AskTool) -> None:
    desk.begin_turn(may_hold=False, deferred=DeferredCall(answer=None))
    assert (defers(desk, QUESTION), desk.question, desk.has_answer_left) == (True, None, False)
    assert defers(desk, OTHER)
    assert desk.question is not None


def test_nothing_is_deferred_between_turns(desk: AskTool) -> None:
    desk.end_turn()
    assert not defers(desk, QUESTION)


def test_what_is_noted_of_a_call_leaves_the_home_to_nobody_else(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("kept")
    mark = workspace.home / ".askback-deferred"
    mark.symlink_to(outside)
    mark_deferred(workspace, deferred=True)
    assert (outside.read_text(), mark.is_symlink()) == ("kept", False)
    mark_deferred(workspace, deferred=False)
    mark_deferred(workspace, deferred=False)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["a-link-to-a-file", "a-link-to-nothing", "a-folder", "a-pipe"])
@pytest.mark.parametrize("noted", [True, False])
def test_only_a_file_is_a_note_and_anything_else_is_removed(tmp_path: Path, kind: str, noted: bool) -> None:
    """A link that counted would tell the engine which files of this machine exist."""
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("kept")
    mark = workspace.home / ".askback-deferred"
    match kind:
        case "a-folder":
            (mark / "inside").mkdir(parents=True)
        case "a-pipe":
            os.mkfifo(mark)
        case _:
            mark.symlink_to(outside if kind == "a-link-to-a-file" else tmp_path / "nothing")
    if noted:
        mark_deferred(workspace, deferred=False)
    else:
        assert deferred_call(asking("Which colour?", []), Scripted(), workspace, "blue") is None
    assert (os.path.lexists(mark), outside.read_text()) == (False, "kept")


def test_a_note_counts_for_an_engine_that_takes_the_tool(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    mark_deferred(workspace, deferred=True)
    assert deferred_call(asking("Which colour?", []), Scripted(), workspace, "blue") is not None
    assert deferred_call(asking("Which colour?", []), Iflow(), workspace, "blue") is None
