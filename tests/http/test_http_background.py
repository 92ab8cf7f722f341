"""What led to a pending question: for everybody who may answer it, and for nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support.api import calling, reach, refused, reply, waiting
from support.data_folder import FINISH, World
from support.server import Server

PASSWORD = "hunter-2-hunter"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("background"))
    messages = [{"say": f"thought {number}"} for number in range(5)]
    world.skill(
        [
            *messages,
            {"write": {"path": "artifacts/a.txt", "text": "1"}},
            {"ask": {"interaction_id": "pin", "prompt": "Pin?", "kind": "secret"}},
        ],
        [
            {"say": "It is {{reply}}. " + "x" * 9_000},
            {"write": {"path": "artifacts/b.txt", "text": "2"}},
            {"ask": {"interaction_id": "colour", "prompt": "Which?", "options": ["red"]}},
        ],
        [FINISH],
        name="asking",
    )
    with Server(world) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


def background(client: httpx.Client, run_id: str) -> httpx.Response:
    return client.get(f"/v1/runs/{run_id}/interaction/background")


def test_it_has_the_turn_that_asked_and_the_answers_before_it_without_secrets(client: httpx.Client) -> None:
    run_id = waiting(client, "asking")
    first = background(client, run_id).json()
    assert first["messages"][:2] == ["thought 3", "thought 4"] or first["messages"][-2:-1] == ["thought 4"]
    assert (first["interactions"], [each["path"] for each in first["files"]]) == ([], ["a.txt"])
    assert reply(client, run_id, PASSWORD, "pin").status_code == 202
    reach(client, run_id, "waiting_user")
    answer = background(client, run_id)
    second = answer.json()
    assert not any("thought" in each for each in second["messages"])
    assert max(len(each) for each in second["messages"]) <= 8_000
    assert [(each["interaction_id"], each["response"]) for each in second["interactions"]] == [("pin", None)]
    assert [each["path"] for each in second["files"]] == ["b.txt"]
    assert PASSWORD not in answer.text
    assert reply(client, run_id, "red", "colour").status_code == 202
    reach(client, run_id, "succeeded")
    assert background(client, run_id).json() == {"messages": [], "interactions": [], "files": []}


def test_a_token_sees_it_only_if_it_may_answer_the_question(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client, "asking", labels={"customer": "1"})
    for name, scopes, labels, status in (
        ("answers", ["answer"], {"customer": "1"}, 200),
        ("another", ["answer"], {"customer": "2"}, 404),
        ("submits", ["submit"], {}, 403),
    ):
        wanted = {"name": name, "scopes": scopes, "labels": labels}
        token = client.post("/v1/tokens", json=wanted).json()["token"]
        with calling(server.url, token) as other:
            response = background(other, run_id)
            if status == 200:
                assert response.status_code == status
            else:
                refused(response, status, {404: "RUN_NOT_FOUND", 403: "SCOPE_MISSING"}[status])
