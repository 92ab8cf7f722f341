"""Web push: a device is told of a question, encrypted for it alone, for as long as its token and its session are valid."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.push_subscriptions import MAX_PER_TOKEN
from askback.access.tokens import Token, Tokens
from askback.core.access import AccessScope
from support.api import calling, refused, reply, waiting
from support.data_folder import ASK, FINISH, World
from support.program import until
from support.push_service import PushService, push_service, text_of
from support.server import Server

ALLOWED = {"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}


@pytest.fixture
def service() -> Iterator[PushService]:
    with push_service() as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("push"))
    world.skill([ASK], [FINISH], name="asking")
    world.skill([{"ask": {**ASK["ask"], "prompt": "Why? " * 100}}], [FINISH], name="talkative")
    return world


@pytest.fixture(scope="module")
def pushing(world: World) -> Iterator[Server]:
    """A server that may send pushes to this machine."""
    with Server(world, env=ALLOWED) as server:
        yield server


@pytest.fixture
def main(pushing: Server) -> Iterator[httpx.Client]:
    with calling(pushing.url, pushing.token) as client:
        yield client
        for each in listed(client):
            client.delete(f"/v1/push/subscriptions/{each['id']}")


@pytest.fixture(scope="module")
def tokens(world: World) -> Tokens:
    return Tokens(world.records, lambda: datetime.now(UTC))


@pytest.fixture
def person(pushing: Server, tokens: Tokens, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Another token, with the name of the test."""
    with calling(pushing.url, tokens.make(request.node.name, (AccessScope.ANSWER,), None)) as client:
        yield client


