"""A form of several questions on a terminal: asked one by one, shown before it is sent, or given at once as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from askback.cli import exit_codes
from support.data_folder import World
from support.program import Terminal, askback

ANY: dict[str, Any] = {"type": "object"}
QUESTIONS = [
    {
        "id": "pace",
        "prompt": "What pace?",
        "context": "Museums take time.",
        "options": [{"label": "Relaxed", "value": "slow", "description": "Two sights a day."}, "packed"],
    },
    {"id": "nights", "prompt": "How many nights?", "response_schema": {"type": "integer", "minimum": 1}, "default": 2},
    {"id": "dog", "prompt": "With a dog?", "kind": "confirm"},
    {"id": "pin", "prompt": "Which PIN?", "kind": "secret"},
    {"id": "note", "prompt": "Anything else?", "required": False},
]
FORM = {"ask": {"interaction_id": "trip", "prompt": "About your trip", "questions": QUESTIONS}}
FINISH = {"finish": {"pace": "{{reply_json.pace}}", "nights": "{{reply_json.nights}}", "dog": "{{reply_json.dog}}"}}
PIN = "hunter2-hunter2"
ANSWER = {"pace": "slow", "nights": 3, "dog": True, "pin": PIN}


def skill(world: World) -> str:
    return str(world.skill([FORM], [FINISH], output=ANY))


@pytest.mark.contract("N-6")
def test_questions_are_asked_one_by_one_and_can_be_changed_before_they_are_sent(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Terminal(world, "run", skill(world), "--engine", "scripted", stdout=world.folder / "result") as terminal:
        shown = terminal.expect("1/5 What pace? (1-2): ")
        assert "  ? About your trip\n" in shown
        assert "    1/5 What pace? Museums take time.\n      1) Relaxed: Two sights a day.\n      2) packed\n" in shown
        terminal.enter("1")
        terminal.expect("2/5 How many nights? (whole number, at least 1, Enter for 2): ")
        terminal.enter("0")
        terminal.expect("2/5 How many nights?")
        terminal.enter("3")
        terminal.expect("3/5 With a dog? [y/n]: ")
        terminal.enter("n")
        terminal.expect("4/5 Which PIN? (secret, not shown): ")
        terminal.enter(PIN)
        terminal.expect("5/5 Anything else? (text, optional): ")
        terminal.enter()
        review = terminal.expect("Enter to send, or the number of an answer to change: ")
        assert "1. What pace? Relaxed\n" in review
        assert "2. How many nights? 3\n" in review
        assert "3. With a dog? no\n" in review
        assert "4. Which PIN? (not shown)\n" in review
        assert "5. Anything else? (no answer)\n" in review
        terminal.enter("9")
        terminal.expect("9 is not the number of an answer; choose 1-5")
        terminal.expect("Enter to send")
        terminal.enter("3")
        terminal.expect("3/5 With a dog? [y/N]: ")
        terminal.enter("y")
        assert "3. With a dog? yes\n" in terminal.expect("Enter to send")
        terminal.enter()
        ran = terminal.ended()
    assert (ran.code, json.loads(ran.stdout)) == (0, {"pace": "slow", "nights": 3, "dog": True})
    assert PIN not in ran.stderr


@pytest.mark.contract("N-6")
def test_a_form_that_nobody_answers_here_is_listed_and_answered_at_once_as_json(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", skill(world), "--engine", "scripted", "--mode", "interactive")
    assert ran.code == exit_codes.WAITING
    for line in (
        "? About your trip",
        "1. What pace? (pace: slow | packed)",
        "2. How many nights? (nights: whole number, at least 1)",
        "5. Anything else? (note: text, optional)",
    ):
        assert line in ran.stderr
    run_id = ran.stderr.split("answer with: askback reply ")[1].split()[0]
    assert f"answer with: askback reply {run_id}\n" in ran.stderr
    listed = askback(world, "inbox").stdout
    assert "1. What pace? (pace: slow | packed)" in listed
    assert "About your trip (5 questions)" in askback(world, "runs").stdout
    wrong = askback(world, "reply", run_id, json.dumps({**ANSWER, "nights": "many"}))
    assert "nights" in wrong.stderr
    assert PIN not in wrong.stderr
    words = askback(world, "reply", run_id, "slow please")
    assert "this question is a form" in words.stderr
    sent = askback(world, "reply", run_id, stdin=json.dumps(ANSWER))
    assert (sent.code, json.loads(sent.stdout)) == (0, {"pace": "slow", "nights": 3, "dog": True})
    shown = askback(world, "show", run_id).stdout
    assert "What pace? Relaxed; How many nights? 3; With a dog? yes; Which PIN? (not shown)" in shown
    assert PIN not in shown


@pytest.mark.contract("N-6")
def test_an_answer_in_advance_is_shown_without_its_secret(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", skill(world), "--engine", "scripted", "--answer", json.dumps(ANSWER))
    assert (ran.code, json.loads(ran.stdout)) == (0, {"pace": "slow", "nights": 3, "dog": True})
    assert "Which PIN? (not shown)" in ran.stderr
    assert PIN not in ran.stderr + ran.stdout


@pytest.mark.parametrize("kind", ["secret", "form"])
def test_no_hint_leads_a_secret_into_the_history_of_a_shell(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path)
    secret = {"ask": {"interaction_id": "pin", "prompt": "Which PIN?", "kind": "secret"}}
    asking = str(world.skill([secret if kind == "secret" else FORM], [{"finish": {}}], output=ANY))
    ran = askback(world, "run", asking, "--engine", "scripted", "--mode", "interactive")
    run_id = ran.stderr.split("answer with: askback reply ")[1].split()[0]
    listed = askback(world, "inbox"), askback(world, "show", run_id)
    empty = askback(world, "reply", run_id)
    for text in (ran.stderr, *(each.stdout for each in listed)):
        assert f"askback reply {run_id}\n" in text
        assert "TEXT" not in text
    assert "unless it is secret" in empty.stderr
