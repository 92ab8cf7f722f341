"""The Agent Client Protocol: recorded talks are replayed, and what no recording has is told line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from distortions import distorted, ends
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from recordings import FOLDER, differences, turn_of
from talks import Replay, conversation, lines_of, resident, talks

from acp import schema
from askback.core.errors import ErrorCode
from askback.core.interactions import Question
from askback.core.runs import ProfileKind
from askback.engines import registry
from askback.engines.acp import AcpEngine
from askback.engines.base import (
    Asked,
    AssistantMessage,
    CallResult,
    Completed,
    EngineEvent,
    Exit,
    Reply,
    Send,
    Stream,
    ToolEnded,
    ToolStarted,
    TurnFailed,
    TurnOver,
)
from askback.engines.protocols.acp import AcpConversation
from askback.engines.protocols.acp_turn import Dialect

ENGINES = ("gemini", "qwen", "opencode", "iflow")
PRESETS = tuple(name for name, engine in registry.engines().items() if isinstance(engine, AcpEngine))
TALKS = [folder for folder in talks() if folder.parent.name in (*ENGINES, *PRESETS)]
BLUE = Reply(response="blue", answered=True)
LEFT_OPEN = Reply(response=None, answered=False)

Elicited = schema.AcceptElicitationResponse | schema.DeclineElicitationResponse
SENT: dict[str, Any] = {
    "initialize": schema.InitializeRequest,
    "authenticate": schema.AuthenticateRequest,
    "session/new": schema.NewSessionRequest,
    "session/prompt": schema.PromptRequest,
    "session/cancel": schema.CancelNotification,
    "session/set_mode": schema.SetSessionModeRequest,
    "session/set_config_option": schema.SetSessionConfigOptionSelectRequest,
}
ANSWERED: dict[str, Any] = {
    "session/request_permission": schema.RequestPermissionResponse,
    "elicitation/create": Elicited,
}
MESSAGES: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "authenticate": schema.AuthenticateResponse,
    "session/new": schema.NewSessionResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_mode": schema.SetSessionModeResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
}


def check(kind: Any, value: Any) -> None:
    """Every field is one that the protocol has, and of its type."""
    read = TypeAdapter(kind).validate_python(value)
    assert json.loads(read.model_dump_json(by_alias=True, exclude_unset=True)) == value


# Recorded talks.


def replay(folder: Path) -> Replay:
    replayed = Replay(conversation(folder.parent.name), lines_of(folder), BLUE)
    replayed.play()
    return replayed


@pytest.mark.contract("T-6", "X-9", "W-6")
@pytest.mark.parametrize("folder", TALKS, ids=lambda folder: folder.relative_to(FOLDER).as_posix())
def test_a_recorded_talk_goes_as_it_went(folder: Path) -> None:
    replayed, expected = replay(folder), json.loads((folder / "turns.json").read_text())
    assert [differences(*pair) for pair in zip(expected, replayed.turns, strict=True)] == [[]] * len(expected)
    recorded = [json.loads(line) for sign, line in lines_of(folder) if sign == ">"]
    assert [_essence(each) for each in replayed.sent if each.get("method") != "session/cancel"] == [
        _essence(each) for each in recorded if each.get("method") != "session/cancel"
    ]


def _essence(message: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on what the client can do."""
    params = {name: value for name, value in message.get("params", {}).items() if name != "clientCapabilities"}
    return {**message, "params": params}


@pytest.mark.parametrize("folder", TALKS, ids=lambda folder: folder.relative_to(FOLDER).as_posix())
def test_every_message_is_one_of_the_protocol(folder: Path) -> None:
    asked: dict[Any, str] = {}
    for message in replay(folder).sent:
        if "method" in message:
            asked[message.get("id")] = message["method"]
            check(SENT[message["method"]], message["params"])
    for sign, line in lines_of(folder):
        if sign == "<" and line.startswith(b"{") and "error" not in (message := json.loads(line)):
            method = message.get("method") or asked[message["id"]]
            # Methods of a program itself begin with an underscore.
            if not method.startswith("_"):
                MESSAGES[method].model_validate(message.get("params") or message.get("result"))


def test_every_engine_that_speaks_it_has_a_recorded_talk() -> None:
    assert {folder.parent.name for folder in TALKS} == {*ENGINES, *PRESETS}


# What no recording has.


