"""The storm's auditor, before forged evidence: each thing that must not be is found, and only that."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storm import cast
from storm.auditor import Auditor, Kind
from storm.clients import Rival, Story

PART = next(part for part in cast.PARTS if part.name == "quick")
STICKY = next(part for part in cast.PARTS if part.name == "resident")


def told_story(part: cast.Part = PART) -> Story:
    """A run in good order: the first of two rivals was accepted."""
    story = Story(number=0, part=part, token="storm-token-0-", chance=random.Random(0), cancels=False)
    story.run_id = "run"
    story.run = {"id": "run", "state": "succeeded"}
    story.rivals = {"q0": (Rival(text="yes", accepted=True), Rival(text="no", refused=True))}
    story.result = {"status": "succeeded", "data": {"colour": "yes", "all": ["yes"]}}
    return story


def write_session(folder: Path, *prompts: str, completed: int = 2, name: str = "one") -> None:
    sessions = folder / "runs" / "run" / "home" / ".scripted" / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = [{"type": "prompt", "turn": 1, "text": text} for text in prompts]
    records += [{"type": "message", "turn": 1, "text": "yes yes no no"}]
    records += [{"type": "completed", "turn": number + 1} for number in range(completed)]
    (sessions / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def judged(folder: Path, story: Story) -> list[Kind]:
    auditor = Auditor(folder)
    auditor.judge(story)
    return [kind for kind, _ in auditor.verdict.problems]


def test_a_run_in_good_order_is_found_so(tmp_path: Path) -> None:
    write_session(tmp_path, "do it", "yes")
    assert judged(tmp_path, told_story()) == []


@pytest.mark.parametrize(
    ("prompts", "kinds"),
    [
        (("do it", "yes", "yes"), {Kind.TWICE}),
        (("do it", "yes", "no"), {Kind.TWICE}),
        (("do it",), {Kind.LOST}),
        (("do it", "no"), {Kind.TWICE, Kind.LOST}),
    ],
)
def test_what_the_session_says_of_replies_is_held_against_what_was_told(
    tmp_path: Path, prompts: tuple[str, ...], kinds: set[Kind]
) -> None:
    write_session(tmp_path, *prompts)
    assert set(judged(tmp_path, told_story())) == kinds


def test_a_turn_completed_twice_and_a_second_session_are_found(tmp_path: Path) -> None:
    write_session(tmp_path, "do it", "yes", completed=3)
    assert judged(tmp_path, told_story()) == [Kind.TWICE]
    write_session(tmp_path, "do it", completed=2, name="other")
    assert judged(tmp_path, told_story()) == [Kind.TWICE]


def _both_accepted(story: Story) -> None:
    story.rivals["q0"][1].accepted = True


def _wrong_result(story: Story) -> None:
    story.result["data"] = {"colour": "no"}


def _not_canceled(story: Story) -> None:
    story.cancel_told = True


def _changed_events(story: Story) -> None:
    story.troubles.append("its events changed between two readings")


def _failed(story: Story) -> None:
    story.run |= {"state": "failed", "error": {"code": "INTERNAL_ERROR"}}
    story.result["status"] = "failed"


def _interrupted_too_soon(story: Story) -> None:
    _failed(story)
    story.run["error"] = {"code": "ORCHESTRATOR_RESTART_INTERRUPTED"}
    story.kills = 3


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (_both_accepted, Kind.TWICE),
        (_wrong_result, Kind.LOST),
        (_not_canceled, Kind.LOST),
        (_changed_events, Kind.LOST),
        (_failed, Kind.LOST),
        (_interrupted_too_soon, Kind.LOST),
    ],
)
def test_what_clients_were_told_must_fit(tmp_path: Path, spoil: Callable[[Story], None], kind: Kind) -> None:
    write_session(tmp_path, "do it", "yes")
    story = told_story()
    spoil(story)
    assert judged(tmp_path, story) == [kind]


@pytest.mark.parametrize(("part", "kills", "lawful"), [(STICKY, 1, True), (STICKY, 0, False), (PART, 1, False)])
def test_a_lost_process_is_lawful_only_where_one_was_kept_and_killed(
    tmp_path: Path, part: cast.Part, kills: int, lawful: bool
) -> None:
    write_session(tmp_path, "do it", "yes")
    story = told_story(part)
    _failed(story)
    story.run["error"] = {"code": "INTERACTION_PROCESS_LOST"}
    story.kills = kills
    assert judged(tmp_path, story) == ([] if lawful else [Kind.LOST])


def test_runs_that_nobody_was_told_of_and_runs_that_are_gone_are_found(tmp_path: Path) -> None:
    auditor = Auditor(tmp_path)
    auditor.judge_list([told_story()], [{"id": "other"}])
    assert {kind for kind, _ in auditor.verdict.problems} == {Kind.LOST, Kind.TWICE}


def test_a_process_of_a_run_that_is_over_is_found(tmp_path: Path) -> None:
    auditor, story = Auditor(tmp_path), told_story()
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, f"{story.token}daemon"]
    with subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        daemon.stdout.readline()
        auditor.look_for_survivors(story)
        daemon.kill()
    assert [kind for kind, _ in auditor.verdict.problems] == [Kind.ALIVE]
    auditor.verdict.problems.clear()
    auditor.look_for_survivors(story)
    assert auditor.verdict.clean
