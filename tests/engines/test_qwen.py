"""The engine `qwen`: what it starts, what it reads of a probe, and what it makes of lines that no recording has."""

from __future__ import annotations

import json
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
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.qwen import EXCLUDE_TOOLS, engine

ID = "caf77313-2750-4058-95ef-458826ac9171"
HANDLE = Handle(engine="qwen", handle_type="session_id", handle_value=ID, created_at_turn=1)
FIRST = turn_of(engine(), {}, EXCLUDE_TOOLS)


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


def settings_in(started: Launch, variable: str) -> dict[str, Any]:
    """The settings file that a variable names; it must be one of those that are written."""
    path = started.env[variable].removeprefix("/run/home/")
    content: dict[str, Any] = json.loads(started.files[path])
    return content


# What it starts.


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_every_turn_prints_events_and_executes_by_itself(mode: Mode, handle: Handle | None) -> None:
    argv = launch(mode=mode, handle=handle).argv
    assert argv[:4] == ("qwen", "--output-format", "stream-json", "--yolo")


@pytest.mark.contract("T-8")
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_its_own_ways_of_asking_are_switched_off(handle: Handle | None) -> None:
    argv = launch(handle=handle).argv
    assert {"--exclude-tools=ask_user_question", "--exclude-tools=exit_plan_mode"} <= set(argv)
    old = Probe(kind=ProfileKind.RESUMABLE, reason="seen")
    assert not any("exclude" in word for word in launch(handle=handle, probe=old).argv)


@pytest.mark.contract("E-5")
@pytest.mark.parametrize(
    "text", ["--help", "/quit now", "@file a@b", "a\n/b", "x" * 1_000_000, "naïve 日本 🙂", " ", ""]
)
def test_a_prompt_follows_our_command_on_standard_input_and_is_nowhere_else(text: str) -> None:
    assert launch(prompt=text).stdin.decode() == f"/askback\n{text}"
    assert replace(launch(prompt=text), stdin=b"") == replace(launch(prompt="other"), stdin=b"")


@pytest.mark.contract("E-5")
def test_our_command_leaves_a_text_alone_and_is_not_offered_to_the_model() -> None:
    _, head, prompt = launch().files[".qwen/commands/askback.md"].decode().split("---\n")
    assert "disable-model-invocation: true" in head.splitlines()
    # With any of these in it, the text is split, run or filled with files.
    assert not any(sign in prompt for sign in ("{{", "!{", "@{"))


def test_the_settings_it_needs_are_laid_over_those_of_the_home_and_the_rest_under_them() -> None:
    started = launch()
    over = settings_in(started, "QWEN_CODE_SYSTEM_SETTINGS_PATH")
    under = settings_in(started, "QWEN_CODE_SYSTEM_DEFAULTS_PATH")
    assert over["memory"]["enableManagedAutoMemory"] is False
    assert over["security"] == {"folderTrust": {"enabled": False}}
    assert over["general"]["enableAutoUpdate"] is False
    assert over["model"] == {"skipLoopDetection": True}
    assert under["model"] == {"generationConfig": {"maxRetries": 0}}
    assert ".qwen/settings.json" not in started.files


def test_its_home_is_private() -> None:
    env = launch(env={"QWEN_HOME": "/elsewhere"}).env
    assert (env["QWEN_HOME"], env["QWEN_CODE_NO_RELAUNCH"]) == ("/run/home/.qwen", "true")


def test_a_key_says_which_way_to_sign_in_unless_the_user_chose_one() -> None:
    def chosen(**changes: Any) -> object:
        return settings_in(launch(**changes), "QWEN_CODE_SYSTEM_DEFAULTS_PATH").get("security")

    assert chosen(env={"OPENAI_API_KEY": "k"}) == {"auth": {"selectedType": "openai"}}
    assert chosen() is None
    lent = (".qwen/oauth_creds.json",)
    assert launch(credentials=lent).env["QWEN_OAUTH"] == "true"
    assert "QWEN_OAUTH" not in launch(credentials=lent, env={"ANTHROPIC_API_KEY": "k"}).env
    assert "QWEN_OAUTH" not in launch().env


def test_signed_in_by_key_and_else_unknown() -> None:
    qwen = engine()
    assert qwen.signed_in([], ["OPENAI_API_KEY"]) is True
    assert qwen.signed_in([".qwen/oauth_creds.json"], ["PATH"]) is None
    assert qwen.signed_in([], []) is None


# The probe.

HELP = '  -r, --resume  Resume a specific session.\n  -o, --output-format  [choices: "text", "json", "stream-json"]\n'


def probe(usage: str, code: int | None = 0) -> Probe:
    calls = zip(engine().probe_calls(), (usage, "0.15.10\n"), strict=True)
    return engine().read_probe([CallResult(args=args, exit_code=code, stdout=text, stderr="") for args, text in calls])


@pytest.mark.contract("P-1", "P-4")
def test_the_help_says_whether_it_resumes() -> None:
    seen = probe(HELP + "      --exclude-tools  Tools to exclude  [array]\n")
    assert (seen.kind, seen.version, seen.features) == (ProfileKind.RESUMABLE, "0.15.10", (EXCLUDE_TOOLS,))
    assert probe(HELP).features == ()
    old = probe(HELP.replace("stream-json", "lines"))
    assert (old.kind, old.reason) == (
        ProfileKind.STICKY_PROCESS,
        "its --help does not offer --resume and stream-json",
    )
    assert probe(HELP.replace("--resume", "--again")).kind is ProfileKind.STICKY_PROCESS


# What it prints.


