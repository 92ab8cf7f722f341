"""The engine `claude`: what it starts, what it reads of a probe, and what it makes of lines that no recording has."""

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
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.claude import DEFERS, SETTINGS, engine

ID = "cbbac46f-d39e-4ff4-8672-cade0256c58f"
HANDLE = Handle(engine="claude", handle_type="session_id", handle_value=ID, created_at_turn=1)
FIRST = turn_of(engine(), {}, SETTINGS)


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


# What it starts.


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_every_turn_prints_events_and_executes_by_itself(mode: Mode, handle: Handle | None) -> None:
    argv = launch(mode=mode, handle=handle).argv
    assert {"-p", "--output-format=stream-json", "--verbose", "--dangerously-skip-permissions"} <= set(argv)


@pytest.mark.contract("T-8")
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_its_own_ways_of_asking_are_switched_off(handle: Handle | None) -> None:
    assert "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode" in launch(handle=handle).argv


@pytest.mark.contract("E-5")
def test_a_prompt_that_begins_with_a_slash_is_no_command() -> None:
    assert launch(prompt="/compact").stdin == b" /compact"


def test_its_home_is_private_and_a_user_may_have_other_manners() -> None:
    env = launch().env
    assert (env["CLAUDE_CONFIG_DIR"], env["IS_SANDBOX"]) == ("/run/home/.claude", "1")
    assert (env["DISABLE_AUTOUPDATER"], env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"]) == ("1", "1")
    assert env["CLAUDE_CODE_MAX_RETRIES"] == "2"
    assert "CLAUDE_CODE_MAX_RETRIES" not in launch(env={"CLAUDE_CODE_MAX_RETRIES": "10"}).env
    assert launch(env={"CLAUDE_CONFIG_DIR": "/elsewhere"}).env["CLAUDE_CONFIG_DIR"] == "/run/home/.claude"
    assert launch().files == {}


def test_sessions_are_kept_for_as_long_as_a_run_may_wait() -> None:
    (option,) = [word for word in launch().argv if word.startswith("--settings=")]
    assert json.loads(option.removeprefix("--settings="))["cleanupPeriodDays"] >= 3650
    old = Probe(kind=ProfileKind.RESUMABLE, reason="seen")
    assert not any(word.startswith("--settings") for word in launch(probe=old).argv)


def test_signed_in_by_file_or_key() -> None:
    claude = engine()
    assert claude.signed_in([".claude/.credentials.json"], []) is True
    for key in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        assert claude.signed_in([], [key]) is True
    assert claude.signed_in([], ["CLAUDE_CODE_USE_BEDROCK"]) is None
    assert claude.signed_in([], ["PATH"]) is False


# The probe.

HELP = 'Usage: claude [options]\n  --output-format <format>  "text", "json" or "stream-json"\n  -r, --resume [value]\n'


def probe(usage: str, code: int | None = 0) -> Probe:
    calls = zip(engine().probe_calls(), (usage, "2.1.325 (Claude Code)\n"), strict=True)
    return engine().read_probe([CallResult(args=args, exit_code=code, stdout=text, stderr="") for args, text in calls])


@pytest.mark.contract("P-1", "P-4")
def test_the_help_says_whether_it_resumes() -> None:
    seen = probe(HELP + "  --settings <file-or-json>\n")
    assert (seen.kind, seen.version, seen.features) == (ProfileKind.RESUMABLE, "2.1.325", (SETTINGS, DEFERS))
    assert probe(HELP).features == ()
    assert probe(HELP.replace("--resume", "--again")).kind is ProfileKind.STICKY_PROCESS
    assert probe(HELP.replace("stream-json", "lines")).kind is ProfileKind.STICKY_PROCESS


def test_calls_are_deferred_by_versions_that_are_known_to() -> None:
    def features(version: str) -> tuple[str, ...]:
        texts = (HELP + "  --settings <file-or-json>\n", version)
        calls = zip(engine().probe_calls(), texts, strict=True)
        found = [CallResult(args=args, exit_code=0, stdout=text, stderr="") for args, text in calls]
        return engine().read_probe(found).features

    assert [DEFERS in features(each) for each in ("2.1.324", "2.1.325", "2.2.0", "10.0.0", "1.9.999", "")] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]


TOOL = ("/usr/bin/python3", "/a folder/tool.py", "/run/ask.sock")