class Program:
    """The other side of a talk, told line by line."""

    def __init__(self, talk: AcpConversation) -> None:
        self.talk = talk
        self.seen: list[EngineEvent] = []
        self.sent: list[dict[str, Any]] = []

    def take(self, seen: Iterable[EngineEvent]) -> list[dict[str, Any]]:
        """What was sent now."""
        now = list(seen)
        self.seen += [each for each in now if not isinstance(each, Send)]
        sent = [json.loads(each.data) for each in now if isinstance(each, Send)]
        self.sent += sent
        return sent

    def say(self, prompt: str = "Go on", reply: Reply | None = None) -> list[dict[str, Any]]:
        return self.take(self.talk.say(prompt, reply))

    def tell(self, **message: Any) -> list[dict[str, Any]]:
        return self.take(self.talk.feed(Stream.STDOUT, json.dumps({"jsonrpc": "2.0", **message}).encode()))

    def warn(self, words: str) -> list[dict[str, Any]]:
        return self.take(self.talk.feed(Stream.STDERR, words.encode()))

    def update(self, kind: str, /, session: str = "s", **rest: Any) -> None:
        self.tell(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": kind, **rest}})

    def chunk(self, text: str, **rest: Any) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text}, **rest)

    def ask(self, method: str, number: Any = 0, **params: Any) -> list[dict[str, Any]]:
        return self.tell(id=number, method=method, params={"sessionId": "s", **params})

    def end(self, reason: str = "end_turn", **rest: Any) -> Completed | TurnFailed:
        number = max(each["id"] for each in self.sent if each.get("method") == "session/prompt")
        self.tell(id=number, result={"stopReason": reason, **rest})
        assert isinstance(self.seen[-1], TurnOver)
        return self.talk.outcome()

    @property
    def said(self) -> list[str]:
        return [each.text for each in self.seen if isinstance(each, AssistantMessage)]

    @property
    def question(self) -> Question:
        asked = self.seen[-1]
        assert isinstance(asked, Asked)
        return asked.question


def opened(dialect: Dialect | None = None, engine: str | None = None, **session: Any) -> Program:
    """A program in its first turn, with a dialect, or with that of an engine."""
    made = AcpConversation(cwd="/run/work", dialect=dialect or Dialect()) if engine is None else conversation(engine)
    assert isinstance(made, AcpConversation)
    program = Program(made)
    program.say()
    program.tell(id=1, result={"protocolVersion": 1})
    program.tell(id=2, result={"sessionId": "s", **session})
    return program


MODES = [{"id": "default", "name": "Default"}, {"id": "yolo", "name": "YOLO"}]


def test_a_program_that_would_ask_for_permissions_is_told_not_to() -> None:
    program = opened(modes={"currentModeId": "default", "availableModes": MODES})
    assert program.sent[-1]["params"] == {"sessionId": "s", "modeId": "yolo"}
    check(SENT["session/set_mode"], program.sent[-1]["params"])
    assert program.tell(id=3, result={})[0]["method"] == "session/prompt"


def test_a_model_is_chosen_before_the_turn_begins() -> None:
    program = opened(Dialect(model="some/model"), modes={"currentModeId": "default", "availableModes": MODES})
    assert [each["method"] for each in program.sent[2:]] == ["session/set_mode", "session/set_config_option"]
    check(SENT["session/set_config_option"], program.sent[-1]["params"])
    assert program.tell(id=3, result={}) == []
    assert program.tell(id=4, result={})[0]["method"] == "session/prompt"


def test_a_model_that_the_program_does_not_have_fails_the_turn() -> None:
    program = opened(Dialect(model="none"))
    program.tell(id=3, error={"code": -32602, "message": "model not found: none"})
    broke = program.talk.outcome()
    assert isinstance(broke, TurnFailed)
    assert (broke.code, broke.detail) == (ErrorCode.ENGINE_API_ERROR, "model not found: none")


def test_a_program_that_says_so_is_signed_in_to_first() -> None:
    program = Program(AcpConversation(cwd="/run/work", dialect=Dialect(sign_in="key")))
    program.say()
    sent = program.tell(id=1, result={"isAuthenticated": False})
    assert (sent[0]["method"], sent[0]["params"]) == ("authenticate", {"methodId": "key"})
    assert program.tell(id=2, result={})[0]["method"] == "session/new"
    program.tell(id=3, error={"code": -32000, "message": "Authentication required"})
    broke = program.talk.outcome()
    assert isinstance(broke, TurnFailed)
    assert broke.code is ErrorCode.ENGINE_AUTH_REQUIRED


