"""Several questions in one ask over HTTP: one interaction, one answer, problems by field, secrets that stay secret."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.client import Client
from support.api import calling, get, over, refused, reply, start, waiting
from support.data_folder import World
from support.program import until
from support.receiver import Receiver, receiving
from support.server import Server

QUESTIONS = [
    {"id": "pace", "prompt": "What pace?", "options": [{"label": "Relaxed", "value": "slow"}, "packed"]},
    {"id": "nights", "prompt": "How many nights?", "response_schema": {"type": "integer", "minimum": 1}, "default": 2},
    {"id": "dog", "prompt": "With a dog?", "kind": "confirm"},
    {"id": "pin", "prompt": "The PIN of the card?", "kind": "secret"},
    {"id": "note", "prompt": "Anything else?", "required": False},
]
ASK_FORM = {"ask": {"interaction_id": "trip", "prompt": "About your trip", "questions": QUESTIONS}}
ANY: dict[str, Any] = {"type": "object"}
PIN = "hunter2-hunter2"
ANSWER = {"pace": "slow", "nights": 3, "dog": False, "pin": PIN}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("forms"))
    told = {"pace": "{{reply_json.pace}}", "nights": "{{reply_json.nights}}", "dog": "{{reply_json.dog}}"}
    world.skill([ASK_FORM], [{"say": "I was told {{prompt}}"}, {"finish": told}], name="trip", output=ANY)
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


@pytest.mark.contract("N-6")
def test_a_form_is_asked_once_answered_as_a_whole_and_read_by_its_engine(client: httpx.Client) -> None:
    run_id = waiting(client, "trip")
    (asked,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    assert (asked["kind"], asked["prompt"]) == ("form", "About your trip")
    assert [field["id"] for field in asked["questions"]] == ["pace", "nights", "dog", "pin", "note"]
    assert [field["required"] for field in asked["questions"]] == [True, True, True, True, False]
    assert asked["response_schema"]["required"] == ["pace", "nights", "dog", "pin"]
    assert asked["default"] is None
    listed = [each for each in client.get("/v1/inbox").json()["items"] if each["run_id"] == run_id]
    assert [each["questions"] for each in listed] == [asked["questions"]]
    for words, matches in (("nights pace", True), ("nights zebra", False)):
        found = client.get("/v1/inbox", params={"q": words}).json()["items"]
        assert (run_id in [each["run_id"] for each in found]) is matches
    assert reply(client, run_id, ANSWER, "trip").status_code == 202
    assert over(client, run_id)["state"] == "succeeded"
    assert client.get(f"/v1/runs/{run_id}/result").json()["data"] == {"pace": "slow", "nights": 3, "dog": False}
    (answered,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    assert answered["response"] == {**ANSWER, "pin": None}
    events = client.get(f"/v1/runs/{run_id}/events").json()["items"]
    (said,) = [event["data"]["text"] for event in events if event["type"] == "assistant.message"][-2:-1] or [""]
    assert PIN not in json.dumps(events)
    for line in ('- pace: "What pace?"', '- note: "Anything else?" (left unanswered)', '"pin": "[redacted]"'):
        assert line in said


@pytest.mark.contract("N-6")
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({}, "response.pace: is required"),
        ({**ANSWER, "pace": "fast"}, "response.pace: "),
        ({**ANSWER, "nights": 0}, "response.nights: "),
        ({**ANSWER, "dog": "no"}, "response.dog: "),
        ({**ANSWER, "colour": "red"}, "response.colour: "),
        ({**ANSWER, "note": 7}, "response.note: "),
        ("slow", "response: is not an object with the answers to the 5 questions by their ids"),
        ([ANSWER], "response: is not an object with the answers to the 5 questions by their ids"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_the_name_of_its_field(
    client: httpx.Client, answer: Any, problem: str
) -> None:
    run_id = waiting(client, "trip")
    told = refused(reply(client, run_id, answer, "trip"), 422, "REPLY_INVALID")
    assert [each for each in told["problems"] if each.startswith(problem)], told["problems"]
    assert get(client, run_id)["state"] == "waiting_user"
    client.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.contract("N-6")
def test_a_refusal_does_not_repeat_a_secret(client: httpx.Client) -> None:
    run_id = waiting(client, "trip")
    for secret in ([PIN], {"x": PIN}, 77_777_777):
        told = refused(reply(client, run_id, {**ANSWER, "pin": secret}, "trip"), 422, "REPLY_INVALID")
        (problem,) = told["problems"]
        assert problem.startswith("response.pin: ")
        assert PIN not in json.dumps(told)
        assert "77" not in json.dumps(told)
    client.post(f"/v1/runs/{run_id}/cancel")


@pytest.mark.contract("N-6")
def test_a_link_and_the_client_answer_a_form_as_a_whole(server: Server, client: httpx.Client) -> None:
    with Client(server.url, server.token) as desk:
        run = desk.wait(start(client, "trip"))
        assert run.pending_interaction is not None
        assert [field.prompt for field in run.pending_interaction.questions][:2] == ["What pace?", "How many nights?"]
        assert run.pending_interaction.heading == "About your trip (5 questions)"
        link = desk.link(run.id)
        path = httpx.URL(link.url).path
        problem = httpx.post(server.url + path, json={"response": {"pace": "slow"}})
        assert problem.status_code == 422
        assert "response.dog: is required" in problem.json()["problems"]
        answered = httpx.post(server.url + path, json={"response": ANSWER})
        assert answered.json()["response"] == {**ANSWER, "pin": None}
        assert desk.wait(run.id).state == "succeeded"


@pytest.mark.contract("N-6")
def test_a_notification_says_how_many_questions_there_are(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK_FORM], [{"finish": {}}], name="trip", output=ANY)
    private = {"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}
    with (
        receiving(Receiver()) as receiver,
        Server(world, env=private) as server,
        calling(server.url, server.token) as client,
    ):
        hook = {"url": receiver.url, "kind": "ntfy", "states": ["waiting_user"]}
        run_id = waiting(client, "trip", webhooks=[hook])
        until(lambda: bool(receiver.came))
        client.post(f"/v1/runs/{run_id}/cancel")
    assert b"About your trip (5 questions)" in receiver.came[0].body
