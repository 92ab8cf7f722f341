"""The commands on runs without a server: they work on the data folder, and take a unique prefix of an id."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from askback.cli.connection import system_user
from askback.core.actors import Actor, Channel
from askback.core.runs import RunState
from askback.process.tree import Tree
from support.data_folder import ASK, FINISH, World, run_async
from support.program import Started, Terminal, askback, stored, until, work_folder

BUSY = [{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}]


def left_waiting(world: World, *options: str) -> str:
    """A run that waits, and whose program has ended."""
    skill = world.skill([{"say": "Let me see."}, ASK], [FINISH])
    ran = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json", *options)
    assert ran.code == 4, ran
    return str(ran.json["id"])


def killed_at_work(world: World) -> str:
    with Started(world, "run", world.skill(BUSY, name="busy"), "--engine", "scripted") as started:
        run_id = started.run_id()
        until(lambda: (work_folder(world, run_id) / "started").exists())
        started.kill()
    return run_id


def short(run_id: str, *others: str) -> str:
    """The shortest prefix that no other run has."""
    return next(run_id[:end] for end in range(1, 17) if not any(each.startswith(run_id[:end]) for each in others))


def test_runs_show_and_inbox_read_the_data_folder(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    listed = askback(world, "runs")
    assert f"? {run_id}  waiting_user tested" in listed.stdout
    assert [run["id"] for run in askback(world, "runs", "--state", "waiting_user", "--json").json] == [run_id]
    assert askback(world, "runs", "--state", "failed").stderr == "no run matches\n"
    shown = askback(world, "show", run_id[:6])
    assert f"run {run_id}: waiting_user" in shown.stdout
    assert askback(world, "show", run_id, "--json").json["interactions"][0]["prompt"] == "Which colour?"
    assert f"answer with: askback reply {run_id} TEXT" in askback(world, "inbox").stdout
    assert [each["run_id"] for each in askback(world, "inbox", "--json").json] == [run_id]


@pytest.mark.contract("N-1")
def test_an_answer_in_the_data_folder_has_the_name_of_the_system_s_user(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id, canceled = left_waiting(world), left_waiting(world)
    assert askback(world, "reply", run_id, "blue").code == 0
    shown = askback(world, "show", run_id)
    assert f"answered by {system_user()}: blue\n" in shown.stdout
    (answered,) = askback(world, "show", run_id, "--json").json["interactions"]
    assert answered["answered_with"] == {"name": system_user().name, "via": "cli"}
    late = askback(world, "reply", run_id, "red")
    assert late.stderr.endswith(f"has no pending question; its state is succeeded; answered by {system_user()}\n")
    assert askback(world, "cancel", canceled).code == 0
    assert f"  canceled by {system_user()}\n" in askback(world, "show", canceled).stdout


@pytest.mark.contract("N-7")
def test_commands_that_write_are_in_the_audit_log(tmp_path: Path) -> None:
    world, me = World(tmp_path), system_user().name
    skill = world.skill([FINISH], name="installed")
    run_id, canceled = left_waiting(world), left_waiting(world)
    for words in (
        ("reply", run_id, "the-secret-answer"),
        ("cancel", canceled),
        ("delete", canceled),
        ("tokens", "create", "ci", "--scope", "read"),
        ("tokens", "revoke", "ci"),
        ("skills", "install", skill),
    ):
        assert askback(world, *words).code == 0, words
    assert askback(world, "tokens", "revoke", "nobody").code != 0
    assert askback(world, "sessions", "revoke", "--all").code == 0
    found = askback(world, "audit", "--json").json
    assert [(each["action"], each.get("run_id") or each.get("object")) for each in found][::-1] == [
        ("run.submit", run_id),
        ("run.submit", canceled),
        ("interaction.reply", run_id),
        ("run.cancel", canceled),
        ("run.delete", canceled),
        ("token.create", "ci"),
        ("token.revoke", "ci"),
        ("skill.install", "installed"),
    ]
    assert all(each["actor"] == {"name": me, "via": "cli"} and "address" not in each for each in found)
    shown = askback(world, "audit", "--action", "interaction.reply")
    assert f"interaction.reply  {system_user()}  run {run_id}, question colour\n" in shown.stdout
    assert "the-secret-answer" not in shown.stdout
    assert len(askback(world, "audit", "--run", canceled, "--limit", "2", "--json").json) == 2
    assert askback(world, "audit", "--actor", "nobody").stderr == "no entry matches\n"
    assert askback(world, "audit", "--since", "2999-01-01", "--json").json == []
    assert "choose one of run.submit" in askback(world, "audit", "--action", "run.dance").stderr


def test_a_user_without_an_entry_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert system_user() == Actor(name="uid 3999999999", via=Channel.CLI)


@pytest.mark.contract("N-1")
def test_a_hostile_name_stays_on_its_line_and_controls_no_terminal(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id, name = left_waiting(world), "\x1b[31manna\n  file     /etc/passwd\u202e"

    async def main() -> None:
        async with world.client() as app:
            await app.service.reply(run_id, "red", by=Actor(name=name, via=Channel.TELEGRAM))

    run_async(main)
    shown = askback(world, "show", run_id).stdout
    assert "answered by anna file /etc/passwd<U+202E>, by Telegram: red\n" in shown
    assert "\x1b" not in shown
    late = askback(world, "reply", run_id, "blue").stderr
    assert "answered by anna file /etc/passwd<U+202E>, by Telegram\n" in late
    assert late.count("\n") == 1


@pytest.mark.parametrize(
    ("asked", "says", "data"),
    [
        ({"kind": "confirm"}, "    [y/n]\n", "yes"),
        ({"kind": "confirm", "default": "no"}, "    [y/N]  (default: no)\n", "yes"),
        ({"default": True, "response_schema": {"type": "boolean"}}, "    [Y/n]  (default: yes)\n", True),
    ],
    ids=["confirm", "default", "boolean"],
)
def test_a_question_for_yes_or_no_says_so(tmp_path: Path, asked: dict[str, Any], says: str, data: Any) -> None:
    world = World(tmp_path)
    ask = {"ask": {"interaction_id": "go", "prompt": "Go on?", **asked}}
    skill = world.skill([ask], [{"finish": {"go": "{{reply_json}}"}}], output={"type": "object"})
    run_id = askback(world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json").json["id"]
    for command in (("inbox",), ("show", run_id)):
        shown = askback(world, *command).stdout
        assert f"  ? Go on?\n{says}" in shown
        assert f"answer with: askback reply {run_id}\n" in shown, "no answer is suggested"
    ran = askback(world, "reply", run_id, "yes", "--json")
    assert (ran.code, ran.json["data"]) == (0, {"go": data}), ran


def test_an_empty_data_folder_has_no_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert askback(world, "runs").stderr == "there are no runs yet\n"
    assert askback(world, "inbox").stderr == "no question is pending\n"
    assert askback(world, "run", "--continue").stderr == "no run can be continued\n"


@pytest.mark.contract("B-2")
def test_a_waiting_run_is_canceled(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    ran = askback(world, "cancel", run_id[:8])
    assert (ran.code, ran.stdout) == (0, f"■ run {run_id} is canceled\n")
    assert stored(world, run_id).state is RunState.CANCELED


@pytest.mark.contract("J-8")
def test_a_run_that_is_over_is_deleted_with_what_an_earlier_try_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id, other = left_waiting(world), left_waiting(world)
    for each in (run_id, other):
        askback(world, "cancel", each)
    (world.data_dir / "deleting").mkdir()
    (world.data_dir / "deleting" / other).touch()
    ran = askback(world, "delete", run_id)
    assert (ran.code, ran.stdout) == (0, f"✔ run {run_id} is deleted\n")
    assert askback(world, "runs").stderr == "there are no runs yet\n"
    assert list((world.data_dir / "runs").iterdir()) == []


@pytest.mark.contract("B-2")
def test_a_run_that_another_program_executes_is_canceled_there(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, "run", world.skill(BUSY), "--engine", "scripted") as started:
        run_id = started.run_id()
        until(lambda: (work_folder(world, run_id) / "started").exists())
        assert askback(world, "cancel", run_id).code == 0
        assert started.ended().code == 1
    assert stored(world, run_id).state is RunState.CANCELED


@pytest.mark.contract("B-2")
def test_a_run_whose_program_was_killed_is_canceled_with_what_is_left_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = killed_at_work(world)
    ran = askback(world, "cancel", run_id)
    assert (ran.code, ran.stdout) == (0, f"■ run {run_id} is canceled\n")
    assert Tree(mark=run_id).members() == set()
    assert stored(world, run_id).state is RunState.CANCELED


def test_watch_follows_a_run_of_another_program(tmp_path: Path) -> None:
    world = World(tmp_path)
    with Started(world, "run", world.skill(BUSY), "--engine", "scripted") as started:
        run_id = started.run_id()
        with Started(world, "watch", run_id[:12]) as watching:
            until(lambda: "▸ tested on scripted" in watching.stderr)
            until(lambda: (work_folder(world, run_id) / "started").exists())
            (work_folder(world, run_id) / "go").touch()
            ended = watching.ended()
        started.ended()
    assert (ended.code, json.loads(ended.stdout)) == (0, {"colour": "red"})
    assert "no program executes" not in ended.stderr


def test_watch_says_so_if_nobody_executes_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = killed_at_work(world)
    with Started(world, "watch", run_id) as watching:
        until(lambda: f"continue it with: askback run --continue {run_id}" in watching.stderr)
        assert watching.kill(signal.SIGINT) == 130
    assert askback(world, "cancel", run_id).code == 0


def test_watch_counts_down_while_the_run_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    timed = ("--option", "interactive_require_user_reply=false", "--option", "session_timeout_sec=3000")
    run_id = left_waiting(world, *timed)
    with Terminal(world, "watch", run_id) as terminal:
        terminal.expect("waits for an answer · 49:")
        terminal.interrupt()
        assert terminal.ended().code == 130
    assert stored(world, run_id).state is RunState.WAITING_USER


def test_watch_of_a_run_without_a_deadline_just_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = left_waiting(world)
    with Terminal(world, "watch", run_id) as terminal:
        terminal.expect(f"answer with: askback reply {run_id} TEXT")
        terminal.expect("waits for an answer")
        terminal.interrupt()
        assert "left" not in terminal.ended().stderr


def test_continue_without_a_run_lists_what_can_be_continued(tmp_path: Path) -> None:
    world = World(tmp_path)
    waiting, interrupted = left_waiting(world), killed_at_work(world)
    listed = askback(world, "run", "--continue")
    assert (listed.code, listed.stderr) == (0, "continue one with: askback run --continue RUN\n")
    assert listed.stdout.splitlines() == [
        f"{waiting} (tested) waits for an answer: Which colour?",
        f"{interrupted} (busy) was interrupted",
    ]
    assert [run["id"] for run in askback(world, "run", "--continue", "--json").json] == [waiting, interrupted]
    (work_folder(world, interrupted) / "go").touch()
    ran = askback(world, "run", "--continue", short(interrupted, waiting), "--json")
    assert (ran.code, ran.json["id"]) == (0, interrupted)


def test_a_prefix_that_several_runs_have_is_refused_with_these(tmp_path: Path) -> None:
    world = World(tmp_path)
    runs = [left_waiting(world), left_waiting(world)]
    for words in (("show", runs[0][:2]), ("reply", runs[0][:2], "red"), ("run", "--continue", runs[0][:2])):
        ran = askback(world, *words, "--json")
        assert ran.code == 2
        assert ran.json["error"]["message"] == f"2 runs start with {runs[0][:2]!r}; give more of the id"
        assert sorted(ran.json["error"]["problems"]) == sorted(runs)
    ran = askback(world, "reply", short(*runs), "red", "--json")
    assert (ran.code, ran.json["id"]) == (0, runs[0])