def turn(
    *events: dict[str, Any], stderr: str = "", resuming: bool = False, ended: Exit | None = None
) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=resuming)
    seen = [one for each in events for one in parser.feed(Stream.STDOUT, json.dumps(each).encode())]
    seen += [one for line in stderr.splitlines() for one in parser.feed(Stream.STDERR, line.encode())]
    return seen, parser.finish(ended or Exit(code=0))


def message(words: str, **rest: Any) -> dict[str, Any]:
    content = [{"type": "thinking", "thinking": "__SKILL_DONE__"}, {"type": "text", "text": words}]
    return {"type": "assistant", "message": {"id": words, "role": "assistant", "content": content}, **rest}


def result(**rest: Any) -> dict[str, Any]:
    usage = {"input_tokens": 120, "output_tokens": 30, "cache_read_input_tokens": 20, "total_tokens": 150}
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "usage": usage, **rest}


def failure(*events: dict[str, Any], **rest: Any) -> TurnFailed:
    _, ended = turn(*events, **rest)
    assert isinstance(ended, TurnFailed)
    return ended


def test_the_session_is_named_by_its_start_and_not_by_its_end() -> None:
    assert turn({"type": "system", "subtype": "init", "session_id": ID})[0] == [SessionNamed(value=ID)]
    assert turn({"type": "system", "subtype": "init"})[0] == []
    assert not any(isinstance(each, SessionNamed) for each in turn(result(session_id=ID, is_error=True))[0])


def test_the_result_counts_the_whole_session() -> None:
    seen, ended = turn(message("Hi."), result())
    used = Usage(input_tokens=120, output_tokens=30, cached_tokens=20, total_tokens=150)
    assert seen == [AssistantMessage(text="Hi."), UsageSeen(usage=used, whole_session=True), TurnOver()]
    assert ended == Completed(messages=("Hi.",))


ERRORS = {
    "[API Error: 401 Incorrect API key provided]": ErrorCode.ENGINE_AUTH_REQUIRED,
    "[API Error: 429 no]\nPossible quota limitations in place. Please wait and try again later.": ErrorCode.ENGINE_RATE_LIMITED,
    "[API Error: 503 [overloaded]]": ErrorCode.ENGINE_API_ERROR,
    "[API Error: Connection error. (cause: fetch failed)]": ErrorCode.ENGINE_UNREACHABLE,
    "Qwen OAuth quota exceeded: no more today": ErrorCode.ENGINE_RATE_LIMITED,
    "Qwen OAuth free tier has been discontinued as of 2026-04-15.\n\nrun /auth": ErrorCode.ENGINE_AUTH_REQUIRED,
}


@pytest.mark.contract("T-6", "X-9")
@pytest.mark.parametrize("words", ERRORS)
def test_an_error_told_as_an_answer_is_no_success(words: str) -> None:
    seen, ended = turn(message(words), result(result=words))
    assert isinstance(ended, TurnFailed)
    assert (ended.code, ended.detail) == (ERRORS[words], words)
    assert not any(isinstance(each, AssistantMessage) for each in seen)


def test_megabytes_of_beginnings_of_errors_are_read_once() -> None:
    words = "[API Error: " * 100_000
    assert turn(message(words), result())[1] == Completed(messages=(words,))


@pytest.mark.contract("T-6")
def test_an_error_at_the_end_of_an_answer_is_no_success() -> None:
    broke = failure(message("It is going to[API Error: Model stream ended.]"), result())
    assert (broke.code, broke.detail) == (ErrorCode.ENGINE_API_ERROR, "[API Error: Model stream ended.]")


def test_an_answer_may_speak_of_errors() -> None:
    words = "The log says [API Error: 500], which\nis gone."
    assert turn(message(words), result())[1] == Completed(messages=(words,))
    helper = message("[API Error: 500]", parent_tool_use_id="t")
    assert turn(message("Hi."), helper, result())[1] == Completed(messages=("Hi.",))
    assert turn(message("[API Error: 500]"), message("Hi."), result())[1] == Completed(messages=("Hi.",))


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"type": "result", "subtype": "success"}],
        [result(is_error=True)],
        [result(subtype="error_during_execution")],
        [result(num_turns=0, result="Command executed successfully.")],
        [result(is_error=True), result()],
    ],
)
def test_a_turn_that_does_not_say_success_alone_is_none(events: list[dict[str, Any]]) -> None:
    failure(message("Hi."), *events)


@pytest.mark.contract("X-9")
def test_an_error_says_why() -> None:
    words = "No auth type is selected. Please configure an auth type."
    broke = failure(result(subtype="error_during_execution", is_error=True, error={"message": words}))
    assert (broke.code, broke.detail) == (ErrorCode.ENGINE_AUTH_REQUIRED, words)
    assert failure(result(subtype="error_max_turns", is_error=True)).detail == "error_max_turns"


@pytest.mark.contract("X-1", "X-9")
def test_an_unknown_session_is_one_only_on_a_resume() -> None:
    words = f"No saved session found with ID {ID}. Run `qwen --resume` without an ID."
    gone = Exit(code=1)
    assert failure(stderr=words, resuming=True, ended=gone).code is ErrorCode.SESSION_RESUME_FAILED
    assert failure(stderr=words, ended=gone).code is ErrorCode.ENGINE_CRASHED


@pytest.mark.contract("X-9")
def test_a_time_out_tells_what_it_said_last() -> None:
    broke = failure(stderr="Warning: stdin input truncated.", ended=Exit(code=-9, timed_out=True))
    assert (broke.code, broke.detail) == (ErrorCode.TURN_TIMEOUT, "Warning: stdin input truncated.")
    assert failure(ended=Exit(code=-9, over_limit=True)).code is ErrorCode.OUTPUT_LIMIT_EXCEEDED
