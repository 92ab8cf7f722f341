"""The engine `opencode`: what it starts, what it reads of a probe, and what it makes of lines that no recording has."""

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
from askback.engines.opencode import engine

ID = "ses_e1f8e1785ffew2wnwmKWmx3ODK"
CHILD = "ses_e1f8e1785ffexxxxxxxxxxxxxx"
HANDLE = Handle(engine="opencode", handle_type="session_id", handle_value=ID, created_at_turn=1)
FIRST = turn_of(engine(), {})


def launch(**changes: Any) -> Launch:
    return engine().launch(replace(FIRST, **changes))


# What it starts.


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("handle", [None, HANDLE])
def test_every_turn_prints_events_and_executes_by_itself(mode: Mode, handle: Handle | None) -> None:
    argv = launch(mode=mode, handle=handle).argv
    assert argv[:5] == ("opencode", "run", "--format", "json", "--auto")


def test_an_old_version_is_given_the_flag_that_it_knows() -> None:
    old = Probe(kind=ProfileKind.RESUMABLE, reason="seen", features=("--dangerously-skip-permissions",))
    argv = launch(probe=old).argv
    assert "--dangerously-skip-permissions" in argv
    assert "--auto" not in argv


def test_its_home_is_private_and_no_file_of_the_user_is_written_over() -> None:
    made = launch()
    folders = {name: path for name, path in made.env.items() if name.startswith("XDG_")}
    assert len(folders) == 4
    assert all(path.startswith("/run/home/.") for path in folders.values())
    assert made.env["XDG_DATA_HOME"] + "/opencode/auth.json" == f"/run/home/{engine().credentials[0]}"
    assert made.files == {}


def test_signed_in_is_only_said_where_it_can_be_told() -> None:
    opencode = engine()
    assert opencode.signed_in(opencode.credentials, []) is True
    assert opencode.signed_in([], ["PATH", "ANTHROPIC_API_KEY"]) is True
    assert opencode.signed_in([], ["PATH"]) is None


# The probe.

RUN_HELP = (
    "opencode run [message..]\n\nrun opencode with a message\n\nOptions:\n  -s, --session  session id to continue\n"
)
PROGRAM_HELP = "Commands:\n  opencode run [message..]     run opencode with a message\n  -s, --session  session id\n"


ACP_HELP = "opencode acp\n\nstart ACP (Agent Client Protocol) server\n"


def probe(usage: str, version: str = "1.18.33\n", code: int | None = 0, acp_usage: str = ACP_HELP) -> Probe:
    usage_call, acp_call, version_call = engine().probe_calls()
    results = [
        CallResult(args=usage_call, exit_code=code, stdout="", stderr=usage),
        CallResult(args=acp_call, exit_code=code, stdout="", stderr=acp_usage),
        CallResult(args=version_call, exit_code=code, stdout=version, stderr=""),
    ]
    return engine().read_probe(results)


@pytest.mark.contract("P-1", "P-4")
def test_a_version_that_goes_on_with_sessions_is_resumable() -> None:
    seen = probe(f"{RUN_HELP}  --auto  auto-approve\n")
    assert (seen.kind, seen.version, seen.features) == (ProfileKind.RESUMABLE, "1.18.33", ())


@pytest.mark.contract("P-4")
def test_an_old_version_is_known_by_its_flag() -> None:
    seen = probe(f"{RUN_HELP}  --dangerously-skip-permissions\n", "0.15.3")
    assert (seen.kind, seen.features) == (ProfileKind.RESUMABLE, ("--dangerously-skip-permissions",))


@pytest.mark.contract("P-4")
@pytest.mark.parametrize("usage", [RUN_HELP.replace("--session", "--other"), PROGRAM_HELP, "", "garbage"])
def test_a_version_without_sessions_is_sticky(usage: str) -> None:
    seen = probe(usage)
    assert seen.kind is ProfileKind.STICKY_PROCESS
    assert "does not offer --session" in seen.reason


# What it prints.


def event(kind: str, part: dict[str, Any] | None = None, **rest: Any) -> bytes:
    return json.dumps({"type": kind, "sessionID": ID, "part": part or {}, **rest}).encode()


def finish(reason: str, **tokens: Any) -> bytes:
    return event("step_finish", {"type": "step-finish", "reason": reason, "tokens": tokens})


def text(said: str, part_id: str) -> bytes:
    return event("text", {"id": part_id, "type": "text", "text": said})


def log(level: str, rest: str) -> bytes:
    return f"timestamp=2026-11-15T20:59:04.901Z level={level} run=af54b081 {rest}".encode()


def failed_request(error: str, agent: str = "small=false agent=build", session: str = ID) -> bytes:
    return log(
        "ERROR", f'message="stream error" providerID=p session.id={session} {agent} mode=primary error.error="{error}"'
    )


def request(session: str = ID) -> bytes:
    return log(
        "INFO", f"message=stream providerID=p modelID=m session.id={session} small=false agent=build mode=primary"
    )


