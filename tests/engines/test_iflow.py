"""The engine `iflow`: what it starts, what it reads of a probe, what it makes of lines that no recording has, and turns
of the program that stands in for it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recordings import turn_of

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, Mode, ProfileKind, RunState, Usage
from askback.engines.base import (
    CallResult,
    Completed,
    Exit,
    Launch,
    Probe,
    SessionNamed,
    Stream,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.iflow import engine
from support.data_folder import World, events_of, over, reach, run_async, submit

ID = "session-8d8d71fe-fc2c-4de9-8878-9f1f3ac19168"
OTHER = "session-11111111-2222-4333-8444-555555555555"
HANDLE = Handle(engine="iflow", handle_type="session_id", handle_value=ID, created_at_turn=1)
FIRST = turn_of(engine(), {})
STAND_IN = (sys.executable, str(Path(__file__).with_name("iflow_stand_in.py")))


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


# What it starts.


@pytest.mark.contract("E-2")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_every_turn_executes_by_itself_and_thinks(mode: Mode, handle: Handle | None) -> None:
    assert launch(mode=mode, handle=handle).argv[:3] == ("iflow", "--yolo", "--thinking")


@pytest.mark.contract("H-9", "H-10", "E-4")
@pytest.mark.parametrize("mode", Mode)
def test_a_resume_keeps_the_arguments_and_adds_only_the_handle(mode: Mode) -> None:
    options = {"model": "m", "mode": mode, "extra_args": ("--max-turns", "9")}
    first, resumed = launch(**options), launch(handle=HANDLE, **options)
    assert first.argv == ("iflow", "--yolo", "--thinking", "--model=m", "--max-turns", "9")
    assert resumed.argv == (*first.argv, "--resume", ID)
    assert (resumed.env, resumed.files, resumed.stdin) == (first.env, first.files, first.stdin)


def test_it_is_told_that_it_has_no_user() -> None:
    made = launch()
    assert made.env["IFLOW_NON_INTERACTIVE"] == "true"
    assert made.files == {}


def test_signed_in_is_only_said_where_it_can_be_told() -> None:
    iflow = engine()
    assert iflow.signed_in([".iflow/oauth_creds.json"], []) is True
    assert iflow.signed_in([], ["IFLOW_API_KEY"]) is True
    assert iflow.signed_in([".iflow/settings.json"], ["PATH"]) is None
    assert iflow.signed_in([], ["PATH"]) is False


# The probe.


def probe(command: tuple[str, ...]) -> Probe:
    results = []
    for args in engine().probe_calls():
        done = subprocess.run((*command, *args), capture_output=True, text=True, env={}, check=False)
        results.append(CallResult(args=args, exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr))
    return engine().read_probe(results)


@pytest.mark.contract("P-1", "P-4")
def test_a_version_that_resumes_is_resumable() -> None:
    seen = probe(STAND_IN)
    assert (seen.kind, seen.version) == (ProfileKind.RESUMABLE, "0.5.19")
    assert "--resume" in seen.reason


@pytest.mark.contract("P-4")
def test_a_version_without_resume_is_sticky() -> None:
    printed = {("--help",): "Options:\n  -y, --yolo", ("--version",): "0.1.2"}
    results = [CallResult(args=args, exit_code=0, stdout=text, stderr="") for args, text in printed.items()]
    seen = engine().read_probe(results)
    assert (seen.kind, seen.version) == (ProfileKind.STICKY_PROCESS, "0.1.2")
    assert "does not offer --resume" in seen.reason


# What it prints.


def block(session: str | None = ID, **more: Any) -> str:
    named = {} if session is None else {"session-id": session}
    info = {**named, "assistantRounds": 1, "tokenUsage": {"input": 11, "output": 7, "total": 18}, **more}
    return f"\n<Execution Info>\n{json.dumps(info, indent=2)}\n</Execution Info>\n"


def read(stdout: str, stderr: str = "", ended: Exit | None = None) -> tuple[list[Any], Completed | TurnFailed]:
    parser = engine().parser(FIRST)
    fed = [(Stream.STDOUT, line) for line in stdout.split("\n")] + [
        (Stream.STDERR, line) for line in stderr.split("\n")
    ]
    seen = [one for stream, line in fed for one in parser.feed(stream, line.encode())]
    return seen, parser.finish(ended or Exit(code=0))


@pytest.mark.contract("H-5")
def test_the_session_is_named_by_the_execution_info() -> None:
    seen, result = read("Which colour?\n", block())
    usage = Usage(input_tokens=11, output_tokens=7, cached_tokens=None, total_tokens=18)
    assert seen == [SessionNamed(value=ID), UsageSeen(usage=usage), TurnOver()]
    assert result == Completed(messages=("Which colour?",))


@pytest.mark.contract("H-5")
def test_an_execution_info_on_one_line_is_read_as_well() -> None:
    seen, result = read("Hello.", f'x <Execution Info>{{"session-id": "{ID}"}}</Execution Info>')
    assert SessionNamed(value=ID) in seen
    assert result == Completed(messages=("Hello.",))


@pytest.mark.contract("H-5")
def test_an_execution_info_on_stdout_counts_where_there_is_no_other() -> None:
    _, result = read(f"Which colour?\n{block()}")
    assert result == Completed(messages=("Which colour?",), session=ID)
    _, result = read(f"Which colour?\n{block()}", block())
    assert result == Completed(messages=("Which colour?",))


@pytest.mark.contract("H-11", "T-7")
def test_an_execution_info_that_the_model_quotes_is_part_of_its_answer() -> None:
    quoting = f"It printed:\n{block(OTHER)}\nDo you see?"
    seen, result = read(quoting, block())
    assert [each.value for each in seen if isinstance(each, SessionNamed)] == [ID]
    assert result == Completed(messages=(quoting.strip(),))
    assert isinstance(read(quoting)[1], TurnFailed)


@pytest.mark.contract("H-11")
def test_a_true_resume_is_known_before_its_answer() -> None:
    seen, _ = read("", f"\nℹ️  Resuming session {ID} (2 messages loaded)\n")
    assert seen == [SessionNamed(value=ID)]


def test_lines_of_its_own_are_not_part_of_the_answer() -> None:
    noise = "Model glm-4.7 does not support thinking mode"
    stdout = f"Data collection is disabled.\n{noise}\nI paint.{noise}\nData collection is disabled.\n{noise}\nDone.\n"
    _, result = read(stdout, block())
    assert result == Completed(messages=("I paint.\nData collection is disabled.\nDone.",))


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    "stdout", ["", "\n", "Data collection is disabled.\nModel x does not support thinking mode\n\n"]
)
def test_a_turn_without_an_answer_is_no_success(stdout: str) -> None:
    _, result = read(stdout, block())
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.ENGINE_API_ERROR


TRIED = "Attempt 1 failed with 5xx error. Retrying with backoff... Error: "
GAVE_UP = "Error when talking to iFlow API Full report available at: x.json"


@pytest.mark.contract("X-9", "T-6")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("generate data error: HTTP error! status: 401, body: {}", ErrorCode.ENGINE_AUTH_REQUIRED),
        ("generate data error: HTTP error! status: 502, body: no api key, quota", ErrorCode.ENGINE_API_ERROR),
        ("This model has reached the platform rate limit", ErrorCode.ENGINE_RATE_LIMITED),
        ("generate data error: fetch failed", ErrorCode.ENGINE_UNREACHABLE),
        ("generate data error: terminated", ErrorCode.ENGINE_API_ERROR),
    ],
)
def test_a_request_that_was_given_up_is_no_success_whatever_was_said_before(words: str, code: ErrorCode) -> None:
    for stdout in ("", "I paint."):
        _, result = read(stdout, f"{TRIED}{words}\n    at x (iflow.js:429:13)\n{GAVE_UP}\n{block()}")
        assert isinstance(result, TurnFailed)
        assert (result.code, result.detail) == (code, words)


def test_a_request_that_came_through_at_last_is_a_success() -> None:
    _, result = read("Painted.", f"{TRIED}fetch failed\n{block()}")
    assert result == Completed(messages=("Painted.",))


@pytest.mark.contract("X-9")
def test_how_its_own_shutdown_went_says_nothing_of_the_turn() -> None:
    _, result = read("", f"{block()}Error shutting down SDK: Error: getaddrinfo EAI_AGAIN telemetry.example\n")
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.ENGINE_API_ERROR
    assert result.detail is None


@pytest.mark.contract("T-6")
def test_a_turn_that_it_cut_short_is_no_success() -> None:
    _, result = read("I paint.", block(terminationReason="max_turns_exceeded"))
    assert isinstance(result, TurnFailed)
    assert (result.code, result.detail) == (ErrorCode.ENGINE_CRASHED, "max_turns_exceeded")


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    ("code", "completed"), [(0, True), (-9, True), (-15, True), (143, True), (1, False), (41, False)]
)
def test_the_exit_counts_only_where_nobody_ended_it(code: int, completed: bool) -> None:
    _, result = read("Painted.", block(), Exit(code=code))
    assert isinstance(result, Completed) is completed


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    "info",
    ["<Execution Info>", "<Execution Info>\n{", block().replace("</Execution Info>", ""), block().replace("{", "")],
)
def test_a_broken_execution_info_ends_no_turn(info: str) -> None:
    for stdout, stderr in (("Painted.", info), (f"Painted.\n{info}", "")):
        seen, result = read(stdout, stderr)
        assert seen == []
        assert isinstance(result, TurnFailed)
        assert result.code is ErrorCode.ENGINE_CRASHED


@pytest.mark.contract("X-9")
def test_a_program_that_does_not_begin_says_why() -> None:
    for words, code in (
        (
            "Please set an Auth method in your settings.json or the variable IFLOW_API_KEY",
            ErrorCode.ENGINE_AUTH_REQUIRED,
        ),
        ("TypeError: x is not a function\n    at y (iflow.js:401:429)", ErrorCode.ENGINE_CRASHED),
    ):
        _, result = read("", words, Exit(code=1))
        assert isinstance(result, TurnFailed)
        assert result.code is code
        assert result.detail == words.split("\n")[0]


@pytest.mark.contract("X-9")
def test_a_time_out_is_told_as_what_the_engine_was_busy_with() -> None:
    for stderr, code in (
        ("", ErrorCode.TURN_TIMEOUT),
        (f"{TRIED}generate data error: fetch failed", ErrorCode.ENGINE_UNREACHABLE),
        (f"{TRIED}platform rate limit", ErrorCode.ENGINE_RATE_LIMITED),
        (f"{TRIED}generate data error: HTTP error! status: 502, body: {{}}", ErrorCode.ENGINE_API_ERROR),
        (f"{TRIED}no idea", ErrorCode.TURN_TIMEOUT),
    ):
        _, result = read("I think", stderr, Exit(code=-9, timed_out=True))
        assert isinstance(result, TurnFailed)
        assert result.code is code


def test_enormous_lines_cost_no_more_than_themselves() -> None:
    for line in (b"<Execution Info>" * 60_000, b"Model x " * 120_000, b"Attempt 1 failed" * 60_000, b"{" * 1_000_000):
        parser = engine().parser(FIRST)
        for stream in (*Stream, *Stream):
            list(parser.feed(stream, line))
        assert isinstance(parser.finish(Exit(code=0)), TurnFailed)


# Runs of a program that prints what it is told to.


def program(world: World, stdout: str, stderr: str) -> str:
    """The settings of a world whose iFlow prints this, whatever it is asked."""
    path = world.folder / "printing"
    path.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"if '--help' in sys.argv: print('--resume'); sys.exit()\n"
        f"sys.stdout.write({stdout!r})\nsys.stderr.write({stderr!r})\n"
    )
    path.chmod(0o755)
    return f'[engines.iflow]\ncommand = ["{path}"]\n'


@pytest.mark.contract("X-4")
def test_a_turn_that_would_wait_without_a_session_fails(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill, settings = world.skill(), program(world, "Which colour?\n", block(None))

    async def main() -> None:
        async with world.working(settings) as app:
            run = await over(app, (await submit(app, skill, engine="iflow")).id)
            assert run.state is RunState.FAILED
            assert run.error is not None
            assert run.error.code is ErrorCode.SESSION_RESUME_FAILED
            assert "waiting_user" not in [each.data.get("to") for each in await events_of(app, run.id)]

    run_async(main)


@pytest.mark.contract("X-4")
def test_a_turn_that_completes_needs_no_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill, settings = world.skill(), program(world, '{"colour": "red", "__SKILL_DONE__": true}\n', block(None))

    async def main() -> None:
        async with world.working(settings) as app:
            run = await over(app, (await submit(app, skill, engine="iflow")).id)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, None)

    run_async(main)


@pytest.mark.contract("H-1", "H-5")
def test_a_session_that_is_named_on_stdout_is_stored_before_the_run_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill, settings = world.skill(), program(world, f"Which colour?\n{block()}", "")

    async def main() -> None:
        async with world.working(settings) as app:
            run = await reach(app, (await submit(app, skill, engine="iflow")).id, RunState.WAITING_USER)
            assert run.handle == HANDLE
            said = [each.data["text"] for each in await events_of(app, run.id) if each.type == "assistant.message"]
            assert said == ["Which colour?"]

    run_async(main)