@pytest.mark.parametrize("text", ["/quit", " /quit", "$x", "@file", "-x", "\n\nhello", "", "!ls", "?", "<a>"])
def test_a_text_that_could_be_a_command_comes_after_a_block_of_ours(text: str) -> None:
    program = opened()
    program.end()
    blocks = program.say(text)[0]["params"]["prompt"]
    assert [each["text"] for each in blocks][1:] == [text]
    assert blocks[0]["text"][0].isalpha()


def test_a_text_goes_as_it_is() -> None:
    program = opened()
    program.end()
    text = "Grün 𝕏 \u2028 @file /quit\n -x\r\n"
    sent = list(program.talk.say(text + "\ud800"))
    assert isinstance(sent[0], Send)
    assert sent[0].data.isascii()
    assert sent[0].data.count(b"\n") == 1
    assert json.loads(sent[0].data)["params"]["prompt"] == [{"type": "text", "text": text + "\ufffd"}]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["allow_once", "allow_always", "reject_once"], "1"),
        (["reject_once", "allow_once"], "1"),
        (["allow_always", "allow_always"], "0"),
    ],
)
def test_a_permission_is_granted_and_never_told(kinds: list[str], chosen: str) -> None:
    program = opened()
    options = [{"optionId": str(at), "name": kind, "kind": kind} for at, kind in enumerate(kinds)]
    sent = program.ask("session/request_permission", "r-1", toolCall={"toolCallId": "t"}, options=options)
    assert [each["id"] for each in sent] == ["r-1"]
    assert sent[0]["result"] == {"outcome": {"outcome": "selected", "optionId": chosen}}
    check(ANSWERED["session/request_permission"], sent[0]["result"])
    assert not any(isinstance(each, Asked) for each in program.seen)


@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "made/up"])
def test_what_is_not_offered_is_refused(method: str) -> None:
    assert opened().ask(method, 7)[0]["error"]["code"] == -32601


SCHEMA = {
    "type": "object",
    "properties": {"size": {"type": "integer", "default": 4}, "colour": {"type": "string", "enum": ["red", "blue"]}},
    "required": ["colour"],
}
CHOICE = {"type": "object", "properties": {"colour": {"type": "string", "oneOf": [{"const": "b", "title": "blue"}]}}}
FREE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.contract("T-8")
@pytest.mark.parametrize(
    ("form", "reply", "result"),
    [
        (SCHEMA, Reply(response={"colour": "blue", "x": 1}, answered=True), {"colour": "blue"}),
        (SCHEMA, LEFT_OPEN, {"size": 4, "colour": "red"}),
        (CHOICE, BLUE, {"colour": "b"}),
        (CHOICE, LEFT_OPEN, {"colour": "b"}),
        (FREE, BLUE, {"name": "blue"}),
        (FREE, LEFT_OPEN, None),
        (SCHEMA, BLUE, None),
        (FREE, None, None),
    ],
)
def test_a_form_is_a_question_and_its_answer_a_form(form: Any, reply: Reply | None, result: Any) -> None:
    program = opened()
    program.chunk("One moment.")
    assert program.ask("elicitation/create", 5, mode="form", message="Which?", requestedSchema=form) == []
    assert program.question.prompt == "Which?"
    assert (program.question.response_schema is None) == (form is CHOICE)
    assert program.talk.outcome() == Completed(messages=("One moment.",))
    (sent,) = program.say("said in words", reply)
    wanted = {"action": "decline"} if result is None else {"action": "accept", "content": result}
    assert (sent["id"], sent["result"]) == (5, wanted)
    check(ANSWERED["elicitation/create"], sent["result"])
    program.chunk("Thanks.")
    assert program.end() == Completed(messages=("Thanks.",))


def test_a_form_that_no_user_can_fill_is_declined() -> None:
    program = opened()
    for params in ({"mode": "url", "url": "http://localhost"}, {"requestedSchema": {"type": "string"}}, {}):
        assert program.ask("elicitation/create", message="Which?", **params)[0]["result"] == {"action": "decline"}
    program.end()
    # Between two turns nobody would hear it.
    sent = program.ask("elicitation/create", message="Which?", requestedSchema=FREE)
    assert sent[0]["result"] == {"action": "decline"}
    assert program.say("Next")[0]["method"] == "session/prompt"


