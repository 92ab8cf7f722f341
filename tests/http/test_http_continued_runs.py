"""Runs that continue another one, over HTTP: what is copied, what is shown, and who may."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from support.api import calling, over, refused, reply, start, waiting
from support.data_folder import World
from support.server import Server

BODY = {"skill": "quick", "engine": "scripted", "mode": "interactive"}


def answered(client: httpx.Client) -> str:
    """A run that is over and has left a file."""
    run_id = waiting(client)
    reply(client, run_id, "blue")
    over(client, run_id)
    return run_id


@pytest.mark.contract("J-3")
def test_a_run_takes_the_files_of_another(client: httpx.Client) -> None:
    source = answered(client)
    before = client.get(f"/v1/runs/{source}").json()
    made = client.post("/v1/runs", json=BODY | {"from_run": {"run_id": source, "files": "artifacts"}})
    assert made.status_code == 201
    assert made.json()["from_run"] == {"run_id": source, "files": "artifacts"}
    run_id = made.json()["id"]
    over(client, run_id)
    files = client.get(f"/v1/runs/{run_id}/artifacts").json()["items"]
    assert files == [{"path": "deep/a b.txt", "size": 5, "turn": 0}]
    assert client.get(f"/v1/runs/{source}").json() == before


@pytest.mark.contract("J-4")
def test_a_run_is_forked_at_a_question_and_answered_differently(client: httpx.Client) -> None:
    source = answered(client)
    fork = {"run_id": source, "session": True, "at": "colour"}
    body = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
    made = client.post("/v1/runs", json=body | {"from_run": fork}).json()
    assert (made["state"], made["from_run"]) == ("waiting_user", fork)
    assert made["pending_interaction"]["prompt"] == "Which colour?"
    assert made["id"] in [each["run_id"] for each in client.get("/v1/inbox?limit=200").json()["items"]]
    reply(client, made["id"], "red")
    given = client.post("/v1/runs", json=body | {"from_run": fork | {"response": "red"}}).json()
    for run_id in (made["id"], given["id"]):
        over(client, run_id)
        assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}
    assert client.get(f"/v1/runs/{source}/result").json()["data"] == {"colour": "blue"}
    missing = client.post("/v1/runs", json=body | {"from_run": fork | {"at": "size"}})
    refused(missing, 404, "INTERACTION_NOT_FOUND")


def test_a_source_that_cannot_be_copied_is_refused_and_named(client: httpx.Client) -> None:
    endless = start(client, "endless")
    for given, status, code in (
        ({"run_id": "0000000000000000", "files": "artifacts"}, 404, "RUN_NOT_FOUND"),
        ({"run_id": endless, "files": "artifacts"}, 409, "STATE_UNSUITABLE"),
        ({"run_id": endless}, 422, "INPUT_INVALID"),
    ):
        refused(client.post("/v1/runs", json=BODY | {"from_run": given}), status, code)
    client.post(f"/v1/runs/{endless}/cancel")
    over(client, endless)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"session": True, "response": "red"}, "from_run.response: answers no question"),
        ({"files": "artifacts", "response": "red"}, "from_run.response: answers no question"),
        ({"at": "colour"}, "from_run.at: a fork continues the session; set session to true"),
        ({"at": "colour", "response": "red"}, "from_run.at: a fork continues the session; set session to true"),
    ],
)
def test_what_would_be_ignored_is_refused(client: httpx.Client, given: dict[str, object], problem: str) -> None:
    answer = client.post("/v1/runs", json=BODY | {"from_run": {"run_id": answered(client)} | given})
    (told,) = refused(answer, 422, "INPUT_INVALID")["problems"]
    assert told.startswith(problem)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"files": "artifacts"}, "from_run.run_id: required"),
        ({"run_id": "a", "files": "all"}, "from_run.files: 'all' is not one of artifacts, workspace"),
        ({"run_id": "a", "file": "artifacts"}, "from_run.file: unknown field; did you mean 'files'?"),
        ([], "from_run: expected an object or null, got an array"),
    ],
)
def test_a_mistake_is_named_with_its_place(client: httpx.Client, given: object, problem: str) -> None:
    answer = client.post("/v1/runs", json=BODY | {"from_run": given})
    assert problem in refused(answer, 422, "REQUEST_INVALID")["problems"]


def test_who_copies_from_a_run_must_be_allowed_to_read_it(
    server: Server, furnished: World, client: httpx.Client
) -> None:
    source = answered(client)
    tokens = Tokens(furnished.records, lambda: datetime.now(UTC))
    body = BODY | {"from_run": {"run_id": source, "files": "artifacts"}}
    with calling(server.url, tokens.make("submits", (AccessScope.SUBMIT,), None)) as submits:
        refused(submits.post("/v1/runs", json=body), 403, "SCOPE_MISSING")
    both = tokens.make("submits-and-reads", (AccessScope.SUBMIT, AccessScope.READ), None)
    with calling(server.url, both) as app:
        assert over(app, app.post("/v1/runs", json=body).json()["id"])["state"] == "succeeded"


def test_a_retry_with_the_same_key_is_the_same_run(client: httpx.Client) -> None:
    body = BODY | {"from_run": {"run_id": answered(client), "files": "workspace"}}
    first, second = (client.post("/v1/runs", json=body, headers={"Idempotency-Key": "follow-up"}) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    other = BODY | {"from_run": {**body["from_run"], "files": "artifacts"}}
    refused(
        client.post("/v1/runs", json=other, headers={"Idempotency-Key": "follow-up"}), 422, "IDEMPOTENCY_KEY_REUSED"
    )
    over(client, first.json()["id"])