def read(
    *lines: bytes, logged: tuple[bytes, ...] = (), ended: Exit | None = None, resuming: bool = False
) -> tuple[list[Any], Completed | TurnFailed]:
    parser = parser_of(engine(), resuming=resuming)
    fed = [(Stream.STDERR, line) for line in logged] + [(Stream.STDOUT, line) for line in lines]
    seen = [one for stream, line in fed for one in parser.feed(stream, line)]
    return seen, parser.finish(ended or Exit(code=0))


STOP = finish("stop", input=100, output=20, reasoning=10, cache={"read": 15, "write": 5})


def test_tokens_of_all_steps_are_counted_with_what_was_cached_and_thought() -> None:
    seen, _ = read(finish("tool-calls", input=100, output=30, cache={"read": 20}), STOP)
    usages = [each.usage for each in seen if isinstance(each, UsageSeen)]
    assert usages[-1] == Usage(
        input_tokens=240, output_tokens=60, cached_tokens=35, total_tokens=300, reasoning_tokens=10
    )


@pytest.mark.contract("H-12")
def test_the_session_is_named_by_the_log_before_any_event() -> None:
    working = log("INFO", f"message=loop session.id={ID} step=0")
    helper = log("INFO", f"message=loop session.id={CHILD} step=0")
    seen, _ = read(STOP, logged=(working, helper))
    assert [each for each in seen if isinstance(each, SessionNamed)] == [SessionNamed(value=ID)]


@pytest.mark.contract("H-11")
def test_what_a_line_of_the_log_quotes_names_no_session() -> None:
    quoted = log("INFO", f'message=evaluated pattern="x level=INFO run=1 message=loop session.id={CHILD} step=0"')
    seen, _ = read(logged=(quoted, f"message=loop session.id={CHILD} step=0".encode()))
    assert seen == []


@pytest.mark.contract("H-11")
def test_another_session_than_before_is_told() -> None:
    other = json.dumps({"type": "step_start", "sessionID": CHILD, "part": {}}).encode()
    seen, _ = read(event("step_start"), other)
    assert seen == [SessionNamed(value=ID), SessionNamed(value=CHILD)]


def test_a_message_that_comes_twice_is_said_once() -> None:
    seen, result = read(text("one", "p1"), text("one", "p1"), text("two", "p2"), STOP)
    assert [each.text for each in seen if isinstance(each, AssistantMessage)] == ["one", "two"]
    assert result == Completed(messages=("one", "two"))


@pytest.mark.contract("T-7")
def test_only_texts_are_said() -> None:
    hidden = event("reasoning", {"type": "reasoning", "text": "__SKILL_DONE__"})
    tool = event("tool_use", {"tool": "bash", "callID": "c", "state": {"status": "error", "error": "__SKILL_DONE__"}})
    seen, result = read(hidden, tool, STOP)
    assert result == Completed(messages=())
    assert ToolStarted(call_id="c", name="bash") in seen
    assert ToolEnded(call_id="c", name="bash", ok=False, output="__SKILL_DONE__") in seen


@pytest.mark.contract("T-6")
@pytest.mark.parametrize("reason", ["length", "content-filter", "unknown", "other", "error", ""])
def test_a_step_that_the_model_did_not_end_by_itself_is_no_success(reason: str) -> None:
    seen, result = read(text("half an ans", "p1"), finish(reason))
    assert isinstance(result, TurnFailed)
    assert result.code is ErrorCode.ENGINE_API_ERROR
    assert result.detail is not None
    assert reason in result.detail
    assert TurnOver() in seen


@pytest.mark.contract("T-6")
def test_a_turn_that_goes_on_after_a_step_is_not_over() -> None:
    for lines in ((finish("tool-calls"),), (STOP, event("step_start")), ()):
        _, result = read(*lines)
        assert isinstance(result, TurnFailed)
        assert result.code is ErrorCode.ENGINE_CRASHED


@pytest.mark.contract("T-6", "X-9")
def test_the_last_word_on_the_turn_counts() -> None:
    error = event("error", error={"name": "APIError", "data": {"message": "x", "statusCode": 503}})
    _, broke = read(STOP, error)
    assert isinstance(broke, TurnFailed)
    assert broke.code is ErrorCode.ENGINE_API_ERROR
    # It tells of a conversation that has grown too long, makes it shorter, and goes on.
    assert read(error, event("step_start"), text("done", "p1"), STOP)[1] == Completed(messages=("done",))


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"name": "APIError", "data": {"message": "no", "statusCode": 403}}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"name": "ProviderAuthError", "data": {"message": "no"}}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"name": "APIError", "data": {"message": "quota of key", "statusCode": 429}}, ErrorCode.ENGINE_RATE_LIMITED),
        ({"name": "APIError", "data": {"message": "api key", "statusCode": 500}}, ErrorCode.ENGINE_API_ERROR),
        ({"name": "APIError", "data": {"message": "Unable to connect."}}, ErrorCode.ENGINE_UNREACHABLE),
        ({}, ErrorCode.ENGINE_API_ERROR),
    ],
)
def test_a_failure_is_known_by_its_status_and_else_by_its_words(error: dict[str, Any], code: ErrorCode) -> None:
    _, result = read(event("error", error=error), ended=Exit(code=1))
    assert isinstance(result, TurnFailed)
    assert result.code is code
    assert result.detail