def test_a_question_is_over_with_its_turn() -> None:
    program = opened()
    program.ask("elicitation/create", 1, message="First?", requestedSchema=FREE)
    program.chunk("Never mind.")
    assert program.end() == Completed(messages=("Never mind.",))
    # The answer has nowhere to go any more but into a turn of its own.
    assert program.say("in words", BLUE)[0]["method"] == "session/prompt"


def test_a_response_is_known_by_its_number() -> None:
    program = Program(AcpConversation(cwd="/run/work", dialect=Dialect()))
    program.say()
    for number in (True, "1", 1.0, None, 7):
        assert program.tell(id=number, result={}) == []
    assert program.tell(id=1, result={})[0]["method"] == "session/new"


def test_two_questions_at_once_are_asked_one_after_the_other() -> None:
    program = opened()
    program.ask("elicitation/create", 1, message="First?", requestedSchema=FREE)
    assert program.ask("elicitation/create", 2, message="Second?", requestedSchema=FREE) == []
    assert program.question.prompt == "First?"
    assert program.say("", BLUE)[0]["id"] == 1
    assert program.question.prompt == "Second?"
    assert program.say("", BLUE)[0]["id"] == 2


OPTIONS = [{"label": "red", "description": "warm"}, {"label": "blue"}]
ONE = [{"question": "Which?", "header": "Colour", "options": OPTIONS, "multiSelect": False}]
TWO = [*ONE, {"question": "Where?", "header": "Walls", "options": OPTIONS, "multiSelect": True}]


@pytest.mark.contract("T-8")
@pytest.mark.parametrize(
    ("questions", "reply", "answers"),
    [
        (ONE, BLUE, {"Colour": "blue"}),
        (ONE, LEFT_OPEN, {"Colour": "red"}),
        (
            TWO,
            Reply(response={"answer_1": "red", "answer_2": ["blue"]}, answered=True),
            {"Colour": "red", "Walls": ["blue"]},
        ),
        ([{"question": "Name?"}], LEFT_OPEN, {}),
        ([*ONE, {"question": "Name?"}], LEFT_OPEN, {}),
        ([{"question": "Name?"}], BLUE, {"Question 1": "blue"}),
    ],
)
def test_an_ask_tool_with_a_method_of_its_own_is_answered(questions: Any, reply: Reply, answers: Any) -> None:
    program = opened(engine="iflow")
    assert program.ask("_iflow/user/questions", 3, questions=questions) == []
    assert program.question.prompt.startswith(questions[0]["question"])
    assert program.say("", reply)[0]["result"] == {"answers": answers}


def test_a_request_of_one_programs_dialect_is_refused_to_the_others() -> None:
    for method in ("_iflow/user/questions", "_iflow/plan/exit"):
        assert opened(engine="iflow").ask(method, 3)[0]["result"] in ({"answers": {}}, {"approved": True})
        assert "error" in opened(engine="qwen").ask(method, 3, questions=ONE)[0]


def test_an_ask_tool_in_a_permission_is_answered_by_number_or_not_at_all() -> None:
    options = [{"optionId": "go", "name": "Submit", "kind": "allow_once"}]
    for reply, result in (
        (
            Reply(response={"answer_1": "red", "answer_2": ["red", "blue"]}, answered=True),
            {"0": "red", "1": "red, blue"},
        ),
        (None, None),
    ):
        program = opened()
        program.ask("session/request_permission", options=options, toolCall={"rawInput": {"questions": TWO}})
        assert program.question.response_schema is not None
        sent = program.say("", reply)[0]["result"]
        assert sent.get("answers") == result
        assert sent["outcome"]["outcome"] == ("cancelled" if result is None else "selected")


