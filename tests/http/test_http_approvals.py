"""Approvals over HTTP: what a question about a tool call shows, who may answer it, and where policies come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import calling, get, over, refused, reply, start, waiting
from support.data_folder import World
from support.server import Server

COMMAND = "git push\u200b origin"
PUSH = {"tool": {"name": "shell", "input": {"command": COMMAND}, "append": "artifacts/pushed"}}
DONE = {"finish": {"colour": "blue"}}


@pytest.fixture(scope="module")
def pushing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("approvals"))
    world.skill([PUSH, {"say": "I wait."}], [PUSH, DONE], name="pushing")
    world.skill([PUSH, DONE], name="strict", runner={"permissions": "read-only", "execution_modes": ["interactive"]})
    world.skill([DONE], name="wrong", runner={"permissions": {"rules": [{"tool": "shell"}]}})
    with Server(world) as server:
        yield server


@pytest.fixture
def client(pushing: Server) -> Iterator[httpx.Client]:
    with calling(pushing.url, pushing.token) as client:
        yield client


def token(client: httpx.Client, name: str, *scopes: str, **rest: Any) -> str:
    made = client.post("/v1/tokens", json={"name": name, "scopes": scopes, **rest})
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


def made(client: httpx.Client, run_id: str) -> list[str]:
    return [each["path"] for each in client.get(f"/v1/runs/{run_id}/artifacts").json()["items"]]


@pytest.mark.contract("G-2", "G-3")
def test_an_approval_shows_the_call_and_lets_it_run_once(client: httpx.Client) -> None:
    run_id = waiting(client, "pushing", permissions="careful")
    asked = client.get(f"/v1/runs/{run_id}/interaction").json()
    assert (asked["kind"], asked["tool"], asked["input"]) == ("approval", "shell", {"command": COMMAND})
    assert asked["cwd"].endswith("/work")
    assert "git push<U+200B> origin" in asked["prompt"]
    assert [each["value"] for each in asked["options"]] == ["approve", "approve_similar", "deny"]
    (shown,) = get(client, run_id)["permissions"]
    assert (shown["source"], shown["default"]) == ("run", "ask")
    assert reply(client, run_id, "approve", asked["interaction_id"]).status_code == 202
    assert over(client, run_id)["state"] == "succeeded"
    assert made(client, run_id) == ["pushed"]


@pytest.mark.contract("G-9")
def test_every_decision_is_an_event_and_an_audit_entry(client: httpx.Client) -> None:
    run_id = waiting(client, "pushing", permissions="careful")
    reply(client, run_id, "no", client.get(f"/v1/runs/{run_id}/interaction").json()["interaction_id"])
    over(client, run_id)
    events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    decided = [each["data"] for each in events if each["type"] == "permission.decided"]
    assert [each["decision"] for each in decided] == ["ask", "deny"]
    entries = client.get("/v1/audit", params={"run_id": run_id}).json()["items"]
    written = [each["object"] for each in entries if each["action"] == "permission.decide"]
    assert written == [f"{each['decision']}: {each['digest']}" for each in reversed(decided)]
    assert made(client, run_id) == []


@pytest.mark.contract("G-2")
def test_who_may_approve_is_a_scope(client: httpx.Client, pushing: Server) -> None:
    run_id = waiting(client, "pushing", permissions="careful")
    asked = client.get(f"/v1/runs/{run_id}/interaction").json()["interaction_id"]
    with calling(pushing.url, token(client, "answers", "answer", "read")) as answering:
        refused(reply(answering, run_id, "approve", asked), 403, "SCOPE_MISSING")
        refused(answering.post(f"/v1/runs/{run_id}/interaction/link", json={}), 403, "SCOPE_MISSING")
    assert get(client, run_id)["state"] == "waiting_user"
    with calling(pushing.url, token(client, "approves", "answer", "approve", "read")) as approving:
        link = approving.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
        assert reply(approving, run_id, "approve", asked).status_code == 202
    assert "/v1/answers/" in link
    assert over(client, run_id)["state"] == "succeeded"


@pytest.mark.contract("G-5")
def test_a_token_and_a_skill_restrict_what_a_run_allows(client: httpx.Client, pushing: Server) -> None:
    everything = {"default": "allow"}
    with calling(pushing.url, token(client, "careful", "submit", "read", permissions="read-only")) as careful:
        for skill, sources in (("pushing", ["token", "run"]), ("strict", ["token", "run", "skill"])):
            run_id = start(careful, skill, permissions=everything)
            assert [each["source"] for each in get(client, run_id)["permissions"]] == sources
    run_id = start(client, "strict", permissions=everything)
    assert over(client, run_id)["state"] == "succeeded"
    assert made(client, run_id) == []


@pytest.mark.parametrize(
    "policy", ["unknown", {"rules": [{"tool": "shell"}]}, {"rules": "x"}, {"rule": []}, {"default": "maybe"}]
)
def test_a_wrong_policy_is_refused_with_its_place(client: httpx.Client, policy: Any) -> None:
    body = {"skill": "pushing", "engine": "scripted", "permissions": policy}
    problem = refused(client.post("/v1/runs", json=body), 422, "INPUT_INVALID")
    assert all(each.startswith("permissions") for each in problem["problems"])
    refused(
        client.post("/v1/tokens", json={"name": "x", "scopes": ["read"], "permissions": policy}), 422, "INPUT_INVALID"
    )


def test_a_skill_with_a_wrong_policy_is_refused(client: httpx.Client) -> None:
    body = {"skill": "wrong", "engine": "scripted"}
    problem = refused(client.post("/v1/runs", json=body), 422, "SKILL_INVALID")
    assert any("permissions.rules[0].decision" in each for each in problem["problems"])


@pytest.mark.contract("G-8")
def test_each_engine_says_how_it_gates(client: httpx.Client) -> None:
    gates = {each["name"]: each["gate"] for each in client.get("/v1/engines").json()["items"]}
    assert gates["scripted"] == "repeat"
    assert set(gates.values()) <= {"park", "hold", "repeat", "none"}


@pytest.mark.contract("G-4", "G-8")
def test_an_engine_without_a_gate_refuses_permissions(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([DONE], name="quick")
    program = tmp_path / "gemini"
    program.write_text("#!/bin/sh\necho '--resume --session-id --output-format stream-json 0.61.0'\n")
    program.chmod(0o755)
    with (
        Server(world, env={"ASKBACK_ENGINES__GEMINI__COMMAND": json.dumps([str(program)])}) as server,
        calling(server.url, server.token) as client,
    ):
        body = {"skill": "quick", "engine": "gemini", "permissions": "careful"}
        problem = refused(client.post("/v1/runs", json=body), 422, "ENGINE_UNSUITABLE")
        assert "no gate" in problem["detail"]
