"""Calls that an engine defers, as the ask tool and the home know them. What Claude does with them is in `tests/real`."""

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
from askback.worker.turn.ask_tool import AskTool, DeferredCall, deferred_call, record_deferred
from askback.workspace.layout import Workspace
from support.asking import asking

QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?"}
OTHER: dict[str, Any] = {"interaction_id": "size", "prompt": "Which size?"}


def defers(ask_tool: AskTool, arguments: Any) -> bool:
    return asyncio.run(ask_tool.defer(arguments))


def told(ask_tool: AskTool, arguments: Any) -> Answer | HeldCall:
    return asyncio.run(ask_tool.take(arguments))


@pytest.fixture
def ask_tool() -> AskTool:
    ask_tool = AskTool()
    ask_tool.begin_turn(may_hold=False)
    return ask_tool


@pytest.mark.contract("F-4")
def test_only_a_proper_question_is_deferred(ask_tool: AskTool) -> None:
    assert [defers(ask_tool, each) for each in ({**QUESTION, "prompt": " "}, None, "x")] == [False] * 3
    assert not ask_tool.put.is_set()
    assert defers(ask_tool, QUESTION)
    assert ask_tool.question is not None
    assert not defers(ask_tool, OTHER)
    assert defers(ask_tool, QUESTION)


@pytest.mark.contract("F-4")
def test_a_call_that_is_made_all_the_same_is_recorded_once(ask_tool: AskTool) -> None:
    assert defers(ask_tool, QUESTION)
    assert told(ask_tool, QUESTION) == (True, RECORDED)
    accepted = told(ask_tool, OTHER)
    assert isinstance(accepted, tuple)
    assert not accepted[0]


@pytest.mark.contract("B-4")
def test_the_answer_is_given_once_and_the_next_question_is_deferred(ask_tool: AskTool) -> None:
    ask_tool.begin_turn(may_hold=False, deferred=DeferredCall(answer="blue"))
    assert ask_tool.has_answer_left
    assert (defers(ask_tool, QUESTION), told(ask_tool, QUESTION)) == (False, (True, "blue"))
    assert (ask_tool.has_answer_left, ask_tool.question) == (False, None)
    assert defers(ask_tool, OTHER)
    assert ask_tool.question is not None


def test_a_call_whose_answer_is_a_message_stays_deferred_and_asks_nothing(ask_tool: AskTool) -> None:
    ask_tool.begin_turn(may_hold=False, deferred=DeferredCall(answer=None))
    assert (defers(ask_tool, QUESTION), ask_tool.question, ask_tool.has_answer_left) == (True, None, False)
    assert defers(ask_tool, OTHER)
    assert ask_tool.question is not None


def test_nothing_is_deferred_between_turns(ask_tool: AskTool) -> None:
    ask_tool.end_turn()
    assert not defers(ask_tool, QUESTION)


def test_what_is_noted_of_a_call_leaves_the_home_to_nobody_else(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("kept")
    mark = workspace.home / ".askback-deferred"
    mark.symlink_to(outside)
    record_deferred(workspace, deferred=True)
    assert (outside.read_text(), mark.is_symlink()) == ("kept", False)
    record_deferred(workspace, deferred=False)
    record_deferred(workspace, deferred=False)
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
        record_deferred(workspace, deferred=False)
    else:
        assert deferred_call(asking("Which colour?", []), Scripted(), workspace, "blue") is None
    assert (os.path.lexists(mark), outside.read_text()) == (False, "kept")


def test_a_note_counts_for_an_engine_that_takes_the_tool(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.home.mkdir()
    record_deferred(workspace, deferred=True)
    assert deferred_call(asking("Which colour?", []), Scripted(), workspace, "blue") is not None
    assert deferred_call(asking("Which colour?", []), Iflow(), workspace, "blue") is None
