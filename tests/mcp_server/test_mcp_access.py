"""Tokens, scopes, labels and the audit log apply to MCP as they do to the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import mcp_types as types
import pytest

from askback.client import Client
from support.mcp_client import Door, called, key, refusal, run, started
from support.server import Server

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}
MakeToken = Callable[..., str]


@pytest.fixture
def api(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def token(api: Client) -> Iterator[MakeToken]:
    """Makes tokens, which end with the test."""
    made: list[str] = []

    def make(*scopes: str, name: str | None = None, **labels: str) -> str:
        made.append(name or f"mcp-{key()[:8]}")
        return api.create_token(made[-1], scopes, labels=labels).token

    yield make
    for name in made:
        if name in [each.name for each in api.tokens()]:
            api.revoke_token(name)


@pytest.mark.contract("F-3")
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
def test_without_a_valid_token_there_is_no_mcp(server: Server, headers: dict[str, str]) -> None:
    for method in ("POST", "GET", "DELETE"):
        sent = httpx.request(method, f"{server.url}/mcp", headers=headers | ACCEPT, timeout=120)
        assert sent.status_code == 401, sent.text


def test_on_stdio_it_is_said_where_the_token_comes_from(server: Server) -> None:
    async def test() -> None:
        door = Door(server=server, transport="stdio", mode="legacy", token="wrong")
        async with door.opened() as client:
            for tool in ("list_skills", "list_questions"):
                told = await refusal(client, tool)
                assert told.startswith("UNAUTHORIZED: ")
                assert "set ASKBACK_TOKEN, or pass --token" in told
                assert "Bearer" not in told

    run(test)


@pytest.mark.contract("F-3")
def test_a_request_from_another_site_is_refused(server: Server) -> None:
    headers = ACCEPT | {"authorization": f"Bearer {server.token}"}
    for more in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        sent = httpx.post(f"{server.url}/mcp", headers=headers | more, json=INITIALIZE, timeout=120)
        assert sent.status_code == 403, sent.text


@pytest.mark.contract("F-3")
def test_a_token_can_only_what_its_scopes_allow(one_door: Door, token: MakeToken) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            asked = await started(client, "asking")
        about = {"run_id": asked["run_id"], "interaction_id": "colour"}
        quick = {"skill": "quick", "engine": "scripted", "input": {"place": "Lisbon"}}
        async with one_door.with_token(token("read")).opened() as client:
            assert "SCOPE_MISSING" in await refusal(client, "run_skill", **quick)
            assert "SCOPE_MISSING" in await refusal(client, "answer_question", **about, answer="red")
            assert "SCOPE_MISSING" in await refusal(client, "cancel_run", run_id=asked["run_id"])
            seen = await called(client, "get_run", run_id=asked["run_id"])
            assert (seen["state"], seen["answer_url"]) == ("waiting_user", None)
        async with one_door.with_token(token("submit")).opened() as client:
            started_only = await called(client, "run_skill", **quick)
            assert started_only["run_id"]
            assert "lacks the scope `read`" in started_only["message"]
            assert "get_run" not in started_only["message"]
            assert "SCOPE_MISSING" in await refusal(client, "get_run", run_id=asked["run_id"])
            assert "SCOPE_MISSING" in await refusal(client, "list_skills")
            assert "SCOPE_MISSING" in await refusal(client, "list_questions")
        async with one_door.with_token(token("answer")).opened() as client:
            assert "SCOPE_MISSING" in await refusal(client, "run_skill", **quick)
            assert (await called(client, "answer_question", **about, answer="red"))["run_id"] == asked["run_id"]

    run(test)


@pytest.mark.contract("F-3")
def test_a_form_of_a_token_that_may_not_answer_is_refused_with_its_run(one_door: Door, token: MakeToken) -> None:
    async def accepts(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": "red"})

    async def test() -> None:
        async with one_door.with_token(token("read", "submit")).opened(accepts) as client:
            call = {"skill": "asking", "engine": "scripted", "idempotency_key": key()}
            result = await client.call_tool("run_skill", call)
            assert result.is_error
            assert result.structured_content["message"].startswith("SCOPE_MISSING: ")
            about = {"run_id": result.structured_content["run_id"]}
            assert (await called(client, "get_run", **about))["state"] == "waiting_user"

    run(test)


@pytest.mark.contract("F-3")
def test_a_restricted_token_sees_its_own_runs_alone(one_door: Door, token: MakeToken, api: Client) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            hidden = await started(client, "asking")
        customer = key()[:12]
        own = token("read", "submit", "answer", customer=customer)
        async with one_door.with_token(own).opened() as client:
            about: dict[str, Any] = {"run_id": hidden["run_id"]}
            assert "RUN_NOT_FOUND" in await refusal(client, "get_run", **about)
            assert "RUN_NOT_FOUND" in await refusal(client, "cancel_run", **about)
            answer = {"interaction_id": "colour", "answer": "red"}
            assert "RUN_NOT_FOUND" in await refusal(client, "answer_question", **about, **answer)
            assert (await called(client, "list_questions"))["questions"] == []
            mine = await started(client, "asking")
            listed = (await called(client, "list_questions"))["questions"]
            assert [each["run_id"] for each in listed] == [mine["run_id"]]
        assert (api.get_run(mine["run_id"]).labels or {})["customer"] == customer

    run(test)


@pytest.mark.contract("F-3", "F-1")
def test_the_same_call_of_another_token_is_another_run(one_door: Door, token: MakeToken) -> None:
    async def test() -> None:
        found = set()
        arguments = {"skill": "asking", "engine": "scripted", "input": {"call": key()}}
        for each in (token("read", "submit"), token("read", "submit")):
            async with one_door.with_token(each).opened() as client:
                found.add((await called(client, "run_skill", **arguments))["run_id"])
        assert len(found) == 2

    run(test)


@pytest.mark.contract("F-3", "F-1")
def test_a_run_that_another_token_marks_as_that_of_my_call_is_not_found(
    one_door: Door, token: MakeToken, api: Client
) -> None:
    async def test() -> None:
        arguments = {"skill": "asking", "engine": "scripted", "input": {"call": key()}}
        async with one_door.with_token(token("read", "submit", "answer")).opened() as client:
            mine = await called(client, "run_skill", **arguments)
            seen = api.get_run(mine["run_id"]).labels or {}
            with Client(one_door.server.url, token("read", "submit")) as attacker:
                forged = attacker.create_run("secretive", engine="scripted", mode="interactive", labels=seen)
            assert api.wait(forged.id, timeout_sec=120).labels == seen
            again = await called(client, "run_skill", **arguments)
            assert (again["run_id"], again["question"]) == (mine["run_id"], mine["question"])

    run(test)


@pytest.mark.contract("F-3")
def test_the_audit_log_says_who_and_that_it_was_mcp(one_door: Door, token: MakeToken, api: Client) -> None:
    async def test() -> None:
        name = f"anna-{key()[:8]}"
        async with one_door.with_token(token("read", "submit", "answer", name=name)).opened() as client:
            asked = await started(client, "asking")
            about = {"run_id": asked["run_id"], "interaction_id": "colour"}
            await called(client, "answer_question", **about, answer="red")
            waiting = await started(client, "asking")
            await called(client, "cancel_run", run_id=waiting["run_id"])
        entries = list(api.audit(actor=name))
        assert {each.action for each in entries} >= {"run.submit", "interaction.reply", "run.cancel", "link.create"}
        assert {each.actor.via for each in entries} == {"mcp"}
        (question,) = api.interactions(asked["run_id"])
        assert question.answered_with is not None
        assert (question.answered_with.name, question.answered_with.via) == (name, "mcp")

    run(test)


@pytest.mark.contract("F-3")
def test_a_session_ends_with_its_token_and_belongs_to_it(server: Server, token: MakeToken, api: Client) -> None:
    name = f"bob-{key()[:8]}"
    headers = ACCEPT | {"authorization": f"Bearer {token('read', name=name)}"}
    url = f"{server.url}/mcp"
    opened = httpx.post(url, headers=headers, json=INITIALIZE, timeout=120)
    assert opened.status_code == 200, opened.text
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    other = headers | session | {"authorization": f"Bearer {server.token}"}
    assert httpx.post(url, headers=other, json=listing, timeout=120).status_code == 404
    assert httpx.post(url, headers=headers | session, json=listing, timeout=120).status_code == 200
    api.revoke_token(name)
    assert httpx.post(url, headers=headers | session, json=listing, timeout=120).status_code == 401