@pytest.mark.contract("F-5")
def test_a_deferred_call_is_resumed_without_a_prompt() -> None:
    able = turn_of(engine(), {}, SETTINGS, DEFERS)
    first, answered = replace(able, ask_tool=TOOL), replace(able, ask_tool=TOOL, deferred=True)
    assert "--hook /run/ask.sock" in repr(engine().launch(first).argv)
    assert engine().launch(first).stdin
    assert engine().launch(answered) == replace(engine().launch(first), stdin=b"")
    # A resident process holds its calls, and another version gets the answer as a message.
    assert "--hook" not in repr(engine().launch_resident(first).argv)
    assert "--hook" not in repr(engine().launch(able).argv)
    unable = replace(FIRST, ask_tool=TOOL, deferred=True)
    assert "--hook" not in repr(engine().launch(unable).argv)
    assert engine().launch(unable).stdin


# What it prints.


DEFERRED = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "stop_reason": "tool_deferred"}
INIT = {"type": "system", "subtype": "init", "session_id": "00000000-0000-4000-8000-000000000001"}


@pytest.mark.contract("F-5")
def test_a_deferred_call_ends_the_turn() -> None:
    _, result = turn(INIT, DEFERRED)
    assert isinstance(result, Completed)
    assert result.deferred
    # A call of an earlier turn that stays deferred does not end the turn of a new prompt.
    seen, result = turn(DEFERRED, INIT, {**DEFERRED, "stop_reason": "end_turn"}, resuming=True)
    assert isinstance(result, Completed)
    assert (result.deferred, [type(each) for each in seen].count(TurnOver)) == (False, 1)


def turn(
    *events: dict[str, Any], resuming: bool = False, ended: Exit | None = None
) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=resuming)
    seen = [one for each in events for one in parser.feed(Stream.STDOUT, json.dumps(each).encode())]
    return seen, parser.finish(ended or Exit(code=0))


def message(*blocks: dict[str, Any], by: str = "assistant", name: str = "msg_1", **rest: Any) -> dict[str, Any]:
    return {"type": by, "message": {"id": name, "role": by, "content": list(blocks)}, **rest}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(**rest: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Hi.", **rest}


def failure(*events: dict[str, Any], **rest: Any) -> TurnFailed:
    _, ended = turn(*events, **rest)
    assert isinstance(ended, TurnFailed)
    return ended


def test_the_session_is_named_by_its_start_and_not_by_its_end() -> None:
    seen, _ = turn({"type": "system", "subtype": "init", "session_id": ID})
    assert seen == [SessionNamed(value=ID)]
    seen, _ = turn(result(session_id=ID, is_error=True))
    assert not any(isinstance(each, SessionNamed) for each in seen)


def test_the_blocks_of_one_message_are_one_message() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls", "description": "look"}}
    answer = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": [text("no"), text("such")]}
    seen, ended = turn(
        message({"type": "thinking", "thinking": "__SKILL_DONE__"}),
        message(text("According to ")),
        message(text("the wall, it is blue.")),
        message(call),
        message(answer, by="user"),
        message(text("One."), name="msg_2"),
        message(text("Two."), name="msg_3"),
        result(),
    )
    assert seen[:5] == [
        AssistantMessage(text="According to the wall, it is blue."),
        ToolStarted(call_id="t", name="Bash", detail="ls"),
        ToolEnded(call_id="t", name="Bash", ok=False, output="no\nsuch"),
        AssistantMessage(text="One."),
        AssistantMessage(text="Two."),
    ]
    assert ended == Completed(messages=("According to the wall, it is blue.", "One.", "Two."))


@pytest.mark.contract("T-7")
def test_only_the_assistants_own_messages_are_said() -> None:
    seen, ended = turn(
        message(text("__SKILL_DONE__ says the user"), by="user"),
        message(text("__SKILL_DONE__ says the helper"), parent_tool_use_id="t"),
        {
            "type": "assistant",
            "message": {"model": "<synthetic>", "content": [text("__SKILL_DONE__ says the program")]},
        },
        message(text("Hi.")),
        result(),
    )
    assert [each.text for each in seen if isinstance(each, AssistantMessage)] == ["Hi."]
    assert ended == Completed(messages=("Hi.",))


def test_tokens_include_the_cache_and_the_helpers() -> None:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 30}
    one = {"inputTokens": 100, "cacheCreationInputTokens": 5, "cacheReadInputTokens": 20, "outputTokens": 30}
    alone, _ = turn(result(usage=usage, modelUsage={}))
    both, _ = turn(result(usage=usage, modelUsage={"a": one, "b": one, "c": 7}))
    assert alone[0] == UsageSeen(usage=Usage(input_tokens=125, output_tokens=30, cached_tokens=20, total_tokens=155))
    each = Usage(input_tokens=125, output_tokens=30, cached_tokens=20, total_tokens=155)
    assert both[0] == UsageSeen(usage=each + each, models={"a": each, "b": each})
    assert alone[1:] == [TurnOver()]


