"""Engines whose processes may be kept warm: they do not ask through their own protocols, which a new process cannot answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from recordings import turn_of

from askback.core.runs import ProfileKind
from askback.engines import registry
from askback.engines.base import Asked, Conversation, EngineEvent, Send, Stream

WARM = ("claude", "codex", "gemini", "opencode", "qwen", "scripted")
COLOUR = {"question": "Which colour?", "header": "Colour", "options": [{"label": "red"}, {"label": "blue"}]}


def sent(seen: Iterable[EngineEvent]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in seen if isinstance(each, Send)]


def feed(talk: Conversation, **message: Any) -> list[EngineEvent]:
    return list(talk.feed(Stream.STDOUT, json.dumps(message).encode()))


def conversation(name: str, *, may_ask: bool) -> Conversation:
    engine = registry.get(name)
    assert engine.warm
    return engine.conversation(replace(turn_of(engine, {}), may_ask=may_ask))


def asking(name: str, *, may_ask: bool) -> list[EngineEvent]:
    """What a conversation yields when its program asks the user in the middle of a turn."""
    talk = conversation(name, may_ask=may_ask)
    (first,) = sent(talk.say("Go."))
    if name == "claude":
        feed(talk, type="user", isReplay=True, uuid=first["uuid"])
        request = {"subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": {"questions": [COLOUR]}}
        return feed(talk, type="control_request", request_id="r", request=request)
    if name == "codex":
        questions = [{**COLOUR, "id": "colour"}]
        return feed(talk, id=7, method="item/tool/requestUserInput", params={"questions": questions})
    form = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
    (session,) = sent(feed(talk, id=first["id"], result={}))
    feed(talk, id=session["id"], result={"sessionId": "s"})
    params = {"mode": "form", "message": "Which colour?", "requestedSchema": form}
    return feed(talk, id=9, method="elicitation/create", params=params)


@pytest.mark.contract("V-4")
def test_these_engines_can_be_warm_and_no_others() -> None:
    found = {name for name, each in registry.engines().items() if each.warm}
    assert found == set(WARM)
    assert all(ProfileKind.RESUMABLE in registry.get(name).profiles for name in found)


@pytest.mark.contract("T-8", "V-4")
@pytest.mark.parametrize("name", [name for name in WARM if name != "scripted"])
def test_a_question_in_the_protocol_of_the_program_is_declined_at_once(name: str) -> None:
    assert any(isinstance(each, Asked) for each in asking(name, may_ask=True))
    declined = asking(name, may_ask=False)
    assert not any(isinstance(each, Asked) for each in declined)
    assert len(sent(declined)) == 1


@pytest.mark.contract("T-8", "V-4")
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("codex", "tools.experimental_request_user_input.enabled=false"),
        ("claude", "--disallowedTools=AskUserQuestion,EnterPlanMode,ExitPlanMode"),
        ("qwen", "--exclude-tools=ask_user_question"),
        ("scripted", "--no-native"),
    ],
)
def test_the_ask_tool_of_the_program_is_switched_off(name: str, option: str) -> None:
    engine = registry.get(name)
    turn = turn_of(engine, {})
    turn = replace(turn, probe=replace(turn.probe, features=("exclude-tools",)))
    assert engine.warm
    assert option in engine.launch_resident(replace(turn, may_ask=False)).argv
    assert option not in engine.launch_resident(turn).argv