def subscribe(client: httpx.Client, service: PushService, name: str = "phone") -> dict[str, Any]:
    made = client.post("/v1/push/subscriptions", json=service.subscription(name))
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def listed(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/push").json()["items"]
    return found


def settled(client: httpx.Client, run_id: str, service: PushService) -> list[dict[str, Any]]:
    """The deliveries of a run to this service, once nothing will be sent any more but reminders."""

    def look() -> tuple[list[dict[str, Any]], ...]:
        found = deliveries(client, run_id, service)
        return (found,) if all(each["next_attempt_at"] is None for each in found) else ()

    return until(look)[0]


def deliveries(client: httpx.Client, run_id: str, service: PushService) -> list[dict[str, Any]]:
    items = client.get(f"/v1/runs/{run_id}/deliveries").json()["items"]
    changes = [each for each in items if each["reason"] == "state"]
    return [each for each in changes if each["url"] == f"http://127.0.0.1:{service.receiver.port}/…"]


# What is sent.


@pytest.mark.contract("N-8")
def test_a_device_is_told_of_a_question_that_only_it_can_read(main: httpx.Client, service: PushService) -> None:
    device = subscribe(main, service)
    assert (device["device"].partition("/")[0], device["last_success_at"]) == ("python-httpx", None)
    run_id = waiting(main)
    (sent,) = settled(main, run_id, service)
    assert (sent["kind"], sent["last_status"], sent["delivered_at"] is None) == ("push", 204, False)
    (push,) = service.pushes
    content = {"kind": "question", "skill": "asking", "run": run_id, "question": "colour"}
    assert push.content == content | {"text": "Which colour?", "options": ["red", "blue"]}
    assert (push.path, push.urgency, push.ttl_sec) == ("/phone", "high", 28 * 24 * 3600)
    assert push.server_key == main.get("/v1/push").json()["public_key"]
    assert b"colour" not in service.receiver.came[0].body
    assert until(lambda: listed(main)[0]["last_success_at"]) is not None


def test_a_long_question_is_cut_and_kept_until_its_deadline(main: httpx.Client, service: PushService) -> None:
    subscribe(main, service)
    run_id = waiting(main, "talkative", options={"interactive_require_user_reply": False, "session_timeout_sec": 600})
    settled(main, run_id, service)
    (push,) = service.pushes
    assert len(push.content["text"]) == 200
    assert push.content["text"].endswith("…")
    assert 0 < push.ttl_sec <= 600


def test_without_push_text_a_push_names_the_skill_alone(tmp_path: Path, service: PushService) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    contact = {"ASKBACK_NOTIFICATIONS__PUSH_CONTACT": "mailto:ops@example.com"}
    env = ALLOWED | contact | {"ASKBACK_NOTIFICATIONS__PUSH_TEXT": "false"}
    with Server(world, env=env) as server, calling(server.url, server.token) as client:
        subscribe(client, service)
        run_id = waiting(client)
        settled(client, run_id, service)
    (push,) = service.pushes
    assert push.content == {"kind": "question", "skill": "asking", "run": run_id, "question": "colour"}
    assert push.contact == "mailto:ops@example.com"


@pytest.mark.contract("N-4", "N-8")
def test_a_device_is_reminded_of_an_open_question(tmp_path: Path, service: PushService) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    env = ALLOWED | {"ASKBACK_NOTIFICATIONS__REMINDERS__AFTER_SEC": "[1]"}
    with Server(world, env=env) as server, calling(server.url, server.token) as client:
        subscribe(client, service)
        run_id = waiting(client)
        until(lambda: [each for each in service.pushes if each.content.get("reason")])
        client.post(f"/v1/runs/{run_id}/cancel")
    first, *_, second = service.pushes
    assert second.content == first.content | {"reason": "reminder"}


def test_a_test_push_says_what_the_push_service_said(main: httpx.Client, service: PushService) -> None:
    device = subscribe(main, service)
    path = f"/v1/push/subscriptions/{device['id']}"
    assert main.post(f"{path}/test").json() == {"delivered": True, "error": None}
    (push,) = service.pushes
    assert push.content == {"kind": "test"}
    service.receiver.answers.append(403)
    assert main.post(f"{path}/test").json() == {"delivered": False, "error": "the push service returned 403"}
    assert main.delete(path).status_code == 204
    refused(main.post(f"{path}/test"), 404, "SUBSCRIPTION_NOT_FOUND")


# How long.


@pytest.mark.contract("N-8")
def test_a_revoked_token_ends_its_devices(
    main: httpx.Client, person: httpx.Client, tokens: Tokens, service: PushService
) -> None:
    subscribe(person, service)
    settled(main, waiting(main), service)
    assert len(service.pushes) == 1
    tokens.revoke("test_a_revoked_token_ends_its_devices")
    until(lambda: person.get("/v1/push").status_code == 401)
    settled(main, waiting(main), service)
    again = waiting(main)
    assert settled(main, again, service) == [], "the device is gone"
    assert len(service.pushes) == 1


@pytest.mark.contract("N-8")
def test_an_expired_token_ends_its_devices(
    main: httpx.Client, person: httpx.Client, world: World, service: PushService
) -> None:
    subscribe(person, service)
    with world.records.collection("tokens", Token).changing() as stored:
        (own,) = [each for each in stored.values() if each.name == "test_an_expired_token_ends_its_devices"]
        stored[own.digest] = replace(own, expires_at=datetime.now(UTC) - timedelta(seconds=1))
    until(lambda: person.get("/v1/push").status_code == 401)
    (given_up,) = settled(main, waiting(main), service)
    assert given_up["last_error"] == "the token or the session of this device has ended"
    assert service.pushes == []


@pytest.mark.contract("N-8")
def test_a_session_that_is_signed_out_ends_its_device(
    pushing: Server, main: httpx.Client, service: PushService
) -> None:
    with calling(pushing.url, None, **pushing.session()) as browser:
        assert subscribe(browser, service)["current"]
        settled(main, waiting(main), service)
        assert len(service.pushes) == 1
        (own,) = [each for each in browser.get("/v1/sessions").json()["items"] if each["current"]]
        assert browser.delete(f"/v1/sessions/{own['id']}").status_code == 204
    assert listed(main) == []
    settled(main, waiting(main), service)
    assert len(service.pushes) == 1


@pytest.mark.contract("N-8")
@pytest.mark.parametrize("status", [404, 410])
def test_a_device_that_the_push_service_does_not_know_is_removed(
    main: httpx.Client, service: PushService, status: int
) -> None:
    subscribe(main, service)
    service.receiver.answers.append(status)
    (sent,) = settled(main, waiting(main), service)
    assert (sent["last_status"], sent["attempts"]) == (status, 1)
    until(lambda: listed(main) == [])
    assert settled(main, waiting(main), service) == []
    assert len(service.receiver.came) == 1


def test_a_push_service_that_is_busy_is_asked_again_when_it_says(main: httpx.Client, service: PushService) -> None:
    device = subscribe(main, service)
    service.receiver.answers.append(429)
    service.receiver.headers["Retry-After"] = "3600"
    run_id = waiting(main)
    until(lambda: deliveries(main, run_id, service)[0]["last_status"] == 429)
    (sent,) = deliveries(main, run_id, service)
    assert datetime.fromisoformat(sent["next_attempt_at"]) > datetime.now(UTC) + timedelta(seconds=3000)
    assert [each["id"] for each in listed(main)] == [device["id"]]
    main.delete(f"/v1/push/subscriptions/{device['id']}")
    assert settled(main, run_id, service)[0]["attempts"] == 1, "removing a device drops what was not sent"


@pytest.mark.contract("N-8")
def test_a_push_survives_the_end_of_the_server_and_no_closed_question_is_pushed(
    tmp_path: Path, service: PushService
) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    service.receiver.answers += [503, 503]
    with Server(world, env=ALLOWED) as server, calling(server.url, server.token) as client:
        subscribe(client, service)
        closed, pending = waiting(client), waiting(client)
        for run_id in (closed, pending):
            until(lambda run_id=run_id: deliveries(client, run_id, service)[0]["last_status"] == 503)  # type: ignore[misc]
        server.kill(signal.SIGKILL)
    with Server(world, env=ALLOWED) as server, calling(server.url, server.token) as client:
        assert reply(client, closed, "red").status_code in (202, 409)
        (given_up,) = settled(client, closed, service)
        (sent,) = settled(client, pending, service)
        assert sent["delivered_at"] is not None
        assert given_up["delivered_at"] is not None or given_up["last_error"] == "the question is closed"


# Who.


@pytest.mark.contract("N-8")
def test_a_device_is_invisible_to_other_tokens(main: httpx.Client, person: httpx.Client, service: PushService) -> None:
    device = subscribe(person, service)
    assert [each["id"] for each in listed(person)] == [device["id"]]
    assert listed(main) == []
    path = f"/v1/push/subscriptions/{device['id']}"
    refused(main.delete(path), 404, "SUBSCRIPTION_NOT_FOUND")
    refused(main.post(f"{path}/test"), 404, "SUBSCRIPTION_NOT_FOUND")
    stolen = service.subscription()
    stolen["keys"]["auth"] = text_of(bytes(16))
    refused(main.post("/v1/push/subscriptions", json=stolen), 409, "STATE_UNSUITABLE")
    assert service.receiver.came == []
    assert person.delete(path).status_code == 204


@pytest.mark.contract("N-8")
def test_a_token_that_is_restricted_to_labels_gets_the_pushes_of_its_runs_alone(
    pushing: Server, main: httpx.Client, tokens: Tokens, service: PushService
) -> None:
    text = tokens.make("restricted", (AccessScope.ANSWER,), None, labels={"customer": "4711"})
    with calling(pushing.url, text) as restricted:
        subscribe(restricted, service)
    others = [waiting(main), waiting(main, labels={"customer": "4712"})]
    own = waiting(main, labels={"customer": "4711", "shop": "north"})
    (sent,) = settled(main, own, service)
    assert sent["delivered_at"] is not None
    for run_id in others:
        (given_up,) = settled(main, run_id, service)
        assert given_up["last_error"] == "the token of this device may not see the run"
    assert [each.content["run"] for each in service.pushes] == [own]
    tokens.revoke("restricted")


def test_a_browser_that_signs_in_with_another_token_takes_its_device_along(
    main: httpx.Client, person: httpx.Client, service: PushService
) -> None:
    subscribe(person, service)
    subscribe(main, service)
    assert listed(person) == []
    settled(main, waiting(main), service)
    assert len(service.pushes) == 1


def test_a_token_that_sees_no_questions_gets_no_pushes(pushing: Server, tokens: Tokens, service: PushService) -> None:
    with calling(pushing.url, tokens.make("submits", (AccessScope.SUBMIT,), None)) as client:
        refused(client.get("/v1/push"), 403, "SCOPE_MISSING")
        refused(client.post("/v1/push/subscriptions", json=service.subscription()), 403, "SCOPE_MISSING")


def test_a_token_has_a_limited_number_of_devices(person: httpx.Client, service: PushService) -> None:
    made = [subscribe(person, service, f"device-{number}") for number in range(MAX_PER_TOKEN)]
    told = refused(person.post("/v1/push/subscriptions", json=service.subscription("more")), 409, "STATE_UNSUITABLE")
    assert f"{MAX_PER_TOKEN} devices" in told["detail"]
    subscribe(person, service, "device-0")
    for each in made:
        assert person.delete(f"/v1/push/subscriptions/{each['id']}").status_code == 204


# Where to: an endpoint is a URL that a client names.


@pytest.mark.contract("N-8")
@pytest.mark.parametrize(
    "endpoint",
    [
        "http://push.example.com/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://10.0.0.1:8443/x",
        "https://169.254.169.254/latest/meta-data",
        "https://[::ffff:192.168.0.1]/x",
        "https://user:secret@push.example.com/x",
        "ftp://push.example.com/x",
        "file:///etc/passwd",
        "https://",
        "https://push.example.com/\r\nX: y",
        "",
    ],
)
def test_an_endpoint_is_public_and_has_tls(client: httpx.Client, service: PushService, endpoint: str) -> None:
    told = refused(
        client.post("/v1/push/subscriptions", json=service.subscription() | {"endpoint": endpoint}),
        422,
        "INPUT_INVALID",
    )
    assert told["problems"][0].startswith("endpoint: ")
    assert listed(client) == []


@pytest.mark.contract("N-8")
def test_a_name_of_this_machine_is_refused_when_something_is_sent(client: httpx.Client, service: PushService) -> None:
    endpoint = f"https://localhost:{service.receiver.port}/x"
    made = client.post("/v1/push/subscriptions", json=service.subscription() | {"endpoint": endpoint}).json()
    path = f"/v1/push/subscriptions/{made['id']}"
    assert "private address" in client.post(f"{path}/test").json()["error"]
    run_id = waiting(client)

    def given_up() -> list[str]:
        items = client.get(f"/v1/runs/{run_id}/deliveries").json()["items"]
        return [each["last_error"] for each in items if each["kind"] == "push" and each["next_attempt_at"] is None]

    assert "private address" in until(given_up)[0]
    assert service.receiver.came == []
    assert client.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"p256dh": "x", "auth": text_of(bytes(16))}, "keys.p256dh: must be"),
        ({"p256dh": text_of(b"\4" + bytes(64)), "auth": text_of(bytes(16))}, "keys.p256dh: must be a point"),
        ({"p256dh": text_of(bytes(65)), "auth": text_of(bytes(16))}, "keys.p256dh: must be a point"),
        ({"auth": "A" * 5}, "keys.auth: must be"),
        ({"auth": "+" * 22}, "keys.auth: must be base64url"),
    ],
)
def test_keys_are_those_of_a_browser(
    main: httpx.Client, service: PushService, keys: dict[str, str], problem: str
) -> None:
    given = service.subscription()
    given["keys"] |= keys
    told = refused(main.post("/v1/push/subscriptions", json=given), 422, "INPUT_INVALID")
    assert told["problems"][0].startswith(problem)


def test_a_webhook_of_a_run_is_no_device(main: httpx.Client) -> None:
    hook = {"url": "https://push.example.com/x", "kind": "push"}
    body = {"skill": "asking", "engine": "scripted", "webhooks": [hook]}
    told = main.post("/v1/runs", json=body)
    assert told.status_code == 422
    assert "POST /v1/push/subscriptions" in told.text
