"""All runs as a stream: each one when it is created and whenever its state changes, from the first byte on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope
from support.api import calling, refused, reply, start, waiting, within
from support.data_folder import World, run_async
from support.server import Server

STREAM = {"accept": "text/event-stream"}


@contextmanager
def following(client: httpx.Client, **narrow: str) -> Iterator[Iterator[tuple[str, str]]]:
    """The id and the state of each run that is told."""
    with client.stream("GET", "/v1/runs", params=narrow, headers=STREAM) as response:
        assert response.status_code == 200, response.read()
        yield told(response)


def told(response: httpx.Response) -> Iterator[tuple[str, str]]:
    event = ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            event = value
        elif name == "data":
            assert event == "run"
            run = json.loads(value)
            yield run["id"], run["state"]


def until(stream: Iterator[tuple[str, str]], run_id: str, state: str) -> list[tuple[str, str]]:
    """All that is told, up to this."""
    seen: list[tuple[str, str]] = []
    while (run_id, state) not in seen:
        seen.append(next(stream))
    return seen


@pytest.fixture
def own(own_world: World) -> Iterator[Server]:
    with Server(own_world) as server:
        yield server


def test_every_run_is_told_as_it_moves_to_every_follower_and_each_movement_once(own: Server) -> None:
    with calling(own.url, own.token) as client, following(client) as one, following(client, skill="asking") as other:
        quick, asking = start(client, "quick"), start(client)
        seen = until(one, asking, "waiting_user")
        assert reply(client, asking, "red").status_code == 202
        seen += until(one, asking, "succeeded")
        # Movements that come in one moment are told as one.
        every = ["queued", "running", "waiting_user", "queued", "running", "succeeded"]
        assert in_order([state for run_id, state in seen if run_id == asking], every)
        assert {run_id for run_id, _ in seen} == {quick, asking}
        assert {run_id for run_id, _ in until(other, asking, "succeeded")} == {asking}


def in_order(seen: list[str], every: list[str]) -> bool:
    rest = iter(every)
    return all(state in rest for state in seen)


def test_a_run_that_another_program_moves_is_told_too(own: Server, own_world: World) -> None:
    async def cancel(run_id: str) -> None:
        async with own_world.client() as app:
            await app.service.cancel(run_id)

    with calling(own.url, own.token) as client:
        asked = waiting(client)
        with following(client) as stream:
            run_async(lambda: cancel(asked))
            assert next(stream) == (asked, "canceled")


def test_who_may_not_read_may_not_follow_and_one_stream_too_many_is_refused(own_world: World) -> None:
    async def main() -> None:
        async with within(own_world) as (_, web, client):
            answering = Tokens(own_world.records, now).make("answers", (AccessScope.ANSWER,), None)
            headers = STREAM | {"authorization": f"Bearer {answering}"}
            refused(await client.get("/v1/runs", headers=headers), 403, "SCOPE_MISSING")
            web.streams.max_in_total = 0
            refused(await client.get("/v1/runs", headers=STREAM), 429, "TOO_MANY_STREAMS")

    run_async(main)