def test_a_choice_that_is_no_permission_is_asked() -> None:
    program = opened()
    options = [{"optionId": "a", "name": "red", "kind": "x"}, {"optionId": "b", "name": "blue", "kind": "x"}]
    program.ask("session/request_permission", options=options, toolCall={"title": "Paint it?"})
    assert (program.question.prompt, program.question.options) == ("Paint it?", ("red", "blue"))
    assert program.say("", BLUE)[0]["result"]["outcome"]["optionId"] == "b"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("max_tokens", ErrorCode.ENGINE_API_ERROR),
        ("refusal", ErrorCode.ENGINE_API_ERROR),
        ("cancelled", ErrorCode.ENGINE_CRASHED),
        ("max_turn_requests", ErrorCode.ENGINE_CRASHED),
        ("made_up", ErrorCode.ENGINE_CRASHED),
        ("", ErrorCode.ENGINE_CRASHED),
    ],
)
def test_only_a_turn_that_the_model_ended_is_complete(reason: str, code: ErrorCode) -> None:
    program = opened()
    program.chunk("A whole answer, it seems.")
    broke = program.end(reason)
    assert isinstance(broke, TurnFailed)
    assert broke.code is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 429, "message": "wait"}, ErrorCode.ENGINE_RATE_LIMITED),
        ({"code": 403, "message": "no"}, ErrorCode.ENGINE_AUTH_REQUIRED),
        (
            {"code": -32603, "message": "Internal error", "data": {"details": "fetch failed"}},
            ErrorCode.ENGINE_UNREACHABLE,
        ),
        ({"code": -32603, "message": "Internal error"}, ErrorCode.ENGINE_API_ERROR),
        ({"code": -32000, "message": "who are you"}, ErrorCode.ENGINE_AUTH_REQUIRED),
        ({"code": True, "message": None, "data": "quota"}, ErrorCode.ENGINE_RATE_LIMITED),
    ],
)
def test_an_error_is_told_by_its_status_or_its_words(error: Any, code: ErrorCode) -> None:
    program = opened()
    program.tell(id=3, error=error)
    broke = program.talk.outcome()
    assert isinstance(program.seen[-1], TurnOver)
    assert isinstance(broke, TurnFailed)
    assert broke.code is code


def test_a_turn_without_a_word_of_the_model_is_no_answer() -> None:
    program = opened()
    broke = program.end()
    assert isinstance(broke, TurnFailed)
    assert broke.code is ErrorCode.ENGINE_CRASHED
    program.say("Again")
    # It may have nothing to say, if it was asked.
    assert program.end(usage={"inputTokens": 3, "outputTokens": 1, "totalTokens": 4}) == Completed(messages=())


def test_a_message_ends_where_another_begins() -> None:
    program = opened()
    program.chunk("One ", messageId="m1")
    program.update("agent_thought_chunk", content={"type": "text", "text": "hm"})
    program.chunk("message.", messageId="m1")
    program.chunk("Another.", messageId="m2")
    program.update("tool_call", toolCallId="t", title="Do it", status="in_progress", kind="execute")
    program.chunk("Last.", messageId="m2")
    assert program.end() == Completed(messages=("One message.", "Another.", "Last."))
    assert program.said == ["One message.", "Another.", "Last."]


def test_what_is_said_outside_of_the_turn_or_session_is_no_answer() -> None:
    program = opened()
    program.update("agent_message_chunk", session="a helper's", content={"type": "text", "text": "no"})
    program.chunk("yes")
    assert program.end() == Completed(messages=("yes",))
    program.chunk("too late")
    program.say("Again")
    program.chunk("again")
    assert program.end() == Completed(messages=("again",))


def test_a_tool_that_was_never_announced_is_told_once() -> None:
    program = opened()
    for _ in range(2):
        program.update("tool_call_update", toolCallId="t", status="failed", kind="edit", title="Write a file")
    (started,) = (each for each in program.seen if isinstance(each, ToolStarted))
    (ended,) = (each for each in program.seen if isinstance(each, ToolEnded))
    assert (started.name, started.detail, ended.ok) == ("edit", "Write a file", False)


@pytest.mark.contract("X-9")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_turn_without_token_counts_may_be_a_success(engine: str) -> None:
    program = opened(engine=engine)
    program.chunk("Hi.")
    assert program.end() == Completed(messages=("Hi.",))
    program = opened(engine=engine)
    program.update("tool_call", toolCallId="t", status="completed", kind="edit", title="Write a file")
    assert program.end() == Completed(messages=())