def test_tokens_of_earlier_processes_of_the_session_are_not_counted_again() -> None:
    one = {"inputTokens": 100, "outputTokens": 30, "cacheReadInputTokens": 20, "cacheCreationInputTokens": 0}
    two = {name: 2 * count for name, count in one.items()}
    first = result(modelUsage={"a": two}, model_usage_since_last_result={"a": one})
    resumed, _ = turn(first, result(modelUsage={"a": two}, model_usage_since_last_result={}))
    used = Usage(input_tokens=120, output_tokens=30, cached_tokens=20, total_tokens=150)
    counted = UsageSeen(usage=used, models={"a": used})
    assert [event for event in resumed if isinstance(event, UsageSeen)] == [counted, counted]


@pytest.mark.contract("E-5")
def test_a_path_in_a_prompt_is_not_replaced_with_the_file() -> None:
    for env in (launch(prompt="@secret.txt").env, engine().launch_resident(FIRST).env):
        assert env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"


@pytest.mark.contract("T-6")
@pytest.mark.parametrize(
    "end",
    [
        result(is_error=True),
        result(subtype="error_max_turns"),
        result(num_turns=0),
        result(stop_reason="refusal"),
        {"type": "result", "subtype": "success"},
    ],
)
def test_a_result_that_says_success_may_be_none(end: dict[str, Any]) -> None:
    failure(message(text("Hi.")), end)


@pytest.mark.contract("T-6")
def test_a_turn_in_which_no_model_was_asked_is_no_success() -> None:
    broke = failure(result(num_turns=0, result="/quit isn't available in this environment."))
    assert (broke.code, broke.detail) == (ErrorCode.ENGINE_CRASHED, "/quit isn't available in this environment.")


def test_a_model_that_ended_without_a_word_was_asked_all_the_same() -> None:
    assert turn(result(num_turns=2, result=""))[1] == Completed(messages=())


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (401, ErrorCode.ENGINE_AUTH_REQUIRED),
        (403, ErrorCode.ENGINE_AUTH_REQUIRED),
        (429, ErrorCode.ENGINE_RATE_LIMITED),
        (529, ErrorCode.ENGINE_API_ERROR),
        (400, ErrorCode.ENGINE_API_ERROR),
        (None, ErrorCode.ENGINE_UNREACHABLE),
    ],
)
def test_the_status_goes_before_the_words(status: int | None, code: ErrorCode) -> None:
    words = "API Error: Unable to connect to API (ConnectionRefused)"
    broke = failure(result(is_error=True, api_error_status=status, result=words))
    assert (broke.code, broke.detail) == (code, words)


@pytest.mark.contract("X-1")
def test_an_unknown_session_is_one_only_on_a_resume() -> None:
    end = result(
        is_error=True, subtype="error_during_execution", result=None, errors=["No conversation found with it", 7]
    )
    assert failure(end, resuming=True).code is ErrorCode.SESSION_RESUME_FAILED
    assert failure(end).code is ErrorCode.ENGINE_API_ERROR


@pytest.mark.contract("X-9")
def test_a_time_out_is_told_as_what_the_engine_was_busy_with() -> None:
    out_of_time = Exit(code=143, timed_out=True)
    retry = {"type": "system", "subtype": "api_retry", "error_status": None, "error": "unknown"}
    assert failure(retry, ended=out_of_time).code is ErrorCode.ENGINE_UNREACHABLE
    limited = failure({**retry, "error_status": 429, "error": "rate_limit"}, ended=out_of_time)
    assert (limited.code, limited.detail) == (ErrorCode.ENGINE_RATE_LIMITED, "API error 429: rate_limit")
    refused = {**retry, "error_status": 401, "error": "authentication_failed"}
    assert failure(refused, ended=out_of_time).code is ErrorCode.ENGINE_AUTH_REQUIRED
    assert failure({**retry, "error_status": 529}, ended=out_of_time).code is ErrorCode.ENGINE_API_ERROR
    assert failure({**retry, "error_status": 418}, ended=out_of_time).code is ErrorCode.TURN_TIMEOUT
    assert failure(retry, message(text("Hi.")), ended=out_of_time).code is ErrorCode.TURN_TIMEOUT
