"""`codex app-server`: recorded talks, and what no recording has, told line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from distortions import distorted
from hypothesis import given
from recordings import turn_of
from replays import replay
from talks import FOLDER, lines_of, resident

from askback.core.errors import ErrorCode
from askback.core.interactions import Question
from askback.core.runs import Mode, ProfileKind, Usage
from askback.core.secrecy import Secrecy
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
from askback.engines.codex import engine

THREAD = "01a1e191-8db3-7422-bdea-c4288bc0f2c2"
BLUE = Reply(response="blue", answered=True)
LEFT_OPEN = Reply(response="nobody answered", answered=False)
COLOUR = {"id": "colour", "question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}
SIZE = {"id": "size", "question": "How big?"}


def events_of(talk: Conversation, *messages: dict[str, Any]) -> list[EngineEvent]:
    return [seen for each in messages for seen in talk.feed(Stream.STDOUT, json.dumps(each).encode())]


def sent(seen: Iterable[EngineEvent]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in seen if isinstance(each, Send)]


def event(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": THREAD, **params}}


def done(status: str = "completed", **error: Any) -> dict[str, Any]:
    return event("turn/completed", turn={"status": status, "error": error or None})


def said(text: str) -> dict[str, Any]:
    return event("item/completed", item={"type": "agentMessage", "id": "m", "text": text})


def asking(*questions: dict[str, Any], number: Any = 0) -> dict[str, Any]:
    return event("item/tool/requestUserInput", questions=list(questions)) | {"id": number}


def working(**about: Any) -> Conversation:
    """A talk whose first turn is under way."""
    talk = engine().conversation(turn_of(engine(), about))
    list(talk.say("Go."))
    events_of(talk, {"id": 1, "result": {}}, {"id": 2, "result": {"thread": {"id": THREAD}}}, {"id": 3, "result": {}})
    return talk


# Recorded talks.


@pytest.mark.contract("W-6", "H-3")
def test_two_turns_go_to_one_thread() -> None:
    first, second = replay("codex", "resident", "Paint the wall.", "Blue.")
    assert first.outcome == Completed(messages=("Which colour?",))
    assert len(first.of(SessionNamed)) == 1
    assert second.outcome == Completed(messages=("Done.",))
    assert second.of(SessionNamed) == []
    assert [(each.name, each.ok) for each in second.of(ToolEnded)] == [("command_execution", True)]
    usage = Usage(input_tokens=360, output_tokens=90, cached_tokens=60, total_tokens=450, reasoning_tokens=0)
    assert second.of(UsageSeen)[-1] == UsageSeen(usage=usage, whole_session=True)


@pytest.mark.contract("T-8")
def test_its_own_questions_are_asked_and_answered_in_its_own_form() -> None:
    both = Reply(response={"answer_1": "red", "answer_2": "huge"}, answered=True)
    first, second, last = replay("codex", "resident_asks", "Ask me.", ("In words.", BLUE), ("In words.", both))
    (one,) = first.of(Asked)
    assert (one.question.prompt, one.question.interaction_id, one.question.kind) == (
        "Which colour?",
        "colour",
        "choice",
    )
    assert [option["label"] for option in one.question.options] == ["red", "blue"]
    (form,) = second.of(Asked)
    assert list(form.question.response_schema["properties"]) == ["answer_1", "answer_2"]
    assert last.outcome == Completed(messages=("Done.",))


@pytest.mark.contract("X-9")
def test_a_turn_that_failed_does_not_end_the_talk() -> None:
    failed, after = replay("codex", "resident_http_401", "Hello.", "Again.")
    assert isinstance(failed.outcome, TurnFailed)
    assert failed.outcome.code is ErrorCode.ENGINE_AUTH_REQUIRED
    assert after.outcome == Completed(messages=("There.",))


# What no recording has.


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "no", "codexErrorInfo": {"httpConnectionFailed": {"httpStatusCode": 429}}}, "ENGINE_RATE_LIMITED"),
        ({"message": "no", "codexErrorInfo": "usageLimitExceeded"}, "ENGINE_RATE_LIMITED"),
        ({"message": "no", "codexErrorInfo": "unauthorized"}, "ENGINE_AUTH_REQUIRED"),
        ({"message": "error sending request", "codexErrorInfo": {"x": {"httpStatusCode": None}}}, "ENGINE_UNREACHABLE"),
        ({"message": "no"}, "ENGINE_API_ERROR"),
        ({}, "ENGINE_API_ERROR"),
    ],
)
def test_why_a_turn_failed_is_read_from_its_error(error: dict[str, Any], code: str) -> None:
    talk = working()
    assert events_of(talk, said("Half."), done("failed", **error))[-1] == TurnOver()
    outcome = talk.outcome()
    assert isinstance(outcome, TurnFailed)
    assert outcome.code == code


def test_a_turn_that_was_broken_off_is_no_success() -> None:
    talk = working()
    assert events_of(talk, done("interrupted")) == [TurnOver()]
    outcome = talk.outcome()
    assert isinstance(outcome, TurnFailed)
    assert outcome.code is ErrorCode.ENGINE_CRASHED


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_refused_request_ends_the_turn_and_the_next_begins_where_it_stopped(at: int) -> None:
    talk = engine().conversation(turn_of(engine(), {}))
    list(talk.say("Go."))
    events_of(talk, *({"id": number, "result": {"thread": {"id": THREAD}}} for number in range(1, at)))
    assert events_of(talk, {"id": at, "error": {"code": -32600, "message": "not logged in"}}) == [TurnOver()]
    outcome = talk.outcome()
    assert isinstance(outcome, TurnFailed)
    assert (outcome.code, outcome.detail) == (ErrorCode.ENGINE_AUTH_REQUIRED, "not logged in")
    (again,) = sent(talk.say("Again."))
    assert again["method"] == ["initialize", "thread/start", "turn/start"][at - 1]


def test_approvals_are_given_and_what_is_not_offered_is_refused() -> None:
    talk, permissions = working(), {"network": {"enabled": True}, "fileSystem": None, "other": 1}
    requests = [
        event("item/commandExecution/requestApproval") | {"id": "a"},
        event("item/fileChange/requestApproval") | {"id": "b"},
        event("execCommandApproval") | {"id": 0},
        event("item/permissions/requestApproval", permissions=permissions) | {"id": 1},
        event("mcpServer/elicitation/request", mode="url", message="Open this.") | {"id": 2},
        asking(number=3),
        event("attestation/generate") | {"id": 4},
    ]
    answers = {each["id"]: each.get("result", each.get("error")) for each in sent(events_of(talk, *requests))}
    assert answers.pop(4)["code"] == -32601
    assert answers == {
        "a": {"decision": "accept"},
        "b": {"decision": "accept"},
        0: {"decision": "approved"},
        1: {"permissions": {"network": {"enabled": True}, "fileSystem": None}},
        2: {"action": "decline"},
        3: {"answers": {}},
    }


@pytest.mark.parametrize(
    ("questions", "answers"),
    [([COLOUR], {"colour": {"answers": ["red"]}}), ([SIZE], {}), ([COLOUR, SIZE], {})],
)
def test_a_question_that_is_left_to_the_engine_takes_the_first_choice_or_none(questions: Any, answers: Any) -> None:
    talk = working()
    events_of(talk, asking(*questions))
    assert sent(talk.say("Decide.", LEFT_OPEN)) == [{"id": 0, "result": {"answers": answers}}]


def test_a_secret_is_asked_as_one() -> None:
    (asked,) = events_of(working(), asking({**SIZE, "isSecret": True}))
    assert asked == Asked(question=Question(prompt="How big?", interaction_id="size", kind="secret"))


def test_a_secret_among_several_questions_is_a_secret_field() -> None:
    (asked,) = events_of(working(), asking(COLOUR, {**SIZE, "isSecret": True}))
    assert isinstance(asked, Asked)
    assert Secrecy.by(asked.question.response_schema) == Secrecy(fields=frozenset({"answer_2"}))


def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    talk = working()
    assert len(events_of(talk, asking(COLOUR, number=7), asking(SIZE, number="x"))) == 1
    answer, asked = talk.say("In words.", BLUE)
    assert sent([answer]) == [{"id": 7, "result": {"answers": {"colour": {"answers": ["blue"]}}}}]
    assert isinstance(asked, Asked)
    assert sent(talk.say("In words.", BLUE)) == [{"id": "x", "result": {"answers": {"size": {"answers": ["blue"]}}}}]


def test_after_a_question_that_it_dropped_the_words_begin_a_turn() -> None:
    talk = working()
    events_of(talk, asking(COLOUR), said("Meanwhile."))
    assert events_of(talk, event("serverRequest/resolved", requestId=0)) == []
    (begun,) = sent(talk.say("The answer is blue.", BLUE))
    assert begun["params"]["input"] == [{"type": "text", "text": "The answer is blue."}]


def test_what_comes_between_turns_or_of_other_threads_belongs_to_no_turn() -> None:
    talk = working()
    other = event("item/completed", item={"type": "agentMessage", "text": "Helper."})
    other["params"]["threadId"] = "other"
    assert events_of(talk, other, said("One."), done()) == [AssistantMessage(text="One."), TurnOver()]
    assert events_of(talk, said("Late."), done()) == []
    assert sent(events_of(talk, asking(COLOUR))) == [{"id": 0, "result": {"answers": {}}}]
    list(talk.say("Next."))
    assert events_of(talk, said("Two."), done()) == [AssistantMessage(text="Two."), TurnOver()]
    assert talk.outcome() == Completed(messages=("Two.",))


@pytest.mark.contract("X-9")
def test_time_that_ran_out_while_it_tried_to_connect_is_told_so() -> None:
    talk, late = working(), Exit(code=-9, timed_out=True)
    trying = {"message": "Reconnecting... 2/5", "additionalDetails": "Connection failed: error sending request"}
    events_of(talk, event("error", error=trying, willRetry=True))
    assert talk.finish(late).code is ErrorCode.ENGINE_UNREACHABLE
    events_of(talk, said("It got through."))
    assert talk.finish(late).code is ErrorCode.TURN_TIMEOUT
    list(talk.feed(Stream.STDERR, b"out of memory"))
    assert talk.finish(Exit(code=1)).detail == "out of memory"


def test_a_key_is_told_and_stays_in_memory() -> None:
    cases: tuple[tuple[dict[str, str], tuple[str, ...], str | None], ...] = (
        ({"OPENAI_API_KEY": "k"}, (), "k"),
        ({"CODEX_API_KEY": "c", "OPENAI_API_KEY": "k"}, (), "c"),
        ({"OPENAI_API_KEY": "k"}, (".codex/auth.json",), None),
        ({}, (), None),
    )
    for env, credentials, key in cases:
        of = replace(turn_of(engine(), {}), env=env, credentials=credentials)
        talk = engine().conversation(of)
        list(talk.say("Go."))
        _, step = sent(events_of(talk, {"id": 1, "result": {}}))
        assert (step["method"] == "account/login/start", step["params"].get("apiKey")) == (key is not None, key)
        assert ('cli_auth_credentials_store="ephemeral"' in engine().launch_resident(of).argv) == (key is not None)


@pytest.mark.contract("T-8")
def test_it_may_ask_only_where_somebody_answers() -> None:
    asks = "features.default_mode_request_user_input=true"
    assert asks in engine().launch_resident(turn_of(engine(), {})).argv
    auto = engine().launch_resident(turn_of(engine(), {"mode": Mode.AUTO})).argv
    assert asks not in auto
    assert "tools.experimental_request_user_input.enabled=false" in auto


@pytest.mark.contract("P-1")
def test_a_version_with_an_app_server_can_stay() -> None:
    def probe(printed: str) -> bool:
        call = CallResult(args=("app-server", "--help"), exit_code=0, stdout=printed, stderr="")
        return engine().read_probe([call]).resident

    assert probe("Run the app server\n\nUsage: codex app-server [OPTIONS] [COMMAND]\n")
    # What an unknown subcommand prints.
    assert not probe("Usage: codex [OPTIONS] [PROMPT]\n")
    assert ProfileKind.STICKY_PROCESS in engine().profiles


LINES = [
    line for case in ("resident", "resident_asks") for sign, line in lines_of(FOLDER / "codex" / case) if sign == "<"
]


@given(distorted(LINES))
def test_nothing_makes_it_raise(lines: list[tuple[Stream, bytes]]) -> None:
    talk = resident("codex").conversation(turn_of(engine(), {}))
    list(talk.say("Go."))
    for stream, line in lines:
        if any(isinstance(seen, TurnOver | Asked) for seen in talk.feed(stream, line)):
            talk.outcome()
            list(talk.say("Go on.", BLUE))
    assert isinstance(talk.finish(Exit(code=1)), TurnFailed)
