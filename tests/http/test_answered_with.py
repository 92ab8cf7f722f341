"""Who closed a question, and by which way: in the API, in events, in webhooks, and for the one who comes second."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.core.actors import Actor, Channel
from askback.core.errors import AlreadyClosed
from askback.core.interactions import Interaction
from askback.wire import questions as question_wire
from support.api import calling, get, over, reach, refused, reply, start, waiting
from support.data_folder import ASK, FINISH, World, run_async, submit
from support.data_folder import over as over_here
from support.data_folder import waiting as waiting_here
from support.receiver import ALLOWED, Receiver, receiving
from support.server import Server

ANNA = Actor(name="anna", via=Channel.TELEGRAM)
HOSTILE = "<script>alert(1)</script> anna"


@contextmanager
def somebody(server: Server, world: World, name: str) -> Iterator[httpx.Client]:
    """A caller with a token of this name."""
    tokens = Tokens(world.records, lambda: datetime.now(UTC))
    token = tokens.make(name, (AccessScope.ANSWER, AccessScope.READ, AccessScope.SUBMIT), None)
    try:
        with calling(server.url, token) as client:
            yield client
    finally:
        tokens.revoke(name)


def closed_with(client: httpx.Client, run_id: str) -> Any:
    """Who closed the run's question, as every part of the API tells it."""
    (question,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    closed = [
        event["data"]["answered_with"]
        for event in client.get(f"/v1/runs/{run_id}/events").json()["items"]
        if event["type"] == "interaction.closed"
    ]
    listed = client.get("/v1/interactions", params={"limit": 200}).json()["items"]
    in_list = next(each["answered_with"] for each in listed if each["run_id"] == run_id)
    run = get(client, run_id)["closed_interaction"]
    told = [question["answered_with"], *closed, in_list, run["answered_with"]]
    assert len(closed) == 1
    assert all(each == told[0] for each in told), told
    assert (run["interaction_id"], run["outcome"]) == ("colour", question["outcome"])
    return told[0]


def link_to(client: httpx.Client, run_id: str, **body: Any) -> str:
    made = client.post(f"/v1/runs/{run_id}/interaction/link", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["url"])


# The ways.


@pytest.mark.contract("N-1")
def test_the_holder_of_a_token_answers_by_name(server: Server, client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    with somebody(server, furnished, "berta") as berta:
        answered = reply(berta, run_id, "red").json()
    assert answered["closed_interaction"]["answered_with"] == {"name": "berta", "via": "api"}
    assert closed_with(client, run_id) == {"name": "berta", "via": "api"}


@pytest.mark.contract("N-1")
def test_a_file_is_answered_by_name_as_well(client: httpx.Client) -> None:
    run_id = waiting(client)
    upload = client.post("/v1/uploads", files={"file": ("a.txt", b"a")}).json()["upload_id"]
    assert reply(client, run_id, {"upload_id": upload}).status_code == 202
    assert closed_with(client, run_id) == {"name": "main", "via": "api"}


@pytest.mark.contract("N-1")
def test_a_browser_answers_on_the_page(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client)
    with calling(server.url, None, **server.session()) as browser:
        assert reply(browser, run_id, "red").status_code == 202
    assert closed_with(client, run_id) == {"name": "main", "via": "page"}


@pytest.mark.contract("N-1")
@pytest.mark.parametrize(("recipient", "name"), [(None, "main"), ("anna", "anna"), (HOSTILE, HOSTILE)])
def test_a_link_answers_for_its_recipient_or_for_the_token_that_made_it(
    server: Server, client: httpx.Client, recipient: str | None, name: str
) -> None:
    run_id = waiting(client)
    url = link_to(client, run_id) if recipient is None else link_to(client, run_id, recipient=recipient)
    (listed,) = client.get(f"/v1/runs/{run_id}/interaction/links").json()["items"]
    assert listed["recipient"] == recipient
    with calling(server.url, None) as holder:
        answered = holder.post(url, json={"response": "red"})
    assert answered.json()["answered_with"] == {"name": name, "via": "link"}
    assert closed_with(client, run_id) == {"name": name, "via": "link"}


def test_a_link_has_a_short_recipient_or_none(client: httpx.Client) -> None:
    path = f"/v1/runs/{waiting(client)}/interaction/link"
    for recipient in ("", "x" * 101, 7):
        refused(client.post(path, json={"recipient": recipient}), 422, "REQUEST_INVALID")
    for recipient in (" ", "anna\nmain, by API", "\x1b[31manna", "\u202eanna", "anna\u2028"):
        refused(client.post(path, json={"recipient": recipient}), 422, "INPUT_INVALID")


@pytest.mark.contract("N-1")
def test_a_fork_with_an_answer_has_the_name_of_its_creator(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    source = waiting(client)
    reply(client, source, "red")
    over(client, source)
    origin = {"run_id": source, "session": True, "at": "colour", "response": "blue", "files": "workspace"}
    with somebody(server, furnished, "forker") as forker:
        run_id = start(forker, from_run=origin)
    assert closed_with(client, run_id) == {"name": "forker", "via": "api"}


# Endings without an answer.


@pytest.mark.contract("N-1")
def test_a_canceled_question_says_who_canceled_it(server: Server, client: httpx.Client, furnished: World) -> None:
    run_id = waiting(client)
    with somebody(server, furnished, "carl") as carl:
        canceled = carl.post(f"/v1/runs/{run_id}/cancel").json()
    assert canceled["canceled_by"] == {"name": "carl", "via": "api"}
    assert closed_with(client, run_id) == {"name": "carl", "via": "api"}
    told = refused(reply(client, run_id, "red"), 409, "INTERACTION_NOT_PENDING")
    assert told["detail"] == "question 'colour' is no longer pending: the run was canceled by carl, by API"


@pytest.mark.contract("N-1")
def test_a_run_that_holds_a_process_remembers_who_canceled_it(client: httpx.Client) -> None:
    run_id = waiting(client, options={"interactive_profile": "sticky_process"})
    assert get(client, run_id)["held_process"]
    client.post(f"/v1/runs/{run_id}/cancel")
    reach(client, run_id, "canceled")
    assert get(client, run_id)["canceled_by"] == {"name": "main", "via": "api"}
    assert closed_with(client, run_id) == {"name": "main", "via": "api"}


@pytest.mark.contract("N-1")
@pytest.mark.parametrize(("required", "outcome"), [(True, "expired"), (False, "auto_decided")])
def test_askback_itself_closes_a_question_at_its_deadline(client: httpx.Client, required: bool, outcome: str) -> None:
    options = {
        "interactive_profile": "sticky_process",
        "session_timeout_sec": 1,
        "interactive_require_user_reply": required,
    }
    run_id = start(client, options=options)
    over(client, run_id)
    assert closed_with(client, run_id) == {"name": "askback", "via": "askback"}
    (question,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    assert question["outcome"] == outcome


# The second of two.


@pytest.mark.contract("N-1")
def test_the_second_is_told_by_name_who_was_first_and_how(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    run_id = waiting(client)
    url, other = link_to(client, run_id, recipient="anna"), link_to(client, run_id, recipient="ben")
    first = {"name": "anna", "via": "link"}
    detail = "question 'colour' is no longer pending: it was answered by anna, by link"
    with calling(server.url, None) as holder:
        assert holder.post(url, json={"response": "red"}).status_code == 202
        for late in (holder.get(other), holder.post(other, json={"response": "blue"})):
            told = refused(late, 409, "INTERACTION_NOT_PENDING")
            assert (told["answered_with"], told["detail"]) == (first, detail)
            assert run_id not in late.text, "nothing but the name and the way"
    with somebody(server, furnished, "dora") as dora:
        told = refused(reply(dora, run_id, "blue"), 409, "INTERACTION_NOT_PENDING")
    assert (told["answered_with"], told["detail"]) == (first, detail)
    (question,) = client.get(f"/v1/runs/{run_id}/interactions").json()["items"]
    assert question["response"] == "red"


@pytest.mark.contract("N-1")
def test_of_many_at_once_one_wins_and_the_others_learn_its_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting_here(app, (await submit(app, skill)).id)
            people = [Actor(name=f"person {number}", via=via) for number in range(3) for via in Channel]
            tried = [app.service.reply(run.id, "red", "colour", by=each) for each in people]
            got = await asyncio.gather(*tried, return_exceptions=True)
            (winner,) = [each for each, how in zip(people, got, strict=True) if not isinstance(how, BaseException)]
            losers = [how for how in got if isinstance(how, BaseException)]
            assert all(isinstance(each, AlreadyClosed) and each.answered_with == winner for each in losers)
            assert all(winner.name in str(each) for each in losers)
            await over_here(app, run.id)

    run_async(main)


def test_a_question_that_never_was_has_no_first(client: httpx.Client) -> None:
    run_id = waiting(client)
    told = refused(reply(client, run_id, "red", "other"), 409, "INTERACTION_NOT_PENDING")
    assert "answered_with" not in told
    assert "'other'" in told["detail"]
    assert "'colour' is" in told["detail"]


# Webhooks.


@pytest.mark.contract("N-1")
def test_a_webhook_says_who_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        with receiving(Receiver()) as receiver:
            config = f'{ALLOWED}[[webhooks]]\nurl = "{receiver.url}"\n'
            async with world.working(config, serving=True) as app:
                run = await waiting_here(app, (await submit(app, skill)).id)
                await app.service.reply(run.id, "red", by=ANNA)
                await over_here(app, run.id)
                while len([each for each in (await app.store.deliveries(run.id)).items if each.delivered_at]) < 6:
                    await asyncio.sleep(0.01)
        sent = sorted((json.loads(came.body)["data"] for came in receiver.came), key=lambda each: each["seq"])
        assert "closed_interaction" not in sent[2]["run"]
        told = [each["run"]["closed_interaction"] for each in sent[3:]]
        closed = {"interaction_id": "colour", "outcome": "answered"}
        assert told == [closed | {"answered_with": {"name": "anna", "via": "telegram"}}] * len(told)
        assert told

    run_async(main)


def test_a_question_that_an_earlier_version_closed_has_no_name() -> None:
    asked = Interaction(
        interaction_id="q", kind="text", prompt="?", attempt_number=1, asked_at=datetime.now(UTC), outcome="answered"
    )
    assert question_wire.Interaction.of(asked).answered_with is None
    assert str(asked.closing) == "question 'q' is no longer pending: it was answered"


@pytest.mark.contract("N-1")
def test_a_command_is_recorded_with_its_user_and_nobody_can_pass_for_another(
    server: Server, furnished: World, client: httpx.Client
) -> None:
    by_command = {"Askback-User": "uschi%0Amain"}
    run_id = waiting(client)
    assert reply_as(client, run_id, by_command).status_code == 202
    assert closed_with(client, run_id) == {"name": "uschi main", "via": "cli"}
    with somebody(server, furnished, "ben") as ben:
        run_id = waiting(ben)
        assert reply_as(ben, run_id, by_command).status_code == 202
        assert closed_with(ben, run_id) == {"name": "ben", "via": "api"}


def reply_as(client: httpx.Client, run_id: str, headers: dict[str, str]) -> httpx.Response:
    answer = {"interaction_id": "colour", "response": "red"}
    return client.post(f"/v1/runs/{run_id}/interaction/reply", json=answer, headers=headers)
