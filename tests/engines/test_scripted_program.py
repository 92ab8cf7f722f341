"""The scripted program itself: sessions on disk, scripts, templates, and the ways in which it can be told to misbehave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from programs import DEADLINE_SEC, Stage, given, kinds, reply

from askback.core.errors import ErrorCode
from askback.core.runs import Mode
from askback.engines.base import Completed, TurnFailed
from askback.engines.scripted import Scripted
from askback.engines.scripted.program import faults
from askback.engines.scripted.program import input as options
from support.processes import lives

ASK = {"ask": {"interaction_id": "q", "prompt": "Which?"}}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_SEC
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Sessions.


def test_a_session_holds_every_prompt_and_message_in_order(stage: Stage) -> None:
    stage.script([{"say": "One."}, ASK], [{"say": "Two."}])
    first = stage.play("Start.", model="m")
    stage.play(reply("x"), resume=first.session_id)
    records = stage.session(first.session_id)
    assert [(record["type"], record["turn"]) for record in records] == [
        ("prompt", 1),
        ("message", 1),
        ("message", 1),
        ("completed", 1),
        ("prompt", 2),
        ("message", 2),
        ("completed", 2),
    ]
    told = {"type": "prompt", "turn": 1, "text": "Start.", "mode": "interactive", "model": "m", "effort": None}
    assert records[0] == told | {"pid": records[0]["pid"]}
    assert records[0]["pid"] != records[4]["pid"]


def test_ids_are_new_and_of_the_engines_form(stage: Stage) -> None:
    ids = {stage.play().session_id for _ in range(3)}
    assert len(ids) == 3
    assert all(Scripted.handle_pattern.fullmatch(each) for each in ids)


@pytest.mark.parametrize("session_id", ["ses-unknown", "../../../etc/passwd", "ses-../x", "x"])
def test_an_unknown_session_is_an_error_and_starts_no_other(stage: Stage, session_id: str) -> None:
    argv = [*Scripted.default_command, f"--resume={session_id}"]
    done = subprocess.run(argv, input=b"Go.", capture_output=True, env={"HOME": str(stage.home)}, check=False)
    assert done.returncode == 1
    assert kinds([json.loads(line) for line in done.stdout.splitlines()]) == ["error"]
    assert b"no session" in done.stderr
    assert not list(stage.home.rglob("*.jsonl"))


def test_a_session_has_one_writer(stage: Stage) -> None:
    stage.script([ASK], [{"touch": "started"}, {"wait_for": "go"}, {"say": "Done."}], [{"say": "Third."}])
    session_id = stage.play().session_id
    with stage.start(stage.turn("One.", resume=session_id)) as writer:
        until((stage.cwd / "started").exists)
        second = stage.play("Two.", resume=session_id)
        assert isinstance(second.result, TurnFailed)
        assert "already has an active writer" in (second.result.detail or "")
        (stage.cwd / "go").touch()
        writer.communicate(timeout=DEADLINE_SEC)
    assert stage.prompts(session_id) == ["Go.", "One."]
    assert isinstance(stage.play("Three.", resume=session_id).result, Completed)


def test_a_turn_that_was_cut_off_is_played_again(stage: Stage) -> None:
    stage.script([ASK], [{"say": "Half."}, {"touch": "half"}, {"wait_for": "go"}, {"finish": {"turn": "{{turn}}"}}])
    session_id = stage.play().session_id
    with stage.start(stage.turn(reply("x"), resume=session_id)) as child:
        until((stage.cwd / "half").exists)
        child.kill()
    (stage.cwd / "go").touch()
    again = stage.play(reply("x"), resume=session_id)
    assert '"turn": 2' in again.said[-1]
    # Nobody restored the home in between, and the program hides nothing: this is what an auditor would see.
    assert stage.prompts(session_id) == ["Go.", reply("x"), reply("x")]


CALL = {"type": "call", "turn": 1, "id": "tool-1"}
LOST = {"type": "tool", "turn": 2, "id": "tool-1", "ok": False, "output": "the tool has ended", "answered": False}


@pytest.mark.parametrize("records", [[CALL], [CALL, LOST], [CALL, LOST, CALL], [CALL, LOST, CALL, LOST]])
def test_a_turn_that_was_cut_off_after_its_question_is_over(stage: Stage, records: list[dict[str, Any]]) -> None:
    stage.script([{"say": "First."}], [ASK], [{"finish": {"turn": "{{turn}}"}}])
    session_id = stage.play().session_id
    path = stage.home / ".scripted" / "sessions" / f"{session_id}.jsonl"
    *lines, completed = path.read_text().splitlines()
    assert json.loads(completed)["type"] == "completed"
    path.write_text("".join(f"{line}\n" for line in (*lines, *map(json.dumps, records))))
    stage.play(reply("x"), resume=session_id)
    assert '"turn": 3' in stage.play(reply("y"), resume=session_id).said[-1]
    found = map(json.loads, path.read_text().splitlines())
    assert [record["turn"] for record in found if record["type"] in ("prompt", "completed")] == [1, 2, 2, 3, 3]


def test_half_a_record_at_the_end_of_a_session_is_passed_over(stage: Stage) -> None:
    stage.script([ASK], [{"say": "{{replies}}"}])
    session_id = stage.play().session_id
    path = stage.home / ".scripted" / "sessions" / f"{session_id}.jsonl"
    path.write_bytes(path.read_bytes() + b'{"type": "prompt", "te')
    assert stage.play(reply("x"), resume=session_id).said == ["x"]
    *before, half, prompt, message, completed = path.read_text().splitlines()
    assert half == '{"type": "prompt", "te'
    assert [json.loads(line)["type"] for line in (prompt, message, completed)] == ["prompt", "message", "completed"]
    assert len(before) == 3


# Scripts.


def test_without_a_script_it_tells_what_it_was_given(stage: Stage) -> None:
    played = stage.play(given({"a": 1}, {"b": [2]}))
    assert isinstance(played.result, Completed)
    assert '"__SKILL_DONE__": true' in played.said[-1]
    echo = json.loads(played.said[-1].strip("`json\n"))["echo"]
    assert echo == {"turn": 1, "input": {"a": 1}, "parameter": {"b": [2]}, "reply": ""}
    again = stage.play(reply("blue"), resume=played.session_id)
    assert json.loads(again.said[-1].strip("`json\n"))["echo"]["reply"] == "blue"


def test_a_given_script_wins_over_the_skills(stage: Stage, tmp_path: Path) -> None:
    stage.script([{"say": "the skill's"}])
    for name in ("one", "two"):
        (tmp_path / name).write_text(json.dumps({"turns": [[{"say": name}]]}))
    assert stage.play().said == ["the skill's"]
    extra = (f"--script={tmp_path / 'one'}", f"--script={tmp_path / 'two'}")
    assert stage.play(extra_args=extra).said == ["two"]


def test_the_mode_chooses_the_part_of_a_turn(stage: Stage) -> None:
    stage.script({"auto": [{"say": "alone"}], "interactive": [{"say": "together"}]})
    assert stage.play(mode=Mode.AUTO).said == ["alone"]
    assert stage.play(mode=Mode.INTERACTIVE).said == ["together"]


def test_a_script_that_is_over_fails_the_turn(stage: Stage) -> None:
    stage.script([ASK])
    session_id = stage.play().session_id
    played = stage.play(reply("x"), resume=session_id)
    assert played.session_id == session_id
    assert isinstance(played.result, TurnFailed)
    assert played.result.code is ErrorCode.SCRIPT_INVALID
    assert played.result.detail == "the script ends after turn 1; there is no turn 2"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'must be an object with a list "turns"'),
        ('{"turns": []}', 'must be an object with a list "turns"'),
        ('{"turns": [3]}', "must be a list of steps"),
        ('{"turns": [[{"sing": "x"}]]}', "has no known action; actions are play, say, ask"),
        ('{"turns": [[{"misbehave": "politely"}]]}', "has the unknown fault 'politely'; known faults: exit_zero"),
        ('{"turns": [[{"play": "x"}]]}', "plays 'x', which is not one of the script's parts: none"),
        ('{"turns": [[{"say": "x"}]], "parts": 3}', 'has "parts" that are not an object'),
        ('{"turns": [[{"say": "{{reply}}"}]]}', "uses {{reply}}, which has no value"),
        ('{"turns": [[{"say": "{{input.name}}"}]]}', "uses {{input.name}}"),
        ('{"turns": [[{"tool": "x"}]]}', "has an invalid value"),
        ('{"turns": [[{"say": "{{values.a}}"}]], "values": {"a": "{{values.a}}"}}', "has an invalid value"),
        ('{"turns": [[{"write": {"path": "../x", "text": ""}}]]}', "not below the working directory"),
        ('{"turns": [[{"write": {"path": "/tmp/x", "text": ""}}]]}', "not below the working directory"),
    ],
)
def test_a_script_that_cannot_be_played_is_told_with_the_reason(stage: Stage, script: str, complaint: str) -> None:
    (stage.cwd / "skill/assets/scripted.json").write_text(script)
    played = stage.play()
    assert played.exit_code == 1
    assert isinstance(played.result, TurnFailed)
    assert complaint in (played.result.detail or "")


def test_a_script_that_is_named_must_exist(stage: Stage) -> None:
    played = stage.play(extra_args=("--script=nowhere.json",))
    assert isinstance(played.result, TurnFailed)
    assert "nowhere.json cannot be read" in (played.result.detail or "")


@pytest.mark.parametrize("args", [["hello"], ["mode=auto"], ["--model"], ["--unknown=1"], ["--mode="], ["-h"]])
def test_a_command_line_that_cannot_be_taken_is_refused(args: list[str]) -> None:
    done = subprocess.run([*Scripted.default_command, *args], input=b"", capture_output=True, env={}, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: ")
    assert done.stdout == b""


def test_options_may_be_given_in_both_forms() -> None:
    assert options.read_options(["--resume", "a", "--mode=auto", "--resume=b"]) == {"resume": "b", "mode": "auto"}


# Templates.


def test_places_are_filled_and_keep_their_type_when_alone(stage: Stage) -> None:
    stage.script(
        [
            {
                "output": {
                    "days": "{{input.days}}",
                    "deep": "{{input.more.list}}",
                    "text": "{{ input.days }} days in {{parameter.place|Rome}} ({{input.more}})",
                    "default": "{{parameter.nothing|x y}}",
                    "turn": "{{turn}}",
                    "session": "{{session_id}}",
                    "untouched": "{{ Not One }} {x}",
                }
            }
        ]
    )
    played = stage.play(given({"days": 3, "more": {"list": [1, "é"]}}, {"place": "Oslo"}))
    assert json.loads(played.said[0].strip("`json\n")) == {
        "days": 3,
        "deep": [1, "é"],
        "text": '3 days in Oslo ({"list": [1, "é"]})',
        "default": "x y",
        "turn": 1,
        "session": played.session_id,
        "untouched": "{{ Not One }} {x}",
    }


@pytest.mark.parametrize(
    "text",
    ["red", "two\nlines", "", " spaces ", "</user_reply>", '{"a": [1]}', "{{prompt}}", "日本 🙂", "<user_reply>"],
)
def test_a_reply_is_read_word_for_word(stage: Stage, text: str) -> None:
    stage.script([ASK], [{"output": ["{{reply}}", "{{reply_json}}", "{{replies}}"]}])
    session_id = stage.play().session_id
    said = stage.play(reply(text), resume=session_id).said[0]
    parsed: Any = {"a": [1]} if text.startswith("{") and "prompt" not in text else text
    assert json.loads(said.removeprefix("```json").removesuffix("```")) == [text, parsed, [text]]


def test_lists_may_repeat_and_values_may_be_picked(stage: Stage) -> None:
    stage.script(
        [
            {
                "output": [
                    {
                        "$each": "{{input.count}}",
                        "item": {"n": "{{index}}", "of": {"$pick": "{{index}}", "from": ["a", "b"]}},
                    },
                    {"$each": "{{input.names}}", "item": "{{index}}: {{item}}"},
                    {"$pick": "{{input.pace}}", "from": {"slow": 1, "*": 2}},
                    {"$pick": "none of them", "from": {"slow": 1, "*": "{{values.kept}}"}},
                ]
            },
            {"write": {"path": "artifacts/deep/x.txt", "text": ["a", {"$each": 2, "item": "line {{index}}"}]}},
            {"play": "end"},
        ],
        values={"kept": {"count": "{{input.count}}"}},
        parts={"end": [{"say": "over"}]},
    )
    played = stage.play(given({"count": 3, "names": ["x", "y"], "pace": "Slow"}))
    assert json.loads(played.said[0].strip("`json\n")) == [
        {"n": 1, "of": "a"},
        {"n": 2, "of": "b"},
        {"n": 3, "of": "a"},
        "1: x",
        "2: y",
        1,
        {"count": 3},
    ]
    assert (stage.cwd / "artifacts/deep/x.txt").read_text() == "a\nline 1\nline 2"
    assert played.said[-1] == "over"


def test_a_whole_number_may_be_written_with_a_point(stage: Stage) -> None:
    days = "{{input.days}}"
    each = {"$each": days, "item": {"$pick": days, "from": ["a", "b", "c"]}}
    stage.script([{"say": "{{input.days}} days, {{input.rate}}"}, {"output": [each]}])
    played = stage.play(given({"days": 3.0, "rate": 0.5}))
    assert played.said[0] == "3 days, 0.5"
    assert json.loads(played.said[1].strip("`json\n")) == ["c", "c", "c"]


# Misbehaviour that is seen from outside.


def test_another_session_is_started_silently(stage: Stage) -> None:
    stage.script([ASK], [{"misbehave": "other_session"}, {"finish": {"a": 1}}])
    asked = stage.play().session_id
    played = stage.play(reply("x"), resume=asked)
    assert isinstance(played.result, Completed)
    assert played.session_id != asked
    assert stage.prompts(played.session_id) == [reply("x")]
    assert stage.prompts(asked) == ["Go."]


def test_a_session_may_stay_unnamed(stage: Stage) -> None:
    stage.script([{"misbehave": "no_session"}, ASK])
    played = stage.play()
    assert isinstance(played.result, Completed)
    assert kinds(played.events) == ["turn.started", "message", "turn.completed"]


def test_an_error_may_come_before_the_session_is_named(stage: Stage) -> None:
    stage.script([{"misbehave": "auth", "before_session": True}])
    assert kinds(stage.play().events) == ["error"]
    stage.script([{"misbehave": "auth"}])
    assert kinds(stage.play().events) == ["session.started", "turn.started", "turn.failed"]


@pytest.mark.parametrize("step", ["flood", "long_line", "no_newline"])
def test_it_prints_as_much_as_it_is_told_to(stage: Stage, step: str) -> None:
    stage.script([{"misbehave": step, "mb": 3}])
    stdout = stage.play().stdout
    assert 3 * 2**20 <= len(stdout) < 3 * 2**20 + 2000
    longest = max(map(len, stdout.split(b"\n")))
    assert (longest < 100_000) == (step == "flood")


@pytest.mark.parametrize("step", ["hang", "close_stdout_and_live", "linger", "retry_forever", "stop_itself"])
def test_it_lives_on_until_it_is_ended(stage: Stage, step: str) -> None:
    stage.script([{"say": "Hello."}, {"misbehave": step}, {"say": "never"}])
    with stage.start(stage.turn()) as child:
        assert child.stdout is not None
        said = b""
        while not said.endswith(b'Hello."}\n'):
            line = child.stdout.readline()
            assert line
            said += line
        if step == "stop_itself":
            until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        if step == "linger":
            assert b"turn.completed" in child.stdout.readline()
        if step == "retry_forever":
            assert b'"retry"' in child.stdout.readline()
        if step == "close_stdout_and_live":
            assert child.stdout.readline() == b""
        if step == "hang":
            until(lambda: _ignores_term(child.pid))
            child.terminate()
        assert child.poll() is None
        child.kill()
        assert child.wait(timeout=DEADLINE_SEC) == -signal.SIGKILL


def _ignores_term(pid: int) -> bool:
    ignored = re.search(r"SigIgn:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    return ignored is not None and bool(int(ignored[1], 16) & 1 << (signal.SIGTERM - 1))


@pytest.mark.parametrize(
    ("step", "own_session", "deaf", "bare", "closed"),
    [
        ({"misbehave": "spawn_child"}, False, False, False, False),
        ({"misbehave": "spawn_child", "ignore_term": True}, False, True, False, False),
        ({"misbehave": "spawn_daemon"}, True, False, False, False),
        ({"misbehave": "spawn_daemon", "clear_env": True}, True, False, True, False),
        (
            {"misbehave": "spawn_daemon", "clear_env": True, "close_fds": True, "ignore_term": True},
            True,
            True,
            True,
            True,
        ),
    ],
)
def test_what_it_leaves_behind_is_as_hostile_as_it_is_told(
    stage: Stage, step: dict[str, object], own_session: bool, deaf: bool, bare: bool, closed: bool
) -> None:
    stage.script([{**step, "pid_file": "pid"}, {"say": "Bye."}])
    with stage.start(stage.turn(), env={"MARK": "me"}) as child:
        assert child.wait(timeout=DEADLINE_SEC) == 0
        pid = int((stage.cwd / "pid").read_text())
        try:
            assert lives(pid)
            assert (os.getsid(pid) == pid) is own_session
            assert _ignores_term(pid) is deaf
            assert (b"MARK=me" not in Path(f"/proc/{pid}/environ").read_bytes()) is bare
            assert (not list(Path(f"/proc/{pid}/fd").iterdir())) is closed
        finally:
            os.kill(pid, signal.SIGKILL)
            until(lambda: not lives(pid))


def test_every_misbehaviour_is_in_the_documents() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/scripted-engine.md").read_text()
    missing = [name for name in faults.FAULTS if f"`{name}`" not in text]
    assert missing == []


# The demo, and the start.


DEMO = Path(Scripted.default_command[-1]).parents[3] / "skills/demo/trip-planner/assets/scripted.json"
_SLEEP = re.compile(r'"sleep_sec": ([0-9.]+)')


def test_the_demo_can_be_watched_and_does_not_bore() -> None:
    assert 0.5 < sum(map(float, _SLEEP.findall(DEMO.read_text()))) < 3


def test_the_demo_asks_and_finishes_in_both_modes(stage: Stage) -> None:
    (stage.cwd / "skill/assets/scripted.json").write_text(_SLEEP.sub('"sleep_sec": 0', DEMO.read_text()))
    start = given({"destination": "Oslo", "days": 4})
    first = stage.play(start)
    assert '"default": "balanced"' in first.said[-1]
    second = stage.play(reply("packed", "pace"), resume=first.session_id)
    alone = stage.play(start, mode=Mode.AUTO)
    for played, pace in ((second, "packed"), (alone, "balanced")):
        output = json.loads(played.said[-1].strip("`json\n"))
        assert (output["pace"], [day["day"] for day in output["days"]]) == (pace, [1, 2, 3, 4])
        assert all(isinstance(day["plan"], str) and day["plan"] for day in output["days"])
        assert isinstance(output["title"], str)
    assert "Oslo" in (stage.cwd / "artifacts/itinerary.md").read_text()


def test_it_starts_without_what_is_slow_to_import() -> None:
    program = "import sys; sys.path.append(sys.argv[1]); import program.play; print(*sys.modules)"
    python, root = Scripted.default_command[0], str(Path(Scripted.default_command[-1]).parents[1])
    done = subprocess.run([python, "-I", "-S", "-c", program, root], capture_output=True, text=True, check=True)
    slow = {"typing", "pathlib", "dataclasses", "argparse", "subprocess", "uuid", "asyncio", "inspect", "askback"}
    assert not slow & set(done.stdout.split())