@pytest.mark.parametrize(
    ("engine", "words", "code"),
    [
        ("gemini", "Attempt 1 failed with status 500. Retrying", ErrorCode.ENGINE_API_ERROR),
        ("gemini", "Attempt 1 failed: connect ECONNREFUSED 127.0.0.1:1", ErrorCode.ENGINE_UNREACHABLE),
        ("iflow", "Attempt 1 failed. Retrying with backoff... Error: fetch failed", ErrorCode.ENGINE_UNREACHABLE),
    ],
)
def test_a_turn_that_ran_out_of_time_tells_what_it_was_at(engine: str, words: str, code: ErrorCode) -> None:
    talk = conversation(engine)
    assert isinstance(talk, AcpConversation)
    program = Program(talk)
    program.say()
    program.warn(words)
    assert talk.finish(Exit(code=-9, timed_out=True)).code is code


def test_a_program_that_ends_says_why_it_could_not_begin() -> None:
    program = Program(AcpConversation(cwd="/run/work", dialect=Dialect()))
    program.say()
    program.warn("Please set an Auth method or the environment variable SOME_API_KEY")
    assert program.talk.finish(Exit(code=1)).code is ErrorCode.ENGINE_AUTH_REQUIRED
    assert opened().talk.finish(Exit(code=-9)).code is ErrorCode.ENGINE_CRASHED
    assert opened().talk.finish(Exit(code=0, over_limit=True)).code is ErrorCode.OUTPUT_LIMIT_EXCEEDED


def test_a_request_that_fails_again_and_again_ends_the_turn_once() -> None:
    program = opened(Dialect(retry_in=lambda words, session: words if session == "s" else "", most_tries=2))
    program.warn("429 too many requests")
    program.chunk("at last ")
    assert program.warn("429 too many requests") == []
    assert [each["method"] for each in program.warn("429 too many requests")] == ["session/cancel"]
    program.tell(id=3, result={"stopReason": "cancelled"})
    assert program.seen.count(TurnOver()) == 1
    broke = program.talk.outcome()
    assert isinstance(broke, TurnFailed)
    assert broke.code is ErrorCode.ENGINE_RATE_LIMITED


# The engines.


@pytest.mark.contract("P-4", "P-5")
@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("gemini", "--acp  Starts the agent in ACP mode"),
        ("qwen", "--acp  Starts the agent in ACP mode"),
        ("iflow", "--experimental-acp  Starts the agent in ACP mode"),
        ("opencode", "opencode acp\n\nstart ACP (Agent Client Protocol) server"),
    ],
)
def test_the_probe_says_whether_a_version_can_stay(name: str, usage: str) -> None:
    engine = resident(name)
    assert ProfileKind.STICKY_PROCESS in engine.profiles
    for printed, stays in ((usage, True), ("opencode run\n--resume", False)):
        results = [CallResult(args=args, exit_code=0, stdout=printed, stderr="") for args in engine.probe_calls()]
        assert engine.read_probe(results).resident is stays
    assert engine.read_probe([]).resident is False


@pytest.mark.parametrize("name", ENGINES)
def test_a_process_that_stays_is_given_no_text_to_start_with(name: str) -> None:
    engine = resident(name)
    turn = turn_of(engine, {"prompt": "a secret of the user's", "model": "m"})
    launch = engine.launch_resident(turn)
    assert launch.stdin == b""
    assert "a secret" not in repr(launch)
    assert (f"--model={turn.model}" in launch.argv) == (name != "opencode")
    assert dict(launch.env) == dict(engine.launch(turn).env)


@pytest.mark.contract("E-2")
def test_iflow_thinks_and_does_not_ask_also_when_it_stays() -> None:
    engine = resident("iflow")
    assert engine.launch_resident(turn_of(engine, {})).argv == ("iflow", "--experimental-acp", "--yolo", "--thinking")


# Anything at all.

LINES = sorted({line for folder in TALKS for sign, line in lines_of(folder) if sign != ">"})
replies = st.sampled_from([None, BLUE, LEFT_OPEN, Reply(response={"answer_1": 1}, answered=True)])


@settings(deadline=None)
@given(
    engine=st.sampled_from((*ENGINES, *PRESETS)),
    lines=st.lists(distorted(LINES), max_size=3),
    reply=replies,
    ended=ends,
)
def test_it_survives_every_line(engine: str, lines: list[Any], reply: Reply | None, ended: Exit) -> None:
    talk = conversation(engine)
    for turn in lines:
        over = list(talk.say("Go on", reply))
        for stream, line in turn:
            over += talk.feed(stream, line)
        for each in over:
            if isinstance(each, Send):
                json.loads(each.data)
        assert isinstance(talk.outcome(), Completed | TurnFailed)
        assert isinstance(talk.finish(ended), TurnFailed)
