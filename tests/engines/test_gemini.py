"""The engine `gemini`: what it starts, what it reads of a probe, and what it makes of lines that no recording has."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from distortions import parser_of
from recordings import turn_of

from askback.core.errors import ErrorCode
from askback.core.runs import Handle, Mode, ProfileKind, Usage
from askback.engines.base import (
    AssistantMessage,
    CallResult,
    Completed,
    Exit,
    Launch,
    Probe,
    SessionNamed,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.gemini import STREAM, engine

ID = "b35e3c70-5591-45d7-94d0-0ff2ae0150d0"
HANDLE = Handle(engine="gemini", handle_type="session_id", handle_value=ID, created_at_turn=1)
FIRST = turn_of(engine(), {}, STREAM)


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


# What it starts.


@pytest.mark.contract("E-4", "H-8", "H-10")
@pytest.mark.parametrize("mode", Mode)
def test_a_resume_keeps_the_arguments_and_adds_only_the_handle(mode: Mode) -> None:
    options = {"model": "m", "mode": mode, "extra_args": ("--include-directories", "a")}
    first, resumed = launch(**options), launch(handle=HANDLE, **options)
    assert resumed == replace(first, argv=(*first.argv, "--resume", ID))


@pytest.mark.contract("E-1")
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_every_turn_prints_events_and_executes_by_itself(mode: Mode, handle: Handle | None) -> None:
    argv = launch(mode=mode, handle=handle).argv
    assert argv[:4] == ("gemini", "--output-format", "stream-json", "--yolo")


def test_a_version_without_events_is_asked_for_a_document() -> None:
    old = Probe(kind=ProfileKind.STICKY_PROCESS, reason="old")
    assert launch(probe=old).argv == ("gemini", "--output-format", "json", "--yolo")


@pytest.mark.contract("E-5")
@pytest.mark.parametrize(
    "text", ["--help", "/quit now", "@file a@b", "a\n/b", "x" * 1_000_000, "naïve 日本 🙂", " ", ""]
)
def test_a_prompt_follows_our_command_on_standard_input_and_is_nowhere_else(text: str) -> None:
    assert launch(prompt=text).stdin.decode() == f"/askback\n{text}"
    assert replace(launch(prompt=text), stdin=b"") == replace(launch(prompt="other"), stdin=b"")


@pytest.mark.contract("E-5")
def test_our_command_leaves_a_text_alone() -> None:
    (path, content), *others = launch().files.items()
    assert (path, others) == (".gemini/commands/askback.toml", [])
    prompt = tomllib.loads(content.decode())["prompt"]
    # With any of these in it, the text is split, run or filled with files.
    assert not any(sign in prompt for sign in ("{{", "!{", "@{"))


def test_without_a_model_the_choice_is_the_engines() -> None:
    assert not any("model" in word or word == "-m" for word in launch().argv)


@pytest.mark.contract("T-8")
def test_the_settings_it_needs_are_laid_over_those_of_the_home() -> None:
    started = launch()
    (path, content), *others = started.work_files.items()
    assert (path, others) == (".gemini/settings.json", [])
    assert path not in started.files
    settings = json.loads(content)
    assert settings["general"]["sessionRetention"] == {"enabled": False}
    assert settings["general"]["plan"] == {"enabled": False}
    assert settings["general"]["enableAutoUpdate"] is False
    assert settings["advanced"]["ignoreLocalEnv"] is True
    assert "auth" not in json.dumps(settings)


def test_its_home_is_private_and_its_workspace_trusted() -> None:
    env = launch(env={"GEMINI_CLI_HOME": "/elsewhere", "GEMINI_TELEMETRY_ENABLED": "true"}).env
    assert env["GEMINI_CLI_HOME"] == "/run/home"
    assert (env["GEMINI_CLI_TRUST_WORKSPACE"], env["GEMINI_CLI_NO_RELAUNCH"]) == ("true", "true")
    assert "GEMINI_TELEMETRY_ENABLED" not in env
    assert launch().env["GEMINI_TELEMETRY_ENABLED"] == "false"


def test_a_sign_in_is_used_where_there_is_no_key() -> None:
    lent = (".gemini/oauth_creds.json",)
    assert launch(credentials=lent).env["GOOGLE_GENAI_USE_GCA"] == "true"
    assert "GOOGLE_GENAI_USE_GCA" not in launch(credentials=lent, env={"GEMINI_API_KEY": "k"}).env
    assert "GOOGLE_GENAI_USE_GCA" not in launch(credentials=(".gemini/google_accounts.json",)).env


def test_signed_in_by_file_or_key() -> None:
    gemini = engine()
    assert gemini.signed_in([".gemini/oauth_creds.json"], []) is True
    for key in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        assert gemini.signed_in([], [key]) is True
    assert gemini.signed_in([".gemini/google_accounts.json"], ["GOOGLE_GEMINI_BASE_URL"]) is False


# The probe.

HELP = '  -r, --resume  Resume a previous session.\n  -o, --output-format  [choices: "text", "json", "stream-json"]\n'


def probe(usage: str, code: int | None = 0) -> Probe:
    calls = zip(engine().probe_calls(), (usage, "0.61.0\n"), strict=True)
    return engine().read_probe([CallResult(args=args, exit_code=code, stdout=text, stderr="") for args, text in calls])


@pytest.mark.contract("P-1", "P-4")
def test_the_help_says_whether_it_resumes() -> None:
    seen = probe(HELP)
    assert (seen.kind, seen.version, seen.features) == (ProfileKind.RESUMABLE, "0.61.0", (STREAM,))
    assert probe(HELP.replace(', "stream-json"', "")).features == ()
    old = probe(HELP.replace("--resume", "--again"))
    assert (old.kind, old.reason) == (ProfileKind.STICKY_PROCESS, "its --help does not offer --resume")


# What it prints.


def turn(
    *events: dict[str, Any], stderr: str = "", resuming: bool = False, ended: Exit | None = None
) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=resuming)
    seen = [one for each in events for one in parser.feed(Stream.STDOUT, json.dumps(each).encode())]
    seen += [one for line in stderr.splitlines() for one in parser.feed(Stream.STDERR, line.encode())]
    return seen, parser.finish(ended or Exit(code=0))


def piece(words: str, **rest: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": words, "delta": True, **rest}


def result(**rest: Any) -> dict[str, Any]:
    stats = {"total_tokens": 150, "input_tokens": 120, "output_tokens": 30, "cached": 20, "input": 100}
    return {"type": "result", "status": "success", "stats": stats, **rest}


def failure(*events: dict[str, Any], **rest: Any) -> TurnFailed:
    _, ended = turn(*events, **rest)
    assert isinstance(ended, TurnFailed)
    return ended


@pytest.mark.contract("H-4")
def test_the_session_is_named_at_the_start() -> None:
    assert turn({"type": "init", "session_id": ID, "model": "m"})[0] == [SessionNamed(value=ID)]
    assert turn({"type": "init"})[0] == []


def test_pieces_are_one_message_until_something_else_comes() -> None:
    call = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "t", "parameters": {"command": "ls"}}
    answer = {"type": "tool_result", "tool_id": "t", "status": "error", "error": {"type": "x", "message": "no"}}
    seen, ended = turn(piece("I "), piece("look."), call, answer, piece("Blue"), piece("."), result())
    assert seen == [
        AssistantMessage(text="I look."),
        ToolStarted(call_id="t", name="run_shell_command", detail="ls"),
        ToolEnded(call_id="t", name="run_shell_command", ok=False, output="no"),
        AssistantMessage(text="Blue."),
        UsageSeen(usage=Usage(input_tokens=120, output_tokens=30, cached_tokens=20, total_tokens=150)),
        TurnOver(),
    ]
    assert ended == Completed(messages=("I look.", "Blue."))
    whole = turn(piece("One.", delta=False), piece("Two.", delta=False), result())[1]
    assert whole == Completed(messages=("One.", "Two."))


@pytest.mark.contract("T-7")
def test_only_the_assistants_own_messages_are_said() -> None:
    seen, ended = turn({"type": "message", "role": "user", "content": "__SKILL_DONE__"}, piece("Hi."), result())
    assert [each.text for each in seen if isinstance(each, AssistantMessage)] == ["Hi."]
    assert ended == Completed(messages=("Hi.",))


def test_what_was_thought_counts_as_output() -> None:
    stats = {"total_tokens": 200, "input_tokens": 120, "output_tokens": 30, "cached": 0}
    usage = next(each.usage for each in turn(result(stats=stats))[0] if isinstance(each, UsageSeen))
    assert usage == Usage(input_tokens=120, output_tokens=80, total_tokens=200)


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"type": "result"}],
        [result(status="error")],
        [result(status="error"), result()],
        [{"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}, result()],
        [{"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}, result()],
    ],
)
def test_a_turn_that_does_not_say_success_alone_is_none(events: list[dict[str, Any]]) -> None:
    failure(piece("Hi."), *events)


@pytest.mark.contract("T-6")
def test_a_success_without_an_answer_is_none() -> None:
    broke = failure(result(stats={}), stderr="Ripgrep is not available.\nit stopped")
    assert (broke.code, broke.detail) == (ErrorCode.ENGINE_CRASHED, "it stopped")
    assert turn(result())[1] == Completed(messages=())


@pytest.mark.contract("X-9")
def test_a_turn_without_token_counts_may_be_a_success() -> None:
    call = {"type": "tool_use", "tool_name": "run_shell_command", "tool_id": "t", "parameters": {"command": "ls"}}
    assert turn(piece("Hi."), result(stats={}))[1] == Completed(messages=("Hi.",))
    assert turn(piece("Hi."), {"type": "result", "status": "success"})[1] == Completed(messages=("Hi.",))
    assert turn(call, result(stats={}))[1] == Completed(messages=())


def test_a_warning_is_no_failure() -> None:
    warning = {"type": "error", "severity": "warning", "message": "something is slow"}
    assert turn(piece("Hi."), warning, result())[1] == Completed(messages=("Hi.",))


@pytest.mark.contract("E-5")
def test_a_message_that_it_read_only_the_beginning_of_is_no_success() -> None:
    broke = failure(piece("Hi."), result(), stderr="Warning: stdin input truncated to 8388608 bytes.")
    assert broke.detail == "Warning: stdin input truncated to 8388608 bytes."


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ('[API Error: {"error":{"code":403,"status":"PERMISSION_DENIED"}}]', ErrorCode.ENGINE_AUTH_REQUIRED),
        ("[API Error: no]\nrequest a quota increase through AI Studio", ErrorCode.ENGINE_RATE_LIMITED),
        ("[API Error: the model is overloaded]", ErrorCode.ENGINE_API_ERROR),
        ("[API Error: exception TypeError: fetch failed sending request]", ErrorCode.ENGINE_UNREACHABLE),
    ],
)
def test_its_words_say_why(words: str, code: ErrorCode) -> None:
    broke = failure(result(status="error", error={"type": "unknown", "message": words}))
    assert (broke.code, broke.detail) == (code, words)


@pytest.mark.contract("X-1", "X-9")
def test_an_unknown_session_is_one_only_on_a_resume() -> None:
    words = 'Error resuming session: Invalid session identifier "x".'
    gone = Exit(code=42)
    assert failure(stderr=words, resuming=True, ended=gone).code is ErrorCode.SESSION_RESUME_FAILED
    assert failure(stderr=words, ended=gone).code is ErrorCode.ENGINE_CRASHED
    assert failure(stderr="whatever", ended=Exit(code=41)).code is ErrorCode.ENGINE_AUTH_REQUIRED


@pytest.mark.contract("X-9")
def test_a_time_out_is_told_as_what_the_engine_was_busy_with() -> None:
    out_of_time = Exit(code=-9, timed_out=True)
    retry = (
        "Attempt 2 failed. Retrying with backoff... Error: exception TypeError: fetch failed sending request\n  at x"
    )
    assert failure(stderr=retry, ended=out_of_time).code is ErrorCode.ENGINE_UNREACHABLE
    limited = failure(stderr="Attempt 1 failed with status 429. Retrying", ended=out_of_time)
    assert limited.code is ErrorCode.ENGINE_RATE_LIMITED
    assert limited.detail == "Attempt 1 failed with status 429. Retrying"
    failing = failure(stderr="Attempt 1 failed with status 503. Retrying", ended=out_of_time)
    assert failing.code is ErrorCode.ENGINE_API_ERROR
    parser = parser_of(engine(), resuming=False)
    for stream, line in ((Stream.STDERR, retry.encode()), (Stream.STDOUT, json.dumps(piece("Hi.")).encode())):
        list(parser.feed(stream, line))
    through = parser.finish(out_of_time)
    assert isinstance(through, TurnFailed)
    assert through.code is ErrorCode.TURN_TIMEOUT


# The document of older versions.


def document(**content: Any) -> list[bytes]:
    return json.dumps(content, indent=2).encode().split(b"\n")


def read(lines: list[bytes], stream: Stream, *, code: int = 0) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=False)
    return [one for line in lines for one in parser.feed(stream, line)], parser.finish(Exit(code=code))


@pytest.mark.contract("H-4", "T-6")
def test_a_document_is_an_answer_only_when_it_is_whole() -> None:
    lines = document(session_id=ID, response="Blue.", stats={"models": {"m": {"tokens": {"prompt": 3, "total": 5}}}})
    seen, ended = read([b"noise", b"{ noise", *lines, b"noise"], Stream.STDOUT)
    assert seen == [
        SessionNamed(value=ID),
        AssistantMessage(text="Blue."),
        UsageSeen(usage=Usage(input_tokens=3, output_tokens=2, total_tokens=5)),
        TurnOver(),
    ]
    assert ended == Completed(messages=("Blue.",))
    assert isinstance(read(lines[:-1], Stream.STDOUT)[1], TurnFailed)
    assert isinstance(read(lines, Stream.STDERR)[1], TurnFailed)
    assert isinstance(read(document(session_id=ID), Stream.STDOUT)[1], TurnFailed)


@pytest.mark.contract("X-9")
@pytest.mark.parametrize("stream", Stream)
def test_a_document_may_say_why_it_failed(stream: Stream) -> None:
    lines = document(session_id=ID, error={"type": "Error", "message": "no such luck", "code": 429})
    _, ended = read([b"    at x (y) {", b"  status: 429", b"}", *lines], stream, code=173)
    assert isinstance(ended, TurnFailed)
    assert (ended.code, ended.detail) == (ErrorCode.ENGINE_RATE_LIMITED, "no such luck")
    lines = document(error={"type": "Error", "message": "fetch failed", "code": 1}, response="Blue.")
    _, ended = read(lines, stream, code=1)
    assert isinstance(ended, TurnFailed)
    assert ended.code is ErrorCode.ENGINE_UNREACHABLE
