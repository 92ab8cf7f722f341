"""How each engine is asked for its models, and what is made of the answers, as the real programs give them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from recordings import turn_of

from askback.engines import registry
from askback.engines.acp import AcpEngine
from askback.engines.base import Model, ModelQuery, NoModels, Send, Stream
from askback.engines.parser import MAX_MODELS

LISTING = ("claude", "codex", "gemini", "opencode", "qwen")
SESSION = {"sessionId": "1", "modes": {}}


def asked(name: str, **env: str) -> ModelQuery:
    engine = registry.get(name)
    assert engine.lists_models
    return engine.model_query(replace(turn_of(engine, {}), env=env))


def sent(messages: Iterable[Send]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in messages]


def feed(query: ModelQuery, *messages: object) -> list[dict[str, Any]]:
    """Everything that is sent in response to these lines."""
    lines = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
    return [each for line in lines for each in sent(query.feed(Stream.STDOUT, line))]


def acp(query: ModelQuery, models: object) -> None:
    """The dialog of the Agent Client Protocol, up to a session with these models."""
    (hello,) = sent(query.begin())
    assert hello["method"] == "initialize"
    (new,) = feed(query, {"jsonrpc": "2.0", "id": hello["id"], "result": {"protocolVersion": 1}})
    assert (new["method"], new["params"]["mcpServers"]) == ("session/new", [])
    assert not query.is_over
    assert feed(query, {"jsonrpc": "2.0", "id": new["id"], "result": SESSION | {"models": models}}) == []


def test_engines_that_list_their_models() -> None:
    found = {name for name, engine in registry.engines().items() if engine.lists_models}
    presets = {name for name, engine in registry.engines().items() if isinstance(engine, AcpEngine)}
    assert found == set(LISTING) | presets


def test_codex_lists_page_by_page() -> None:
    query = asked("codex")
    (hello,) = sent(query.begin())
    ready, first = feed(query, {"id": hello["id"], "result": {}}, {"method": "remoteControl/status/changed"})
    assert (ready["method"], first["method"]) == ("initialized", "model/list")
    big = {"id": "x", "model": "big", "displayName": "Big", "description": "Large.", "isDefault": True}
    big["supportedReasoningEfforts"] = [{"reasoningEffort": "low"}, {"reasoningEffort": 7}, "high"]
    page = {"data": [big, {"model": "old", "hidden": True}, 7], "nextCursor": "more"}
    (second,) = feed(query, {"id": first["id"], "result": page})
    assert (second["params"], query.is_over) == ({"cursor": "more"}, False)
    feed(query, {"id": second["id"], "result": {"data": [{"model": "small"}, big], "nextCursor": None}})
    assert query.is_over
    assert query.finish(None) == (
        Model(id="big", title="Big", description="Large.", efforts=("low",), is_default=True),
        Model(id="small"),
    )


def test_codex_signs_in_with_its_key_first() -> None:
    query = asked("codex", OPENAI_API_KEY="key")
    (hello,) = sent(query.begin())
    _, sign_in = feed(query, {"id": hello["id"], "result": {}})
    assert sign_in["params"] == {"type": "apiKey", "apiKey": "key"}
    (listing,) = feed(query, {"id": sign_in["id"], "result": {"type": "apiKey"}})
    assert listing["method"] == "model/list"
    feed(query, {"id": listing["id"], "error": {"code": -1, "message": "not now"}})
    assert query.is_over
    assert query.finish(None) == NoModels(reason="not now")


def test_claude_lists_them_when_it_is_initialized() -> None:
    query = asked("claude")
    (request,) = sent(query.begin())
    assert (request["type"], request["request"]) == ("control_request", {"subtype": "initialize"})
    listed = [
        {"value": "default", "displayName": "Default", "description": "The best.", "supportedEffortLevels": ["low", 7]},
        {"value": "haiku", "displayName": "Haiku"},
    ]
    other = {"type": "control_response", "response": {"request_id": "other", "subtype": "error"}}
    done = {"subtype": "success", "request_id": request["request_id"], "response": {"models": listed}}
    feed(query, other, {"type": "control_response", "response": done})
    assert query.finish(None) == (
        Model(id="default", title="Default", description="The best.", efforts=("low",), is_default=True),
        Model(id="haiku", title="Haiku"),
    )


def test_gemini_lists_them_with_its_session_and_signs_in_if_it_must() -> None:
    query = asked("gemini", GEMINI_API_KEY="key")
    (hello,) = sent(query.begin())
    (new,) = feed(query, {"id": hello["id"], "result": {}})
    (sign_in,) = feed(query, {"id": new["id"], "error": {"code": -32000, "message": "Authentication required"}})
    assert (sign_in["method"], sign_in["params"]) == ("authenticate", {"methodId": "gemini-api-key"})
    (again,) = feed(query, {"id": sign_in["id"], "result": {}})
    models = {"currentModelId": "auto", "availableModels": [{"modelId": "auto", "name": "Auto"}, {"modelId": "pro"}]}
    feed(query, {"id": again["id"], "result": SESSION | {"models": models}})
    assert query.finish(None) == (Model(id="auto", title="Auto", is_default=True), Model(id="pro"))


def test_a_sign_in_that_fails_is_the_reason() -> None:
    query = asked("gemini", GEMINI_API_KEY="key")
    (hello,) = sent(query.begin())
    (new,) = feed(query, {"id": hello["id"], "result": {}})
    refusal = {"code": -32000, "message": "Gemini API key is missing or not configured."}
    (sign_in,) = feed(query, {"id": new["id"], "error": refusal})
    feed(query, {"id": sign_in["id"], "error": refusal})
    assert query.is_over
    assert query.finish(None) == NoModels(reason="Gemini API key is missing or not configured.")


def test_qwen_names_models_as_its_command_line_takes_them() -> None:
    query = asked("qwen")
    listed = [
        {"modelId": "$runtime|openai|abc(openai)", "name": "abc"},
        {"modelId": "qwen3-coder(openai)", "name": "Coder", "description": None},
        {"modelId": "plain", "name": "plain"},
    ]
    acp(query, {"currentModelId": "$runtime|openai|abc(openai)", "availableModels": listed})
    assert query.finish(None) == (
        Model(id="abc", title="abc", is_default=True),
        Model(id="qwen3-coder", title="Coder"),
        Model(id="plain", title="plain"),
    )


def test_a_program_that_asks_meanwhile_is_refused() -> None:
    query = asked("qwen")
    (hello,) = sent(query.begin())
    (refused,) = feed(query, {"id": 9, "method": "fs/read_text_file", "params": {}})
    assert (refused["id"], refused["error"]["code"]) == (9, -32601)
    assert feed(query, {"method": "session/update", "params": {}}) == []
    assert hello["id"] == 1


@pytest.mark.parametrize("models", [None, {}, [], 7, {"availableModels": "all"}, {"availableModels": [{}, None, "x"]}])
def test_a_version_without_a_list_says_so(models: object) -> None:
    query = asked("qwen")
    acp(query, models)
    assert query.is_over
    assert query.finish(None) == NoModels(reason="this version does not list its models")


def test_opencode_prints_one_per_line() -> None:
    query = asked("opencode")
    assert list(query.begin()) == []
    lines = [b"\x1b[1mopencode/free\x1b[0m", b"double/a/b", b"", b"Database migration complete.", b"double/a/b"]
    feed(query, *lines)
    assert not query.is_over
    assert query.finish(0) == (Model(id="opencode/free"), Model(id="double/a/b"))
    assert query.finish(1) == NoModels(reason="it ended with 1")


@pytest.mark.parametrize("name", LISTING)
def test_no_output_breaks_a_query(name: str) -> None:
    query = asked(name)
    list(query.begin())
    feed(query, b"", b"\xff\xfe", b"{", b"[]", b"7", {}, {"id": 1}, {"id": True, "result": []}, {"id": 1, "result": 7})
    list(query.feed(Stream.STDERR, b"\x1b[31mno   network\x1b[0m\n"))
    found = query.finish(3)
    assert isinstance(found, NoModels)
    assert found.reason in ("no network", "it ended with 3", "it refused initialize")


def test_ids_that_no_command_line_takes_are_left_out_and_lists_are_bounded() -> None:
    query = asked("qwen")
    strange = [
        {"modelId": "x" * 201},
        {"modelId": "a\nb"},
        {"modelId": ""},
        {"modelId": 7},
        {"modelId": "ok", "name": 7},
    ]
    acp(query, {"availableModels": strange})
    assert query.finish(None) == (Model(id="ok"),)
    many = asked("qwen")
    acp(many, {"availableModels": [{"modelId": f"m{number}"} for number in range(MAX_MODELS + 10)]})
    found = many.finish(None)
    assert not isinstance(found, NoModels)
    assert len(found) == MAX_MODELS
