"""Labels over HTTP: set when a run is created, shown wherever the run is, and used as filters."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from support.api import PATIENCE_SEC, calling, get, over, refused, reply, start, waiting, within
from support.data_folder import World
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

STREAM = {"accept": "text/event-stream"}

HOSTILE = (
    "</script><script>alert(1)</script>",
    "' OR '1'='1",
    "%' ESCAPE '",
    "a:b:c=d&label=x",
    '{"$.x": 1}',
    "客户 🙂 Größe",
    "null",
    "x" * 200,
)


@pytest.mark.contract("N-5")
def test_labels_are_shown_wherever_the_run_is(client: httpx.Client) -> None:
    labels = {"customer": "shown", "a.b_c-D": "2"}
    run_id = waiting(client, labels=labels)
    assert get(client, run_id)["labels"] == labels
    (asked,) = client.get("/v1/inbox", params={"label": "customer:shown"}).json()["items"]
    assert (asked["run_id"], asked["labels"]) == (run_id, labels)
    created = client.get(f"/v1/runs/{run_id}/events").json()["items"][0]
    assert created["data"]["labels"] == labels
    assert reply(client, run_id, "red").json()["labels"] == labels
    over(client, run_id)
    (closed,) = client.get("/v1/interactions", params={"label": "customer:shown"}).json()["items"]
    assert (closed["run_id"], closed["labels"]) == (run_id, labels)
    assert "labels" not in client.get(f"/v1/runs/{start(client, 'quick', mode='auto')}").json()


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_is_only_a_text(client: httpx.Client, value: str) -> None:
    run_id = start(client, "quick", mode="auto", labels={"hostile": value})
    over(client, run_id)
    for path in ("/v1/runs", "/v1/runs?state=succeeded", "/v1/runs?skill=quick&engine=scripted"):
        found = client.get(path, params={**dict(httpx.URL(path).params), "label": f"hostile:{value}"}).json()["items"]
        assert [(run["id"], run["labels"]) for run in found] == [(run_id, {"hostile": value})]
    assert client.get("/v1/runs", params={"label": f"hostile:{value}x"[:299]}).status_code in (200, 422)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"a b": "1"}, "labels: 'a b' is not a name; a name has 1 to 63 letters"),
        ({"a": ""}, "labels.a: a value has 1 to 200 characters, this one has 0"),
        ({"a": "x" * 201}, "labels.a: a value has 1 to 200 characters, this one has 201"),
        ({"a": "1\n2"}, "labels.a: a value is one line without control characters"),
        ({f"n{number}": "1" for number in range(17)}, "labels: there are 17 labels; at most 16 are allowed"),
    ],
)
def test_bad_labels_are_refused_with_the_reason(client: httpx.Client, labels: dict[str, str], problem: str) -> None:
    body = {"skill": "quick", "engine": "scripted", "labels": labels}
    told = refused(client.post("/v1/runs", json=body), 422, "INPUT_INVALID")
    assert told["problems"][0].startswith(problem)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("labels", [[], "a", {"a": 1}, {"a": None}])
def test_labels_of_another_shape_are_refused(client: httpx.Client, labels: Any) -> None:
    body = {"skill": "quick", "engine": "scripted", "labels": labels}
    assert client.post("/v1/runs", json=body).status_code in (400, 422)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("path", ["/v1/runs", "/v1/inbox", "/v1/interactions", "/v1/deliveries", "/v1/stats"])
@pytest.mark.parametrize("label", ["customer", ":1", "a b:1", "a:"])
def test_a_filter_that_is_no_label_is_refused(client: httpx.Client, path: str, label: str) -> None:
    assert client.get(path, params={"label": label}).status_code == 422


@pytest.mark.contract("N-5")
def test_repeated_labels_must_all_be_there(client: httpx.Client) -> None:
    both = waiting(client, labels={"team": "all", "number": "1"})
    one = waiting(client, labels={"team": "all", "number": "2"})
    for path, key in (("/v1/runs", "id"), ("/v1/runs?state=waiting_user", "id"), ("/v1/inbox", "run_id")):
        params = [*httpx.URL(path).params.multi_items(), ("label", "team:all")]
        assert {each[key] for each in client.get(path, params=params).json()["items"]} == {both, one}
        narrow = client.get(path, params=[*params, ("label", "number:1")]).json()["items"]
        assert [each[key] for each in narrow] == [both]
    inbox = client.get("/v1/inbox", params=[("label", "team:all"), ("label", "number:1")]).json()
    assert (inbox["total"], inbox["skills"]) == (1, {"asking": 1})
    assert client.get("/v1/stats", params={"label": "team:all"}).json()["unfinished"]["waiting_user"] == 2
    for run_id in (both, one):
        client.post(f"/v1/runs/{run_id}/cancel")
        over(client, run_id)
    assert client.get("/v1/stats", params={"label": "team:all"}).json()["unfinished"]["waiting_user"] == 0
    finished = client.get("/v1/stats", params={"label": "team:all"}).json()["skills"]
    assert [(each["name"], each["canceled"]) for each in finished] == [("asking", 2)]


@pytest.mark.contract("N-5")
def test_pages_of_a_filtered_list_have_each_run_once(client: httpx.Client) -> None:
    made = [start(client, "quick", mode="auto", labels={"paged": "yes", "n": str(number)}) for number in range(5)]
    found: list[str] = []
    cursor: str | None = None
    while True:
        params = {"label": "paged:yes", "limit": "2", **({} if cursor is None else {"cursor": cursor})}
        page = client.get("/v1/runs", params=params).json()
        found += [run["id"] for run in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == made[::-1]


def test_a_filter_finds_the_runs_of_ones_own_token_whoever_else_uses_the_label(
    server: Server, furnished: World, client: httpx.Client
) -> None:
    mine = {"label": "whose:same", "mine": "true"}
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    other = tokens.make("whose", (AccessScope.SUBMIT, AccessScope.READ), None)
    with calling(server.url, other) as app, client.stream("GET", "/v1/runs", params=mine, headers=STREAM) as stream:
        run_id = waiting(client, labels={"whose": "same"})
        forged = waiting(app, labels={"whose": "same"})
        for narrow in ({}, {"state": "waiting_user"}, {"skill": "asking"}, {"limit": "1"}):
            for caller, wanted in ((client, run_id), (app, forged)):
                found = caller.get("/v1/runs", params=mine | narrow).json()
                assert ([each["id"] for each in found["items"]], found["next_cursor"]) == ([wanted], None)
        everybody = client.get("/v1/runs", params=mine | {"mine": "false"}).json()["items"]
        assert [each["id"] for each in everybody] == [forged, run_id]
        for each in (forged, run_id):
            client.post(f"/v1/runs/{each}/cancel")
        told = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: "))
        last = next(each for each in told if each["state"] == "canceled")
        assert last["id"] == run_id
    refused(client.get("/v1/runs", params={"mine": "true"}), 422, "INPUT_INVALID")


@pytest.mark.parametrize("mark", ["mcp_call", "acp-session"])
def test_a_continued_run_is_not_taken_for_its_source(client: httpx.Client, mark: str) -> None:
    source = start(client, "quick", mode="auto", labels={"customer": "marked", mark: "1"})
    over(client, source)
    body = {"skill": "quick", "engine": "scripted", "from_run": {"run_id": source, "files": "artifacts"}}
    assert client.post("/v1/runs", json=body).json()["labels"] == {"customer": "marked"}


@pytest.mark.contract("N-5")
def test_a_continued_run_has_the_labels_of_its_source_unless_others_are_given(client: httpx.Client) -> None:
    source = start(client, "quick", mode="auto", labels={"customer": "source"})
    over(client, source)
    body = {"skill": "quick", "engine": "scripted", "from_run": {"run_id": source, "files": "artifacts"}}
    assert client.post("/v1/runs", json=body).json()["labels"] == {"customer": "source"}
    assert client.post("/v1/runs", json={**body, "labels": {"x": "y"}}).json()["labels"] == {"x": "y"}
    assert "labels" not in client.post("/v1/runs", json={**body, "labels": {}}).json()


@pytest.mark.contract("N-5")
def test_a_webhook_of_the_settings_is_told_of_runs_with_its_labels_alone(own_world: World) -> None:
    with receiving(Receiver()) as receiver:
        hook = f'[[webhooks]]\nurl = "{receiver.url}/%s"\nstates = ["succeeded"]\n%s'
        labelled = hook % ("labelled", 'labels = { customer = "4711", plan = "trial" }\n')
        config = f"{ALLOWED}{labelled}{hook % ('all', '')}"

        async def main() -> None:
            async with within(own_world, config) as (app, _, client):
                for labels in (
                    {"customer": "4711"},
                    {},
                    {"plan": "trial"},
                    {"customer": "4711", "plan": "trial", "x": "y"},
                ):
                    body = {"skill": "quick", "engine": "scripted", "mode": "auto", "labels": labels}
                    run_id = (await client.post("/v1/runs", json=body)).json()["id"]
                    await app.service.changed(run_id, None)
                async with asyncio.timeout(PATIENCE_SEC):
                    while len(receiver.came) < 5:
                        await asyncio.sleep(0.02)

        asyncio.run(main())
    told = [(each.path, json.loads(each.body)["data"]["run"].get("labels")) for each in receiver.came]
    assert [labels for path, labels in told if path.endswith("labelled")] == [
        {"customer": "4711", "plan": "trial", "x": "y"}
    ]
    assert len(told) == 5


@pytest.mark.contract("N-5")
def test_a_deleted_run_is_in_no_filtered_list(client: httpx.Client) -> None:
    run_id = start(client, "quick", mode="auto", labels={"customer": "deleted"})
    over(client, run_id)
    assert client.delete(f"/v1/runs/{run_id}").status_code == 204
    assert client.get("/v1/runs", params={"label": "customer:deleted"}).json()["items"] == []
