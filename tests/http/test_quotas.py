"""Quotas: one token cannot take everything, and others do not notice when it tries."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from support.api import PATIENCE_SEC, calling, over, reach, refused, reply, start, waiting
from support.data_folder import World
from support.server import Server

EVERYTHING = (AccessScope.SUBMIT, AccessScope.ANSWER, AccessScope.READ)
BODY = {"skill": "asking", "engine": "scripted", "mode": "interactive"}


@contextmanager
def limited(world: World, **env: str) -> Iterator[tuple[Server, httpx.Client, httpx.Client]]:
    """A server with these quotas, a caller with a token, and the server's owner."""
    named = {f"ASKBACK_QUOTAS__{name}": value for name, value in env.items()}
    with Server(world, env=named) as server:
        tokens = Tokens(world.records, lambda: datetime.now(UTC))
        token = tokens.make("app", EVERYTHING, None)
        with calling(server.url, token) as caller, calling(server.url, server.token) as owner:
            yield server, caller, owner


def quota_refused(answer: httpx.Response) -> None:
    refused(answer, 429, "QUOTA_EXCEEDED")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.contract("Q-2")
def test_open_runs_of_a_token_are_bounded_and_end_with_the_runs(own_world: World) -> None:
    with limited(own_world, OPEN_RUNS="2") as (_, caller, owner):
        first, second = waiting(caller), waiting(caller)
        quota_refused(caller.post("/v1/runs", json=BODY))
        waiting(owner)
        assert reply(caller, first, "red").status_code == 202
        over(caller, first)
        third = start(caller)
        quota_refused(caller.post("/v1/runs", json=BODY))
        for run_id in (second, third):
            reach(caller, run_id, "waiting_user")


@pytest.mark.contract("Q-2")
def test_of_many_submits_at_once_no_more_than_the_quota_are_taken(own_world: World) -> None:
    with limited(own_world, OPEN_RUNS="5") as (_, caller, _), ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: caller.post("/v1/runs", json=BODY), range(32)))
        assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 27


def test_a_repeated_submit_with_its_key_is_no_further_run(own_world: World) -> None:
    with limited(own_world, OPEN_RUNS="1") as (_, caller, _):
        key = {"idempotency-key": "one"}
        made = caller.post("/v1/runs", json=BODY, headers=key)
        assert caller.post("/v1/runs", json=BODY, headers=key).json()["id"] == made.json()["id"]
        quota_refused(caller.post("/v1/runs", json=BODY, headers={"idempotency-key": "two"}))


@pytest.mark.contract("Q-2")
def test_uploads_of_a_token_are_bounded_also_after_a_restart(own_world: World) -> None:
    half = {"file": ("a", bytes(600_000))}
    with limited(own_world, UPLOAD="1") as (server, caller, owner):
        assert caller.post("/v1/uploads", files=half).status_code == 201
        quota_refused(caller.post("/v1/uploads", files=half))
        for _ in range(3):
            assert owner.post("/v1/uploads", files=half).status_code == 201
        token = caller.headers["authorization"].removeprefix("Bearer ")
        assert server.stop() == 0
    with (
        Server(own_world, env={"ASKBACK_QUOTAS__UPLOAD": "1"}) as again,
        calling(again.url, token) as caller,
    ):
        quota_refused(caller.post("/v1/uploads", files=half))
        assert caller.post("/v1/uploads", files={"file": ("b", b"x")}).status_code == 201


def test_countless_empty_uploads_are_bounded_too(own_world: World) -> None:
    with limited(own_world, UPLOAD="1") as (_, caller, _):
        answers = [caller.post("/v1/uploads", files={"file": ("a", b"")}) for _ in range(20)]
        assert 1 < sum(answer.status_code == 201 for answer in answers) < 20
        quota_refused(answers[-1])


@pytest.mark.contract("Q-2")
def test_requests_of_a_token_are_bounded_and_nobody_else_is_refused(own_world: World) -> None:
    with limited(own_world, REQUESTS_PER_MIN="1") as (_, caller, owner):
        assert caller.get("/v1/runs").status_code == 200
        answers = [caller.get("/v1/runs") for _ in range(5)]
        quota_refused(answers[-1])
        assert all(owner.get("/v1/runs").status_code == 200 for _ in range(50))


def test_sign_ins_count_as_requests_of_their_token(own_world: World) -> None:
    with limited(own_world, REQUESTS_PER_MIN="1") as (server, caller, _):
        form = {"token": caller.headers["authorization"].removeprefix("Bearer ")}
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as browser:
            assert browser.post("/enter", data=form).status_code == 200
            quota_refused([browser.post("/enter", data=form) for _ in range(5)][-1])
            assert browser.post("/enter", data={"token": server.token}).status_code == 200


def test_a_link_has_a_quota_of_its_own(own_world: World) -> None:
    with limited(own_world, REQUESTS_PER_MIN="1") as (server, _, owner):
        links = [owner.post(f"/v1/runs/{waiting(owner)}/interaction/link").json()["url"] for _ in range(2)]
        with calling(server.url, None) as holder:
            for link in links:
                assert holder.get(link).status_code == 200
            answers = [holder.get(links[0]) for _ in range(5)]
            quota_refused(answers[-1])


def test_whoever_holds_one_link_does_not_keep_others_from_sending_their_files(own_world: World) -> None:
    with limited(own_world) as (server, _, owner), ExitStack() as held:
        greedy, other = (owner.post(f"/v1/runs/{waiting(owner, 'filing')}/interaction/link").json() for _ in range(2))
        head = f"POST /v1/answers/{greedy['url'].rpartition('/')[2]}/file HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        head += "Content-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        told = []
        for _ in range(9):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
            connection.sendall(head.encode())
            told.append(connection.recv(12))
        assert told == [b"HTTP/1.1 100"] * 2 + [b"HTTP/1.1 429"] * 7
        with calling(server.url, None) as holder:
            assert holder.post(f"{other['url']}/file", files={"file": ("a.txt", b"a")}).status_code == 202


def test_a_token_may_have_another_quota(own_world: World) -> None:
    with limited(own_world, OPEN_RUNS="1", TOKENS='{"app": {"open_runs": 2}, "main": {"open_runs": 1}}') as (
        _,
        caller,
        owner,
    ):
        for client, most in ((caller, 2), (owner, 1)):
            for _ in range(most):
                start(client)
            quota_refused(client.post("/v1/runs", json=BODY))