@pytest.mark.contract("X-9")
def test_a_request_that_fails_again_and_again_ends_the_turn_soon() -> None:
    refused = failed_request("AI_APICallError: Cannot connect to API: Unable to connect.")
    for tries, over in ((2, False), (3, True), (4, True)):
        seen, result = read(logged=(refused,) * tries, ended=Exit(code=-15))
        assert (TurnOver() in seen) is over
        assert isinstance(result, TurnFailed)
        assert result.code is (ErrorCode.ENGINE_UNREACHABLE if over else ErrorCode.ENGINE_CRASHED)
    # Neither the title's request counts, nor a helper's, nor what failed before a step came through.
    working = log("INFO", f"message=loop session.id={ID} step=0")
    title = failed_request("x", agent="small=true agent=title")
    helper = failed_request("x", session=CHILD)
    for lines, logged in (
        ((), (title,) * 5),
        ((), (working, *(helper,) * 5)),
        ((finish("tool-calls"),), (refused,) * 2),
    ):
        assert TurnOver() not in read(*lines, logged=logged)[0]


@pytest.mark.contract("X-9")
def test_a_request_that_is_made_again_has_failed_also_where_the_log_does_not_say_so() -> None:
    working, told = log("INFO", f"message=loop session.id={ID} step=0"), failed_request("the socket was closed")
    for logged, over in (
        ((request(),) * 3, False),
        ((request(),) * 4, True),
        ((request(), told) * 2, False),
        ((request(), told) * 3, True),
        ((request(), told, request(), request(), told), True),
        ((request(), request(), request(), working) * 3, False),
        ((request(CHILD),) * 9, False),
    ):
        seen, result = read(logged=(working, *logged), ended=Exit(code=-15))
        assert (TurnOver() in seen) is over
        assert isinstance(result, TurnFailed)
        assert result.code is (ErrorCode.ENGINE_API_ERROR if over else ErrorCode.ENGINE_CRASHED)
        assert result.detail or not over


@pytest.mark.contract("X-9")
def test_a_time_out_is_told_as_what_the_engine_was_busy_with() -> None:
    out_of_time = Exit(code=-15, timed_out=True)
    refused = failed_request("Unable to connect.")
    elsewhere = log("ERROR", 'message="mcp failed" error="connect ECONNREFUSED"')
    for lines, logged, code in (
        ((), (refused,), ErrorCode.ENGINE_UNREACHABLE),
        ((), (failed_request("Too many requests"),), ErrorCode.ENGINE_RATE_LIMITED),
        ((), (failed_request("Internal Server Error"),), ErrorCode.ENGINE_API_ERROR),
        ((), (failed_request("Unauthorized"),), ErrorCode.ENGINE_AUTH_REQUIRED),
        ((), (failed_request("it went wrong"),), ErrorCode.TURN_TIMEOUT),
        ((finish("tool-calls"),), (refused,), ErrorCode.TURN_TIMEOUT),
        ((), (elsewhere,), ErrorCode.TURN_TIMEOUT),
    ):
        _, result = read(*lines, logged=logged, ended=out_of_time)
        assert isinstance(result, TurnFailed)
        assert result.code is code


@pytest.mark.contract("X-1")
def test_an_unknown_session_is_a_failed_resume_and_nothing_else_is() -> None:
    unknown = b"\x1b[91m\x1b[1mError: \x1b[0mSession not found"
    for lines, resuming, code in (
        ((), True, ErrorCode.SESSION_RESUME_FAILED),
        ((), False, ErrorCode.ENGINE_CRASHED),
        ((event("step_start"),), True, ErrorCode.ENGINE_CRASHED),
    ):
        _, result = read(*lines, logged=(unknown,), resuming=resuming, ended=Exit(code=1))
        assert isinstance(result, TurnFailed)
        assert (result.code, result.detail) == (code, "Error: Session not found")


def test_the_last_words_of_a_crash_are_not_drowned_by_the_log() -> None:
    invalid = b"Configuration is invalid at /run/home/.config/opencode/opencode.json"
    _, result = read(logged=(invalid, *(log("INFO", "message=init") for _ in range(500))), ended=Exit(code=1))
    assert isinstance(result, TurnFailed)
    assert result.detail == invalid.decode()


def test_an_enormous_log_line_costs_no_more_than_itself() -> None:
    for beginning in (log("ERROR", 'x error="'), log("ERROR", "message="), log("INFO", "message=loop "), b""):
        _, result = read(logged=(beginning + b'\\" error= ' * 1_000_000,))
        assert isinstance(result, TurnFailed)
