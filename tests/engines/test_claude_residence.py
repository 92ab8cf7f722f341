"""A `claude` that stays: recorded talks, and what no recording has, told line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from distortions import distorted
from hypothesis import given
from recordings import turn_of
from replays import replay
from talks import FOLDER, lines_of

from askback.core.errors import ErrorCode
from askback.core.runs import Mode
from askback.engines.base import (
    Asked,
    AssistantMessage,
    CallResult,
    Completed,
    Conversation,
    EngineEvent,
    Exit,
    Reply,
    Send,
    SessionNamed,
    Stream,
    ToolEnded,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.claude import engine

BLUE = Reply(response="blue", answered=True)
LEFT_OPEN = Reply(response="nobody answered", answered=False)
COLOUR = {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}], "multiSelect": False}
SIZE = {"question": "How big?"}
DONE = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "x"}


def events_of(talk: Conversation, *events: dict[str, Any]) -> list[EngineEvent]:
    seen = [one for each in events for one in talk.feed(Stream.STDOUT, json.dumps(each).encode())]
    return [one for one in seen if not isinstance(one, UsageSeen)]


def sent(seen: Iterable[EngineEvent]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in seen if isinstance(each, Send)]


def said(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": text, "content": [{"type": "text", "text": text}]}}


def heard(number: int) -> dict[str, Any]:
    return {"type": "user", "isReplay": True, "uuid": f"00000000-0000-4000-8000-{number:012d}"}


def asking(*questions: dict[str, Any], request_id: str = "r") -> dict[str, Any]:
    request = {"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {"questions": list(questions)}}
    return {"type": "control_request", "request_id": request_id, "request": request}


def working() -> Conversation:
    """A talk whose first turn is under way."""
    talk = engine().conversation(turn_of(engine(), {}))
    list(talk.say("Go."))
    events_of(talk, heard(1))
    return talk


# Recorded talks.


@pytest.mark.contract("W-6", "E-5")
def test_two_messages_are_two_turns_of_one_session() -> None:
    first, second = replay("claude", "resident", "/paint the wall.", "Blue.")
    assert first.outcome == Completed(messages=("Which colour?",))
    assert second.outcome == Completed(messages=("Done.",))
    assert first.of(SessionNamed) == second.of(SessionNamed)
    assert [(each.name, each.ok) for each in second.of(ToolEnded)] == [("Bash", True)]
    (seen,) = second.of(UsageSeen)
    assert seen.whole_session
    assert (seen.usage.input_tokens, seen.usage.output_tokens, seen.usage.cached_tokens) == (360, 90, 60)
    assert seen.usage.cost_usd == pytest.approx(0.00378)


@pytest.mark.contract("T-8")
def test_its_own_questions_are_asked_and_answered_in_its_own_form() -> None:
    both = Reply(response={"answer_1": "red", "answer_2": ["red", "blue"]}, answered=True)
    first, second, last = replay("claude", "resident_asks", "Ask me.", ("In words.", BLUE), ("In words.", both))
    (one,) = first.of(Asked)
    assert (one.question.prompt, one.question.kind) == ("Which colour?", "choice")
    (form,) = second.of(Asked)
    assert [field["type"] for field in form.question.response_schema["properties"].values()] == ["string", "array"]
    assert last.of(ToolEnded)[0].output.count('"Which sizes?"="red, blue"') == 1
    assert last.outcome == Completed(messages=("Done.",))


def test_a_turn_that_it_began_by_itself_is_not_taken_for_ours() -> None:
    first, second = replay("claude", "resident_by_itself", "First.", "Second.")
    assert first.outcome == Completed(messages=("It runs.",))
    assert second.outcome == Completed(messages=("Answer.",))
    assert second.of(AssistantMessage) == [AssistantMessage(text="Answer.")]


@pytest.mark.contract("X-9")
def test_a_refused_key_is_told_as_one() -> None:
    (failed,) = replay("claude", "resident_http_401", "Hello.")
    assert isinstance(failed.outcome, TurnFailed)
    assert failed.outcome.code is ErrorCode.ENGINE_AUTH_REQUIRED


# What no recording has.


def test_a_failure_ends_the_turn_though_our_message_did_not_come_so_far() -> None:
    talk = engine().conversation(turn_of(engine(), {}))
    list(talk.say("Go."))
    assert events_of(talk, said("Not ours."), DONE) == []
    assert events_of(talk, {**DONE, "is_error": True, "api_error_status": 429}) == [TurnOver()]
    outcome = talk.outcome()
    assert isinstance(outcome, TurnFailed)
    assert outcome.code is ErrorCode.ENGINE_RATE_LIMITED


def test_tools_are_allowed_and_what_is_not_offered_is_refused() -> None:
    tool = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}}
    requests = [{"type": "control_request", "request_id": "a", "request": tool}]
    requests += [{"type": "control_request", "request_id": "b", "request": {"subtype": "hook_callback"}}]
    allowed, refused = (each["response"] for each in sent(events_of(working(), *requests)))
    assert allowed["response"] == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert (refused["request_id"], refused["subtype"]) == ("b", "error")


@pytest.mark.parametrize(("question", "behavior"), [(COLOUR, "allow"), (SIZE, "deny")])
def test_a_question_that_is_left_to_the_engine_takes_the_first_choice_or_none(question: Any, behavior: str) -> None:
    talk = working()
    assert isinstance(events_of(talk, asking(question))[0], Asked)
    (answer,) = sent(talk.say("Decide.", LEFT_OPEN))
    response = answer["response"]["response"]
    assert response["behavior"] == behavior
    assert behavior == "deny" or response["updatedInput"]["answers"] == {"Which colour?": "red"}


def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    talk = working()
    assert len(events_of(talk, said("Hm."), asking(COLOUR, request_id="a"), asking(SIZE, request_id="b"))) == 1
    answer, asked = talk.say("In words.", BLUE)
    assert sent([answer])[0]["response"]["request_id"] == "a"
    assert isinstance(asked, Asked)
    (answer,) = talk.say("In words.", BLUE)
    assert sent([answer])[0]["response"]["response"]["updatedInput"]["answers"] == {"How big?": "blue"}
    assert events_of(talk, said("Two."), DONE)[-1] == TurnOver()


def test_after_a_question_that_it_dropped_the_words_begin_a_turn() -> None:
    for dropped in ({"type": "control_cancel_request", "request_id": "r"}, DONE):
        talk = working()
        events_of(talk, asking(COLOUR))
        assert events_of(talk, dropped) == []
        (begun,) = sent(talk.say("The answer is blue.", BLUE))
        assert begun["message"]["content"] == "The answer is blue."


def test_nobody_is_asked_outside_of_a_turn() -> None:
    talk = working()
    assert events_of(talk, said("One."), DONE) == [AssistantMessage(text="One."), TurnOver()]
    assert events_of(talk, said("Late."), DONE) == []
    (answer,) = sent(events_of(talk, asking(COLOUR)))
    assert answer["response"]["response"]["behavior"] == "deny"


@pytest.mark.contract("X-9")
def test_time_that_ran_out_while_it_tried_to_connect_is_told_so() -> None:
    talk, late = working(), Exit(code=-9, timed_out=True)
    events_of(talk, {"type": "system", "subtype": "api_retry", "error_status": None})
    assert talk.finish(late).code is ErrorCode.ENGINE_UNREACHABLE
    events_of(talk, said("It got through."))
    assert talk.finish(late).code is ErrorCode.TURN_TIMEOUT
    list(talk.feed(Stream.STDERR, b"out of memory"))
    assert talk.finish(Exit(code=1)).detail == "out of memory"


@pytest.mark.contract("T-8")
def test_it_may_ask_only_where_somebody_answers() -> None:
    def forbidden(mode: Mode) -> str:
        argv = engine().launch_resident(turn_of(engine(), {"mode": mode})).argv
        return next(word for word in argv if word.startswith("--disallowedTools"))

    assert "AskUserQuestion" not in forbidden(Mode.INTERACTIVE)
    assert "AskUserQuestion" in forbidden(Mode.AUTO)


@pytest.mark.contract("P-1")
def test_a_version_that_takes_messages_and_repeats_them_can_stay() -> None:
    def probe(printed: str) -> bool:
        return engine().read_probe([CallResult(args=("--help",), exit_code=0, stdout=printed, stderr="")]).resident

    assert probe("--input-format <format> --replay-user-messages")
    assert not probe("--input-format <format>")
    assert not probe("--replay-user-messages")


CASES = ("resident", "resident_asks", "resident_by_itself")
LINES = [line for case in CASES for sign, line in lines_of(FOLDER / "claude" / case) if sign == "<"]


@given(distorted(LINES))
def test_nothing_makes_it_raise(lines: list[tuple[Stream, bytes]]) -> None:
    talk = working()
    for stream, line in lines:
        if any(isinstance(seen, TurnOver | Asked) for seen in talk.feed(stream, line)):
            talk.outcome()
            list(talk.say("Go on.", BLUE))
    assert isinstance(talk.finish(Exit(code=1)), TurnFailed)
