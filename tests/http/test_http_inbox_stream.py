"""The inbox as a stream: all pending questions at once, and again whenever one comes or goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
def following(client: httpx.Client) -> Iterator[Iterator[list[str]]]:
    """The runs that wait, each time that the server tells them."""
    with client.stream("GET", "/v1/inbox", headers=STREAM) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield pages(response)


def pages(response: httpx.Response) -> Iterator[list[str]]:
    block: dict[str, str] = {}
    for line in response.iter_lines():
        name, found, value = line.partition(": ")
        if found and name:
            block[name] = value
        elif not line and block:
            assert block.pop("event") == "inbox"
            yield [each["run_id"] for each in json.loads(block.pop("data"))["items"]]


@pytest.fixture
def own(own_world: World) -> Iterator[Server]:
    with Server(own_world) as server:
        yield server


def test_questions_that_come_and_go_are_told_to_every_follower(own: Server) -> None:
    with calling(own.url, own.token) as client, following(client) as one, following(client) as other:
        assert (next(one), next(other)) == ([], [])
        first = start(client)
        assert (next(one), next(other)) == ([first], [first])
        second = start(client)
        assert (next(one), next(other)) == ([first, second], [first, second])
        assert reply(client, first, "red").status_code == 202
        assert (next(one), next(other)) == ([second], [second])


def test_a_late_follower_is_told_at_once_what_waits_and_the_list_says_the_same(own: Server) -> None:
    with calling(own.url, own.token) as client:
        first = waiting(client)
        with following(client) as before:
            assert next(before) == [first]
        second = waiting(client)
        with following(client) as after:
            assert next(after) == [first, second]
        listed: list[dict[str, Any]] = client.get("/v1/inbox").json()["items"]
        assert [each["run_id"] for each in listed] == [first, second]
        assert listed[0]["interactive_profile"]["kind"] == "resumable"


def test_a_run_that_only_talks_changes_nothing(own: Server) -> None:
    with calling(own.url, own.token) as client, following(client) as told:
        assert next(told) == []
        start(client, "quick")
        asking = start(client)
        assert next(told) == [asking]


def test_who_may_only_answer_may_follow_and_who_may_only_submit_may_not(own: Server, own_world: World) -> None:
    tokens = Tokens(own_world.records, now)
    answering = tokens.make("answering", (AccessScope.ANSWER,), None)
    submitting = tokens.make("submitting", (AccessScope.SUBMIT,), None)
    with calling(own.url, answering) as client, following(client) as told:
        assert next(told) == []
    with calling(own.url, submitting) as client:
        refused(client.get("/v1/inbox", headers=STREAM), 403, "SCOPE_MISSING")


def test_one_stream_too_many_is_refused(own_world: World) -> None:
    async def main() -> None:
        async with within(own_world) as (_, web, client):
            web.streams.max_in_total = 0
            refused(await client.get("/v1/inbox", headers=STREAM), 429, "TOO_MANY_STREAMS")

    run_async(main)
