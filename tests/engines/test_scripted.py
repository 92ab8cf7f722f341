"""The engine `scripted`: what it starts, what it reads of a probe, and turns of the real program read by its parser."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from programs import Stage, reply

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines.base import (
    CallResult,
    Completed,
    Exit,
    HandleInvalid,
    Probe,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    UsageSeen,
)
from askback.engines.scripted import Scripted, ScriptedParser
from askback.questions.reading import read_answer

ID = "ses-0b8e9a52-1c1d-4e6f-8a3b-0123456789ab"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


# What it starts.


@pytest.mark.contract("E-4", "H-10")
def test_a_resume_keeps_the_arguments_and_adds_only_the_handle(stage: Stage) -> None:
    options = {"model": "m", "extra_args": ("--script=x.json",), "mode": Mode.AUTO}
    first = stage.engine.launch(stage.turn(**options))
    resumed = stage.engine.launch(stage.turn(resume=ID, **options))
    assert resumed.argv == (*first.argv, f"--resume={ID}")
    assert resumed.env == first.env


@pytest.mark.contract("E-5")
@pytest.mark.parametrize(
    "text", ["--version", "-x\n--help", "/quit", "@file", "x" * 1_000_000, "naïve 日本\x00🙂", "", " \n "]
)
def test_a_text_reaches_the_program_as_exactly_that_text(stage: Stage, text: str) -> None:
    launch = stage.engine.launch(stage.turn(text))
    assert text not in launch.argv
    stage.script([{"say": "{{prompt}}"}])
    played = stage.play(text)
    assert isinstance(played.result, Completed)
    assert stage.prompts(played.session_id) == [text]


@pytest.mark.contract("E-5")
@pytest.mark.parametrize("model", ["--resume=x", "-m", "a b\nc", "--help", "x" * 100_000])
def test_a_model_name_is_never_an_option(stage: Stage, model: str) -> None:
    played = stage.play(model=model)
    assert stage.session(played.session_id)[0]["model"] == model


@pytest.mark.contract("H-2", "H-13")
@pytest.mark.parametrize(
    "value", ["", "x", "../../etc/passwd", ID.upper(), ID + "\n", f"{ID} --help", "--help", ID[4:], "ses-" + "0" * 36]
)
def test_a_handle_of_another_form_never_reaches_a_command_line(stage: Stage, value: str) -> None:
    with pytest.raises(HandleInvalid):
        stage.engine.launch(stage.turn(resume=value))


@pytest.mark.contract("H-13")
def test_a_handle_of_another_engine_never_reaches_a_command_line(stage: Stage) -> None:
    turn = stage.turn()
    for engine, handle_type in (("codex", "session_id"), ("scripted", "name")):
        handle = Handle(engine=engine, handle_type=handle_type, handle_value=ID, created_at_turn=1)
        with pytest.raises(HandleInvalid):
            stage.engine.launch(type(turn)(**{**_fields(turn), "handle": handle}))


def _fields(turn: object) -> dict[str, object]:
    return {name: getattr(turn, name) for name in type(turn).__slots__}  # type: ignore[attr-defined]


# The probe.


def _probe(command: tuple[str, ...]) -> Probe:
    engine = Scripted()
    results = []
    for args in engine.probe_calls():
        done = subprocess.run((*command, *args), capture_output=True, text=True, env={}, check=False)
        results.append(CallResult(args=args, exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr))
    return engine.read_probe(results)


@pytest.mark.contract("P-1", "P-4")
def test_the_real_program_is_seen_to_resume() -> None:
    probe = _probe(Scripted.default_command)
    assert (probe.kind, probe.version) == (ProfileKind.RESUMABLE, "1.0.0")
    assert "--resume" in probe.reason


@pytest.mark.contract("P-4")
def test_a_version_without_resume_is_sticky_and_the_reason_says_what_was_seen(tmp_path: Path) -> None:
    wrapper = tmp_path / "old"
    program = " ".join(f"'{word}'" for word in Scripted.default_command)
    wrapper.write_text(f'#!/bin/sh\n{program} "$@" | grep -v resume\n')
    wrapper.chmod(0o755)
    probe = _probe((str(wrapper),))
    assert (probe.kind, probe.version) == (ProfileKind.STICKY_PROCESS, "1.0.0")
    assert "does not offer --resume" in probe.reason


@pytest.mark.contract("P-4")
@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        ([], "did not end in time"),
        ([CallResult(args=("--help",), exit_code=None, stdout="--resume", stderr="")], "did not end in time"),
        ([CallResult(args=("--help",), exit_code=127, stdout="--resume", stderr="")], "ended with 127"),
    ],
)
def test_a_probe_that_failed_proves_nothing(usage: list[CallResult], reason: str) -> None:
    probe = Scripted().read_probe(usage)
    assert probe.kind is ProfileKind.STICKY_PROCESS
    assert reason in probe.reason


# Turns of the real program.


@pytest.mark.contract("T-1", "T-7")
def test_a_turn_is_told_as_it_happens(stage: Stage) -> None:
    stage.script(
        [
            {"say": "First."},
            {"tool": {"name": "search", "detail": "what", "output": '{"ask_user": {}} __SKILL_DONE__', "ok": False}},
            {"usage": {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 2}},
            {"ask": {"interaction_id": "q", "prompt": "Which?"}},
        ]
    )
    played = stage.play()
    assert played.exit_code == 0
    assert played.seen[2:4] == (
        ToolStarted(call_id="tool-1", name="search", detail="what"),
        ToolEnded(call_id="tool-1", name="search", ok=False, output='{"ask_user": {}} __SKILL_DONE__'),
    )
    assert UsageSeen(usage=Usage(input_tokens=10, output_tokens=5, cached_tokens=2, total_tokens=15)) in played.seen
    assert isinstance(played.result, Completed)
    assert played.result.messages == tuple(played.said)
    answer = read_answer(played.result.messages, None)
    assert not answer.done
    assert answer.question is not None
    assert answer.question.interaction_id == "q"


@pytest.mark.contract("H-6")
def test_a_session_goes_on_in_another_process(stage: Stage) -> None:
    stage.script([{"ask": {"interaction_id": "q", "prompt": "Which?"}}], [{"finish": {"colour": "{{reply}}"}}])
    first = stage.play("Paint.")
    second = stage.play(reply("red"), resume=first.session_id)
    assert second.session_id == first.session_id
    assert read_answer(second.said, None).output == {"colour": "red"}
    assert stage.prompts(first.session_id) == ["Paint.", reply("red")]


@pytest.mark.contract("T-6", "X-9")
@pytest.mark.parametrize(
    ("step", "code"),
    [
        ({"misbehave": "exit_zero_without_result"}, ErrorCode.ENGINE_CRASHED),
        ({"misbehave": "exit_nonzero"}, ErrorCode.ENGINE_CRASHED),
        ({"misbehave": "crash"}, ErrorCode.ENGINE_CRASHED),
        ({"misbehave": "no_newline", "mb": 2}, ErrorCode.ENGINE_CRASHED),
        ({"misbehave": "auth"}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"misbehave": "auth", "exit_code": 0}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"misbehave": "auth", "before_session": True}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"misbehave": "rate_limit"}, ErrorCode.ENGINE_RATE_LIMITED),
        ({"misbehave": "unreachable"}, ErrorCode.ENGINE_UNREACHABLE),
        ({"misbehave": "api_error"}, ErrorCode.ENGINE_API_ERROR),
        ({"misbehave": "api_error", "message": "quota of {{turn}}"}, ErrorCode.ENGINE_RATE_LIMITED),
    ],
)
def test_a_turn_that_breaks_is_no_success_whatever_the_exit_code(
    stage: Stage, step: dict[str, object], code: ErrorCode
) -> None:
    stage.script([{"finish": {"colour": "red"}}, {"stderr": "my last words"}, step])
    played = stage.play()
    assert isinstance(played.result, TurnFailed)
    assert played.result.code is code
    assert played.result.detail


@pytest.mark.contract("T-6")
def test_the_programs_own_event_completes_a_turn_and_not_its_exit_code(stage: Stage) -> None:
    stage.script([{"say": "Hello."}])
    stdout = stage.play().stdout
    without_event = stdout.replace(b"turn.completed", b"turn.something")
    assert isinstance(stage.read(stdout, b"", 1).result, Completed)
    assert isinstance(stage.read(stdout, b"", -15).result, Completed)
    assert isinstance(stage.read(without_event, b"", 0).result, TurnFailed)


def test_the_end_of_a_turn_counts_without_its_newline(stage: Stage) -> None:
    stage.script([{"say": "Hello."}, {"misbehave": "unfinished_last_line"}])
    played = stage.play()
    assert not played.stdout.endswith(b"\n")
    assert isinstance(played.result, Completed)


def test_lines_that_are_not_events_are_passed_over(stage: Stage) -> None:
    stage.script(
        [
            {"misbehave": "invalid_utf8"},
            {"misbehave": "flood", "mb": 1},
            {"misbehave": "long_line", "mb": 1},
            {"say": "x"},
        ]
    )
    played = stage.play()
    assert isinstance(played.result, Completed)
    assert len(played.said) == 2
    assert "\ufffd" in played.said[0]


@pytest.mark.contract("X-9")
def test_a_turn_that_we_stopped_says_why() -> None:
    retry = b'{"type": "retry", "message": "waiting for network"}'
    for fed, ended, code in (
        (b"", Exit(code=-9, timed_out=True), ErrorCode.TURN_TIMEOUT),
        (b"", Exit(code=-9, over_limit=True), ErrorCode.OUTPUT_LIMIT_EXCEEDED),
        (retry, Exit(code=-9, timed_out=True), ErrorCode.ENGINE_UNREACHABLE),
        (retry, Exit(code=-9, over_limit=True), ErrorCode.OUTPUT_LIMIT_EXCEEDED),
        (retry, Exit(code=0), ErrorCode.ENGINE_CRASHED),
    ):
        parser = ScriptedParser()
        list(parser.feed(Stream.STDOUT, fed))
        result = parser.finish(ended)
        assert isinstance(result, TurnFailed)
        assert result.code is code


def test_a_failure_is_not_undone_by_a_later_completion() -> None:
    parser = ScriptedParser()
    for line in (b'{"type": "turn.failed", "error": {"message": "429"}}', b'{"type": "turn.completed"}'):
        list(parser.feed(Stream.STDOUT, line))
    result = parser.finish(Exit(code=0))
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.ENGINE_RATE_LIMITED


def test_nothing_of_the_users_python_reaches_the_program(stage: Stage, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    for module in ("json", "askback", "sitecustomize", "fcntl"):
        (trap / f"{module}.py").write_text(f"raise SystemExit('the trap {module}')")
    env = {
        "PYTHONPATH": str(trap),
        "PYTHONHOME": "/nonexistent",
        "PYTHONSTARTUP": str(trap / "json.py"),
        "PATH": "/bin",
    }
    (stage.cwd / "json.py").write_text("raise SystemExit('the trap in the working directory')")
    assert isinstance(stage.play(env=env).result, Completed)
    assert stage.engine.env_allow == ()


def test_the_program_is_started_by_this_python() -> None:
    assert Scripted.default_command[0] == sys.executable
    assert Path(Scripted.default_command[-1]).exists()
