"""What the programs with a preset say when a request fails, as recorded: the code of the turn, and what is not a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest
from talks import conversation

from askback.core.errors import ErrorCode
from askback.core.runs import Usage
from askback.engines.base import Completed, Exit, Stream, TurnFailed, UsageSeen
from askback.engines.protocols.acp import AcpConversation


class Program:
    """The other side, in its first turn."""

    def __init__(self, engine: str) -> None:
        made = conversation(engine)
        assert isinstance(made, AcpConversation)
        self.talk = made
        self.seen: list[Any] = list(made.say("Go on"))
        self.tell(id=1, result={"protocolVersion": 1})
        self.tell(id=2, result={"sessionId": "s"})
        self.settle()

    def settle(self) -> None:
        """Accept every choice of options, so that the prompt is sent."""
        last = json.loads(self.seen[-1].data)
        while last["method"] != "session/prompt":
            self.tell(id=last["id"], result={})
            last = json.loads(self.seen[-1].data)
        self.prompt_id = last["id"]

    def tell(self, **message: Any) -> None:
        self.seen += self.talk.feed(Stream.STDOUT, json.dumps({"jsonrpc": "2.0", **message}).encode())

    def chunk(self, text: str) -> None:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.tell(method="session/update", params={"sessionId": "s", "update": update})

    def end(self, **usage: int) -> Completed | TurnFailed:
        self.tell(id=self.prompt_id, result={"stopReason": "end_turn", **({"usage": usage} if usage else {})})
        return self.talk.outcome()


@pytest.mark.contract("K-1", "X-9", "T-6")
@pytest.mark.parametrize(
    ("engine", "notices", "code"),
    [
        (
            "copilot",
            (
                "Info: Request failed due to a transient API error. Retrying...",
                "Error: Authentication failed (HTTP 401).",
            ),
            ErrorCode.ENGINE_AUTH_REQUIRED,
        ),
        ("copilot", ("Error: 429 Rate limit reached",), ErrorCode.ENGINE_RATE_LIMITED),
        (
            "copilot",
            ("Error: Could not connect to local model provider at http://127.0.0.1:1/v1.",),
            ErrorCode.ENGINE_UNREACHABLE,
        ),
        (
            "copilot",
            ("Error: Failed to get response from the AI model; retried 5 times. Last error: 500 Internal error",),
            ErrorCode.ENGINE_API_ERROR,
        ),
        ("pi", ("Retrying (attempt 1/3, waiting 2s)...", "Retry finished, resuming."), ErrorCode.ENGINE_API_ERROR),
        ("pi", (), ErrorCode.ENGINE_API_ERROR),
        ("kimi", (), ErrorCode.ENGINE_API_ERROR),
    ],
)
def test_a_turn_with_nothing_but_notices_has_failed(engine: str, notices: tuple[str, ...], code: ErrorCode) -> None:
    program = Program(engine)
    for notice in notices:
        program.chunk(notice)
    ended = program.end()
    assert isinstance(ended, TurnFailed)
    assert (ended.code, ended.detail) == (code, notices[-1] if notices else None)


@pytest.mark.contract("K-1")
def test_a_notice_before_an_answer_is_no_part_of_it() -> None:
    program = Program("pi")
    for text in ("Retrying (attempt 1/3, waiting 2s)...", "Retry finished, resuming.", "It is ", "blue."):
        program.chunk(text)
    assert program.end() == Completed(messages=("It is blue.",))


@pytest.mark.contract("X-9")
@pytest.mark.parametrize(
    ("engine", "method", "about", "code"),
    [
        (
            "grok",
            "_x.ai/session_notification",
            {"update": {"sessionUpdate": "retry_state", "reason": "API error (status 429 Too Many Requests)"}},
            ErrorCode.ENGINE_RATE_LIMITED,
        ),
        (
            "vibe",
            "_session/retrying",
            {"category": "server_error", "detail": "HTTP 500"},
            ErrorCode.ENGINE_API_ERROR,
        ),
        (
            "vibe",
            "_session/retrying",
            {"category": "connection", "detail": "ConnectError"},
            ErrorCode.ENGINE_UNREACHABLE,
        ),
        ("vibe", "_session/other", {"category": "connection", "detail": "ConnectError"}, ErrorCode.TURN_TIMEOUT),
    ],
)
def test_a_turn_whose_time_runs_out_has_the_code_of_what_is_retried(
    engine: str, method: str, about: dict[str, Any], code: ErrorCode
) -> None:
    program = Program(engine)
    program.tell(method=method, params={"sessionId": "s", **about})
    assert program.talk.finish(Exit(code=-9, timed_out=True)).code is code


@pytest.mark.parametrize(("engine", "of_second_turn"), [("copilot", 4), ("grok", 10), ("vibe", 10)])
def test_counts_of_a_process_become_those_of_the_turn(engine: str, of_second_turn: int) -> None:
    """Vibe counts the whole session, which is subtracted where the run is known."""
    program = Program(engine)
    program.chunk("One.")
    program.end(inputTokens=5, outputTokens=1, totalTokens=6)
    program.seen += program.talk.say("Go on")
    program.settle()
    program.chunk("Two.")
    program.end(inputTokens=8, outputTokens=2, totalTokens=10)
    last = [each for each in program.seen if isinstance(each, UsageSeen)][-1]
    assert (last.usage.total_tokens, last.whole_session) == (of_second_turn, engine == "vibe")
    assert isinstance(last.usage, Usage)
