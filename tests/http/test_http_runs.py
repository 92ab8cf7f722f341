"""Runs over HTTP: created, listed, followed, canceled, and what they ended with."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import support.data_folder as world
from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.core.runs import RunState
from support.api import RFC_3339_UTC, calling, newest_run, over, reach, refused, reply, start, waiting, within
from support.data_folder import World, run_async
from support.server import Server

BODY = {"skill": "quick", "engine": "scripted", "mode": "interactive"}


def test_a_run_shows_its_input_and_lists_show_a_summary(client: httpx.Client) -> None:
    made = client.post("/v1/runs", json=BODY | {"input": {"city": "Lisbon", "days": 3}}).json()
    run = client.get(f"/v1/runs/{made['id']}").json()
    assert run["input"] == {"city": "Lisbon", "days": 3}
    assert made["summary"] == run["summary"] == "Lisbon · 3"
    listed = {each["id"]: each for each in client.get("/v1/runs").json()["items"]}
    assert listed[made["id"]]["summary"] == "Lisbon · 3"
    assert "input" not in listed[made["id"]]


def test_a_large_input_is_not_sent_with_every_look_at_its_run(client: httpx.Client) -> None:
    made = client.post("/v1/runs", json=BODY | {"input": {"city": "Lisbon", "text": "x" * 100_000}}).json()
    found = client.get(f"/v1/runs/{made['id']}")
    assert "input" not in found.json()
    assert found.json()["summary"].startswith("Lisbon · ")
    assert len(found.content) < 10_000


def test_a_run_goes_from_its_creation_to_its_result(client: httpx.Client) -> None:
    made = client.post("/v1/runs", json=BODY | {"skill": "asking"})
    run = made.json()
    assert made.status_code == 201
    assert made.headers["location"] == f"/v1/runs/{run['id']}"
    assert (run["state"], run["skill"], run["engine"], run["mode"]) == ("queued", "asking", "scripted", "interactive")
    assert run["interactive_profile"] == {
        "kind": "resumable",
        "reason": "its --help offers --resume",
        "session_timeout_sec": 1200.0,
    }
    assert run["queue_reason"] in ("starting", "slots")

    asked = reach(client, run["id"], "waiting_user")
    assert asked["pending_interaction"]["prompt"] == "Which colour?"
    assert "queue_reason" not in asked
    refused(client.get(f"/v1/runs/{run['id']}/result"), 409, "RUN_NOT_FINAL")

    accepted = reply(client, run["id"], "blue")
    assert accepted.status_code == 202
    assert accepted.json()["id"] == run["id"]
    ended = over(client, run["id"])
    assert (ended["state"], ended["attempt_number"]) == ("succeeded", 2)
    result = client.get(f"/v1/runs/{run['id']}/result").json()
    assert result == {
        "status": "succeeded",
        "data": {"colour": "blue"},
        "warnings": [],
        "error": None,
        "artifacts": [{"path": "deep/a b.txt", "size": 5, "turn": 2}],
    }


def test_times_are_rfc_3339_in_utc(client: httpx.Client) -> None:
    run_id = waiting(client)
    reply(client, run_id, "red")
    run = over(client, run_id)
    times = [run[name] for name in ("created_at", "updated_at", "started_at", "finished_at")]
    (question,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    times += [question["asked_at"], question["answered_at"]]
    times += [event["at"] for event in client.get(f"/v1/runs/{run_id}/events").json()["items"]]
    assert [time for time in times if not RFC_3339_UTC.fullmatch(time)] == []


def test_a_run_that_failed_says_why(client: httpx.Client) -> None:
    run = over(client, start(client, "failing"))
    assert (run["state"], run["error"]["code"]) == ("failed", "ENGINE_AUTH_REQUIRED")
    result = client.get(f"/v1/runs/{run['id']}/result").json()
    assert (result["status"], result["data"], result["error"]) == ("failed", None, run["error"])


# Creating.


@pytest.mark.parametrize(
    ("change", "status", "code", "told"),
    [
        ({"skill": "no-such-skill"}, 404, "SKILL_NOT_FOUND", "no-such-skill"),
        ({"skill": "../quick"}, 404, "SKILL_NOT_FOUND", "unknown"),
        ({"skill": "/"}, 404, "SKILL_NOT_FOUND", "unknown"),
        ({"engine": "scriptd"}, 422, "ENGINE_UNKNOWN", "did you mean 'scripted'"),
        ({"engine": "codex"}, 422, "ENGINE_NOT_FOUND", "not installed"),
        ({"skill": "open", "mode": "auto", "engine": "gemini"}, 422, "ENGINE_UNSUITABLE", "it runs on: scripted"),
        ({"skill": "open", "mode": "interactive"}, 422, "INPUT_INVALID", "open"),
        ({"options": {"turn_timeout_sec": "soon"}}, 422, "INPUT_INVALID", "quick"),
        ({"input": {"plan": {"upload_id": "up-000000000000000000000000"}}}, 404, "UPLOAD_NOT_FOUND", "/v1/uploads"),
        ({"skill": "reading", "input": {"plan": "a text"}}, 422, "INPUT_INVALID", "reading"),
        ({"skill": None}, 422, "REQUEST_INVALID", "invalid"),
        ({"skill": ""}, 422, "REQUEST_INVALID", "invalid"),
        ({"mode": "sometimes"}, 422, "REQUEST_INVALID", "invalid"),
        ({"input": []}, 422, "REQUEST_INVALID", "invalid"),
        ({"surprise": 1}, 422, "REQUEST_INVALID", "invalid"),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_run_exists(
    client: httpx.Client, change: dict[str, Any], status: int, code: str, told: str
) -> None:
    newest = newest_run(client)
    detail = refused(client.post("/v1/runs", json=BODY | change), status, code)["detail"]
    assert told in detail
    assert newest_run(client) == newest


def test_every_mistake_is_named_at_once_by_its_path(client: httpx.Client) -> None:
    body = {"skill": "reading", "engine": "scripted", "input": {"other": 1}, "options": {"repair_attempts": -1}}
    told = refused(client.post("/v1/runs", json=body), 422, "INPUT_INVALID")
    paths = {problem.partition(":")[0] for problem in told["problems"]}
    assert len(told["errors"]) == len(told["problems"])
    assert all(line.endswith(error["message"]) for line, error in zip(told["problems"], told["errors"], strict=True))
    assert {"options.repair_attempts", "input.plan", "input.other"} <= paths
    told = refused(client.post("/v1/runs", json={"skill": 1, "mode": "x", "input": []}), 422, "REQUEST_INVALID")
    assert {problem.partition(":")[0] for problem in told["problems"]} == {"skill", "mode", "input"}


def test_the_same_key_and_body_gets_the_same_run(client: httpx.Client) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}
    first = client.post("/v1/runs", json=BODY, headers=key)
    turned = json.dumps(dict(reversed(BODY.items())), indent=2)
    again = client.post("/v1/runs", content=turned, headers=key | {"content-type": "application/json"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]
    assert first.headers["location"] == again.headers["location"]
    other = client.post("/v1/runs", json=BODY | {"skill": "asking"}, headers=key)
    refused(other, 422, "IDEMPOTENCY_KEY_REUSED")
    assert client.post("/v1/runs", json=BODY).json()["id"] != first.json()["id"]


def test_a_key_of_another_token_is_another_key(client: httpx.Client, server: Server, furnished: World) -> None:
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    secrets = [tokens.make(f"app-{uuid.uuid4()}", (AccessScope.SUBMIT,), None) for _ in range(2)]
    key, ids = {"Idempotency-Key": str(uuid.uuid4())}, [client.post("/v1/runs", json=BODY).json()["id"]]
    for secret in (server.token, *secrets):
        with calling(server.url, secret) as app:
            first, again = (app.post("/v1/runs", json=BODY, headers=key) for _ in range(2))
        assert first.json()["id"] == again.json()["id"]
        ids.append(first.json()["id"])
    assert len(set(ids)) == 4


def test_a_key_sent_many_times_at_once_makes_one_run(server: Server) -> None:
    key = {"Idempotency-Key": str(uuid.uuid4())}

    def send(_: int) -> str:
        with calling(server.url, server.token) as client:
            return str(client.post("/v1/runs", json=BODY, headers=key).json()["id"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(send, range(16)))) == 1


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_has_a_length(client: httpx.Client, key: str) -> None:
    refused(client.post("/v1/runs", json=BODY, headers={"Idempotency-Key": key}), 422, "REQUEST_INVALID")


# Looking.


def test_an_unknown_run_is_404_everywhere(client: httpx.Client) -> None:
    for path in ("", "/interaction", "/interactions", "/events", "/result", "/artifacts", "/artifacts/a", "/bundle"):
        refused(client.get(f"/v1/runs/0000000000000000{path}"), 404, "RUN_NOT_FOUND")
    refused(client.post("/v1/runs/0000000000000000/cancel"), 404, "RUN_NOT_FOUND")
    refused(reply(client, "0000000000000000", "x"), 404, "RUN_NOT_FOUND")


def test_runs_are_listed_newest_first_page_by_page(client: httpx.Client) -> None:
    made = [start(client, "quick") for _ in range(5)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while len(seen) < 5:
        page = client.get("/v1/runs", params={"skill": "quick", "limit": "2", **cursor}).json()
        assert len(page["items"]) <= 2
        seen += [run["id"] for run in page["items"]]
        cursor = {"cursor": page["next_cursor"]}
    assert seen[:5] == made[::-1]


def test_a_list_ends(own_world: World) -> None:
    async def main() -> None:
        async with within(own_world) as (app, _, client):
            assert (await client.get("/v1/runs")).json() == {"items": [], "next_cursor": None}
            ids = [(await client.post("/v1/runs", json=BODY)).json()["id"] for _ in range(3)]
            for run_id in ids:
                await world.over(app, run_id)
            page = (await client.get("/v1/runs", params={"limit": 3})).json()
            assert ([run["id"] for run in page["items"]], page["next_cursor"]) == (ids[::-1], None)

    run_async(main)


def test_runs_are_filtered_by_state_skill_and_engine(client: httpx.Client) -> None:
    asking, quick = waiting(client), start(client, "quick")
    over(client, quick)

    def ids(**params: str) -> set[str]:
        return {run["id"] for run in client.get("/v1/runs", params={"limit": "200", **params}).json()["items"]}

    assert asking in ids(state="waiting_user")
    assert quick not in ids(state="waiting_user")
    assert quick in ids(skill="quick", state="succeeded", engine="scripted")
    assert asking not in ids(skill="quick")
    assert ids(engine="codex") == set()


@pytest.mark.parametrize(
    "query",
    ["state=done", "limit=0", "limit=201", "limit=x", "limit=99999999999999999999", "cursor=mine", "cursor=1.2.3"],
)
def test_a_list_that_cannot_be_is_refused(client: httpx.Client, query: str) -> None:
    assert client.get(f"/v1/runs?{query}").status_code == 422
    if not query.startswith("state"):
        assert client.get(f"/v1/inbox?{query}").status_code == 422


# Events as JSON.


def test_events_are_numbered_without_gaps_and_after_is_exclusive(client: httpx.Client) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "run.created"
    assert (events[-1]["type"], events[-1]["data"]["to"]) == ("run.state", "succeeded")
    later = client.get(f"/v1/runs/{run_id}/events", params={"after": 3}).json()
    assert (later["items"], later["next_cursor"]) == (events[3:], None)
    assert client.get(f"/v1/runs/{run_id}/events", params={"after": len(events)}).json()["items"] == []


def test_events_come_page_by_page(client: httpx.Client) -> None:
    run_id = start(client, "quick")
    over(client, run_id)
    seen, after = [], "0"
    while after is not None:
        page = client.get(f"/v1/runs/{run_id}/events", params={"after": after, "limit": 2}).json()
        assert len(page["items"]) <= 2
        seen += [event["seq"] for event in page["items"]]
        after = page["next_cursor"]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > 4


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1.5", "after=9223372036854775808", "limit=1001"])
def test_events_that_cannot_be_asked_for_are_refused(client: httpx.Client, query: str) -> None:
    run_id = start(client, "quick")
    refused(client.get(f"/v1/runs/{run_id}/events?{query}"), 422, "REQUEST_INVALID")


# Ending and queueing.


def test_cancel_ends_a_run_in_every_state_and_only_once(client: httpx.Client) -> None:
    running = start(client, "endless")
    reach(client, running, "running")
    for run_id in (running, waiting(client)):
        assert client.post(f"/v1/runs/{run_id}/cancel").status_code == 202
        assert over(client, run_id)["state"] == "canceled"
        refused(client.post(f"/v1/runs/{run_id}/cancel"), 409, "RUN_FINAL")
        refused(reply(client, run_id, "red"), 409, "INTERACTION_NOT_PENDING")


@pytest.mark.parametrize(
    ("config", "reason"),
    [("slots = 1", "slots"), ("slots = 4\n[engines.scripted]\nslots = 1", "engine_slots")],
)
def test_a_queued_run_says_why(own_world: World, config: str, reason: str) -> None:
    async def main() -> None:
        async with within(own_world, config) as (app, _, client):
            first = (await client.post("/v1/runs", json=BODY | {"skill": "endless"})).json()["id"]
            await world.reach(app, first, RunState.RUNNING)
            second = (await client.post("/v1/runs", json=BODY)).json()["id"]
            assert (await client.get(f"/v1/runs/{second}")).json()["queue_reason"] == reason
            health = (await client.get("/healthz")).json()
            assert health["slots"]["taken"] == 1
            assert health["oldest_queued_sec"] >= 0
            await client.post(f"/v1/runs/{first}/cancel")
            await world.over(app, second)
            assert "queue_reason" not in (await client.get(f"/v1/runs/{second}")).json()

    run_async(main)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("state=x", "state: 'x' is not one of queued, "),
        ("skill=" + "x" * 300, "skill: expected a string of length <= 200"),
        ("limit=0", "limit: expected an integer >= 1"),
    ],
)
def test_a_wrong_parameter_is_named_as_it_was_written(client: httpx.Client, query: str, problem: str) -> None:
    (told,) = refused(client.get(f"/v1/runs?{query}"), 422, "REQUEST_INVALID")["problems"]
    assert told.startswith(problem)
