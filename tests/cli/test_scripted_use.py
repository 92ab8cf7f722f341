"""The command line in scripts: one JSON document, the result alone on stdout, exit codes, and streams that are not there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from askback.core.runs import RunState
from askback.wire.server import Engine
from support.data_folder import ASK, FINISH, World
from support.program import ASKBACK, DEADLINE_SEC, Ran, Started, askback, environment, here, stored

FAIL = {"misbehave": "auth"}
SAY = {"say": "Let me see."}
TWO = ([{"ask": {"interaction_id": "a", "prompt": "A?"}}], [{"ask": {"interaction_id": "b", "prompt": "B?"}}])
BOTH = [{"finish": {"all": "{{replies}}"}}]


def run(world: World, *turns: Any, args: tuple[str, ...] = (), **rest: Any) -> Ran:
    return askback(world, "run", world.skill(*turns, **rest), "--engine", "scripted", *args)


def shell(world: World, script: str, **env: str) -> Ran:
    """`$ASKBACK` in the script stands for the program."""
    known = {"ASKBACK": " ".join(ASKBACK), **env}
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        env=environment(world, **known),
        cwd=here(world),
        timeout=DEADLINE_SEC,
        check=False,
    )
    stdout, stderr = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return Ran(code=done.returncode, stdout=stdout, stderr=stderr)


# Exit codes, and what goes where.


def test_only_the_result_goes_to_stdout(tmp_path: Path) -> None:
    ran = run(World(tmp_path), [SAY, {"finish": {"colour": "red"}}])
    assert (ran.code, ran.stdout) == (0, '{\n  "colour": "red"\n}\n')
    assert "  Let me see.\n" in ran.stderr
    assert "\x1b" not in ran.stderr


def test_a_result_that_is_a_text_is_printed_as_it_is(tmp_path: Path) -> None:
    ran = run(World(tmp_path), [{"finish": "All painted."}], args=("--mode", "interactive"), output=None)
    assert (ran.code, ran.stdout) == (0, "All painted.\n")


def test_a_run_that_fails_exits_with_1_and_says_why(tmp_path: Path) -> None:
    ran = run(World(tmp_path), [FAIL])
    assert (ran.code, ran.stdout) == (1, "")
    assert "✘ tested: failed" in ran.stderr
    assert "ENGINE_AUTH_REQUIRED" in ran.stderr


def test_without_a_terminal_the_run_is_left_waiting_with_its_question_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = run(world, [ASK], [FINISH], args=("--mode", "interactive"))
    assert (ran.code, ran.stdout) == (4, "")
    assert "  ? Which colour?\n    1) red\n    2) blue\n" in ran.stderr
    assert "askback reply" in ran.stderr
    assert "nobody is notified" not in ran.stderr


def test_a_run_that_is_left_waiting_says_that_nobody_is_notified(tmp_path: Path) -> None:
    world, channels = World(tmp_path), '[{"url": "https://ntfy.example/topic", "kind": "ntfy"}]'
    words = ("run", world.skill([ASK], [FINISH]), "--engine", "scripted", "--mode", "interactive")
    ran = askback(world, *words, env={"ASKBACK_WEBHOOKS": channels})
    assert ran.code == 4
    assert "nobody is notified of this question" in ran.stderr


def test_without_a_terminal_a_skill_that_may_do_both_does_not_ask(tmp_path: Path) -> None:
    script = {"interactive": [ASK], "auto": [{"finish": {"colour": "own choice"}}]}
    ran = run(World(tmp_path), script, args=("--json",))
    assert (ran.code, ran.json["mode"], ran.json["data"]) == (0, "auto", {"colour": "own choice"})


def test_answers_in_advance_are_used_in_order_and_one_too_many_is_told(tmp_path: Path) -> None:
    answers = ("--answer", "one", "--answer", "two", "--answer", "three")
    ran = run(World(tmp_path), *TWO, BOTH, args=answers, output={"type": "object"})
    assert (ran.code, json.loads(ran.stdout)) == (0, {"all": ["one", "two"]})
    assert "  ? A?\n  > one\n" in ran.stderr
    assert "! 1 answer given in advance had no question" in ran.stderr


def test_with_too_few_answers_the_run_waits_with_the_next_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = run(world, *TWO, BOTH, args=("--answer", "one", "--json"), output={"type": "object"})
    assert (ran.code, ran.json["pending_interaction"]["interaction_id"]) == (4, "b")
    ran = askback(world, "run", "--continue", ran.json["id"], "--answer", "two", "--json")
    assert (ran.code, ran.json["data"]) == (0, {"all": ["one", "two"]})


def test_an_empty_answer_takes_the_default_and_is_none_where_there_is_no_default(tmp_path: Path) -> None:
    with_default = [{"ask": {"interaction_id": "a", "prompt": "A?", "default": "blue"}}]
    ran = run(World(tmp_path / "with"), with_default, [FINISH], args=("--answer", ""))
    assert json.loads(ran.stdout) == {"colour": "blue"}
    ran = run(World(tmp_path / "without"), [ASK], [FINISH], args=("--answer", ""))
    assert (ran.code, ran.stdout) == (4, "")
    assert "an answer is required" in ran.stderr


def test_a_secret_answer_is_shown_nowhere(tmp_path: Path) -> None:
    world = World(tmp_path)
    secret = [{"ask": {"interaction_id": "key", "prompt": "Key?", "kind": "secret"}}]
    done = [{"finish": {"colour": "red"}}]
    ran = run(world, secret, done, args=("--answer", "hunter2", "--json"))
    assert ran.code == 0
    ran = run(world, secret, done, args=("--answer", "hunter2"))
    assert "  > (not shown)\n" in ran.stderr
    assert "hunter2" not in ran.stderr + ran.stdout


# Replies.


def waiting_run(world: World, *turns: Any) -> str:
    ran = run(world, *(turns or ([ASK], [FINISH])), args=("--mode", "interactive", "--json"))
    assert ran.code == 4, ran
    return str(ran.json["id"])


def test_reply_takes_its_text_from_the_command_line_or_from_a_pipe(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "reply", waiting_run(world), "2")
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "blue"})
    ran = askback(world, "reply", waiting_run(world), "--", "--json")
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "--json"})
    ran = askback(world, "reply", waiting_run(world), stdin="several\nlines – and more\n")
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "several\nlines – and more"})


def test_a_reply_from_a_pipe_must_be_a_text_that_is_not_too_long(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = waiting_run(world)
    for stdin, says in ((b"r\xffd", "is not UTF-8 text"), (b"x" * 2_000_000, "at most 1,048,576 bytes are allowed")):
        ran = askback(world, "reply", run_id, stdin=stdin)
        assert (ran.code, ran.stdout) == (2, "")
        assert says in ran.stderr
        assert "Traceback" not in ran.stderr
    assert stored(world, run_id).state is RunState.WAITING_USER
    ran = askback(world, "reply", run_id, stdin=b"nul \0 and all " * 1000)
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "nul \0 and all " * 1000})


def test_an_answer_without_end_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = shell(world, f"yes | $ASKBACK reply {waiting_run(world)}")
    assert "too long: at most 1,048,576 bytes" in ran.stderr


def test_a_reply_in_json_fits_a_form(tmp_path: Path) -> None:
    world = World(tmp_path)
    form = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    asks = [{"ask": {"interaction_id": "trip", "prompt": "Trip?", "response_schema": form}}]
    done = [{"finish": {"colour": "{{reply_json.days}} days"}}]
    ran = askback(world, "reply", waiting_run(world, asks, done), '{"days": 3}', "--json")
    assert (ran.code, ran.json["data"]) == (0, {"colour": "3 days"})


@pytest.mark.parametrize("text", ["three days", "[3]", '"three"'])
def test_a_reply_in_words_to_a_form_is_told_how_to_answer_it(tmp_path: Path, text: str) -> None:
    world = World(tmp_path)
    form = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    asks = [{"ask": {"interaction_id": "trip", "prompt": "Trip?", "response_schema": form}}]
    run_id = waiting_run(world, asks, [FINISH])
    ran = askback(world, "reply", run_id, text)
    assert ran.code == 2
    assert f"this question is a form; answer it with: askback reply {run_id}, or give a JSON object\n" in ran.stderr
    ran = askback(world, "reply", run_id, '{"nights": 3}')
    assert ran.code == 2
    assert "response.days: is required" in ran.stderr


def test_of_two_replies_the_second_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    run_id = waiting_run(world, [ASK], [{"wait_for": "go"}, FINISH])
    with Started(world, "reply", run_id, "red", "--interaction", "colour") as first:
        while stored(world, run_id).state is RunState.WAITING_USER:
            assert first.process.poll() is None, first.stderr
        second = askback(world, "reply", run_id, "blue", "--json")
        assert (second.code, second.json["error"]["code"]) == (2, "INTERACTION_NOT_PENDING")
        (world.data_dir / "runs" / run_id / "work" / "go").touch()
        assert json.loads(first.ended().stdout) == {"colour": "red"}


# Taking up.


def test_a_finished_run_that_is_taken_up_tells_its_result_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    done = run(world, [SAY, {"finish": {"colour": "red"}}], args=("--json",)).json
    ran = askback(world, "run", "--continue", done["id"])
    assert (ran.code, json.loads(ran.stdout)) == (0, {"colour": "red"})
    assert "✔ tested: succeeded" in ran.stderr
    again = askback(world, "run", "--continue", done["id"], "--json")
    assert (again.code, again.json) == (0, done)
    failed = run(world, [FAIL], args=("--json",))
    ran = askback(world, "run", "--continue", failed.json["id"])
    assert (failed.code, ran.code, ran.stdout) == (1, 1, "")


def test_an_unknown_run_is_answered_with_those_that_were_left(tmp_path: Path) -> None:
    world = World(tmp_path)
    ran = askback(world, "run", "--continue", "nosuch")
    assert ran.code == 2
    assert "there is no run 'nosuch'; no run can be continued" in ran.stderr
    run_id = waiting_run(world)
    ran = askback(world, "run", "--continue", "nosuch")
    assert f"  - {run_id} (tested) waits for an answer: Which colour?\n" in ran.stderr
    ran = askback(world, "reply", "nosuch", "red", "--json")
    assert ran.json["error"]["problems"] == [f"{run_id} (tested) waits for an answer: Which colour?"]


def test_a_run_that_a_living_program_keeps_is_not_taken_from_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"wait_for": "go"}, {"finish": {"colour": "red"}}])
    with Started(world, "run", skill, "--engine", "scripted") as first:
        run_id = first.run_id()
        refused = askback(world, "run", "--continue", run_id, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (2, "RUN_HELD")
        work = world.data_dir / "runs" / run_id / "work"
        work.mkdir(parents=True, exist_ok=True)
        (work / "go").touch()
        assert first.ended().code == 0


# One JSON document from every command.


def test_every_command_prints_one_json_document(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    installed = askback(world, "skills", "install", skill, "--json")
    assert (installed.code, installed.json["id"]) == (0, "tested")
    listed = askback(world, "skills", "--json")
    assert [(each["id"], each["source"]) for each in listed.json] == [("tested", "installed")]
    checked = askback(world, "skills", "check", skill, "--json").json
    assert (checked["ok"], checked["problems"], checked["skill"]["id"]) == (True, [], "tested")
    assert askback(world, "skills", "--json", "check", skill).json == checked
    (missing,) = askback(world, "skills", "check", str(tmp_path), "--json").json["problems"]
    assert (missing["severity"], missing["where"], bool(missing["fix"])) == ("error", "SKILL.md", True)
    engines = {each["name"]: each for each in askback(world, "engines", "--json").json}
    assert (engines["scripted"]["found"], engines["scripted"]["version"]) == (True, "1.0.0")
    assert all(msgspec.convert(each, Engine) for each in engines.values())
    doctor = askback(world, "doctor", "--json")
    assert doctor.code == (0 if doctor.json["ok"] else 1)
    assert {"python", "disk", "database"} <= {each["what"] for each in doctor.json["findings"]}
    ran = askback(world, "run", "tested", "--engine", "scripted", "--answer", "red", "--json")
    assert (ran.code, ran.stderr, ran.json["data"]) == (0, "", {"colour": "red"})
    demo = askback(world, "demo", "--json")
    assert (demo.code, demo.stderr, demo.json["data"]["pace"]) == (0, "", "balanced")


def test_doctor_tells_of_an_engine_that_cannot_be_loaded(tmp_path: Path) -> None:
    info = tmp_path / "theirs/theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[askback.engines]\nmine = no_such_module:engine\n")
    doctor = askback(World(tmp_path), "doctor", env={"PYTHONPATH": str(info.parent)}, warm=False)
    assert doctor.code == 1
    assert "✘ engine mine        no_such_module:engine failed: ModuleNotFoundError" in doctor.stdout


def test_every_command_also_speaks_to_people(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    assert "no skill is installed" in askback(world, "skills").stdout
    assert "✔ tested is installed" in askback(world, "skills", "install", skill).stdout
    assert "✔ tested" in askback(world, "skills").stdout
    assert "✔ tested can be run\n" in askback(world, "skills", "check", skill).stdout
    assert "✔ scripted" in askback(world, "engines").stdout
    assert "✔ database" in askback(world, "doctor").stdout


def test_checking_a_skill_shows_what_it_takes_and_returns(tmp_path: Path) -> None:
    world = World(tmp_path)
    days = {"type": "integer", "minimum": 1, "description": "How long."}
    given = {"type": "object", "required": ["days"], "properties": {"days": days, "pace": {"enum": ["slow", "fast"]}}}
    runner = {"version": "1.2.0", "engines": ["codx", "scripted"], "execution_modes": ["interactive"]}
    skill = world.skill([FINISH], schemas={"input": given}, runner=runner)
    checked = askback(world, "skills", "check", skill)
    assert (checked.code, checked.stdout.splitlines()) == (
        0,
        [
            "! assets/runner.json: engines: \"codx\" is unknown; did you mean 'codex'?",
            "✔ tested 1.2.0 can be run",
            "  inputs   days: whole number, at least 1 (How long)",
            "           pace, optional: slow | fast",
            "  modes    interactive",
            "  engines  codx, scripted",
            "  output   colour: text",
        ],
    )
    document = askback(world, "skills", "check", skill, "--json").json
    assert (document["ok"], document["skill"]["id"]) == (True, "tested")
    assert [each["severity"] for each in document["problems"]] == ["warning"]


@pytest.mark.contract("J-7")
def test_checking_a_package_for_skill_runner_says_what_is_honoured(tmp_path: Path) -> None:
    world = World(tmp_path)
    runner = {
        "runtime": {"default_options": {"hard_timeout_seconds": 1800, "no_cash": True}},
        "entrypoint": {"prompts": {"common": "{{ input.paper }}", "kilo": "x"}},
        "engine_configs": {"codex": "assets/codex.toml"},
    }
    given = {"type": "object", "properties": {"paper": {"type": "string"}}}
    page = {"type": "object", "properties": {"page": {"type": "string", "x-type": "artifact"}}}
    skill = world.skill([FINISH], schemas={"input": given}, runner=runner, output=page)
    checked = askback(world, "skills", "check", skill)
    unknown, ignored, engine, *lines = checked.stdout.splitlines()
    assert unknown.endswith("runtime.default_options.no_cash: is unknown; did you mean 'no_cache'?")
    assert ignored == "    → it is ignored until that is corrected"
    assert 'entrypoint.prompts: "kilo" is unknown' in engine
    assert (checked.code, lines) == (
        0,
        [
            "✔ tested can be run",
            "  inputs   paper, optional: file",
            "  modes    auto, interactive",
            "  engines  any",
            "  options  turn_timeout_sec=1800",
            "  output   page, optional: file",
            "  Fields of Skill-Runner:",
            "    ✔ runtime.default_options.hard_timeout_seconds: the default of the option `turn_timeout_sec`",
            "    ✔ entrypoint.prompts.common: a template for the first prompt; that of the engine, else `common`",
            "    - entrypoint.prompts.kilo is ignored: there is no engine with this name",
            "    - engine_configs.codex is ignored: a package must not configure an engine: use `engines.NAME` in the settings",
            "    ✔ input schema: no x-input-source: a file, if the package has a key that only Skill-Runner has",
            "    ✔ output schema: x-type: artifact: the file must exist when the run completes",
        ],
    )
    document = askback(world, "skills", "check", skill, "--json").json
    assert document["skill"]["options"] == {"turn_timeout_sec": 1800}
    assert {each["field"]: each["status"] for each in document["skill_runner"]} == {
        "runtime.default_options.hard_timeout_seconds": "honoured",
        "entrypoint.prompts.common": "honoured",
        "entrypoint.prompts.kilo": "ignored",
        "engine_configs.codex": "ignored",
        "input schema: no x-input-source": "honoured",
        "output schema: x-type: artifact": "honoured",
    }


def test_the_name_of_a_broken_skill_moves_no_cursor(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([FINISH], name="red\x1b[31m\x07")
    listed = askback(world, "skills", env={"ASKBACK_SKILLS_DIR": str(world.folder / "skills")})
    assert listed.stdout.startswith("✘ red ")
    assert not {"\x1b", "\x07"} & set(listed.stdout)


def test_options_of_a_group_hold_for_its_subcommands(tmp_path: Path) -> None:
    world = World(tmp_path)
    other = tmp_path / "other"
    skill = world.skill([ASK], [FINISH])
    assert askback(world, "skills", "--data-dir", str(other), "install", skill).code == 0
    assert askback(world, "skills", "--data-dir", str(other), "--json").json[0]["id"] == "tested"
    assert askback(world, "skills", "--json").json == []


def test_a_data_folder_on_the_command_line_is_meant_from_here(tmp_path: Path) -> None:
    world = World(tmp_path)
    (tmp_path / "askback.toml").write_text("slots = 1\n")
    skill = world.skill([ASK], [FINISH])
    args = ("skills", "install", skill, "--config", str(tmp_path / "askback.toml"), "--data-dir", "mine")
    assert askback(world, *args).code == 0
    assert (here(world) / "mine" / "skills" / "tested.json").exists()


# Streams that are not there, or cannot take what is written.


def test_a_stream_that_is_closed_is_no_reason_to_fail(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    command = f"$ASKBACK run {skill} --engine scripted --answer red"
    assert json.loads(shell(world, f"{command} <&-").stdout) == {"colour": "red"}
    without_stderr = shell(world, f"{command} 2>&-")
    assert (without_stderr.code, json.loads(without_stderr.stdout)) == (0, {"colour": "red"})
    assert shell(world, f"{command} >&-").code == 0
    assert shell(world, f"{command} <&- >&- 2>&-").code == 0


def test_a_reader_that_has_gone_gets_no_traceback(tmp_path: Path) -> None:
    world = World(tmp_path)
    for command in ("--help", "engines", "engines --json", "nosuch --json"):
        ran = shell(world, f"{{ $ASKBACK {command}; echo $? >code; }} | true")
        assert (here(world) / "code").read_text() == "1\n"
        assert ran.stderr == "", command


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    ran = shell(World(tmp_path), "$ASKBACK engines --json >/dev/full")
    assert (ran.code, ran.stderr) == (1, "askback: the output cannot be written: No space left on device\n")


def test_a_stream_of_few_characters_gets_the_others_escaped(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "grün 🎨"}}])
    command = f"$ASKBACK run {skill} --engine scripted"
    for encoding in ("ascii", "latin-1"):
        ran = shell(world, f"{command} --json", PYTHONIOENCODING=encoding)
        assert (ran.code, ran.json["data"]) == (0, {"colour": "grün 🎨"})
        ran = shell(world, command, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert ran.code == 0
        assert "\n+ tested: succeeded" in ran.stderr
