"""Waiting for a run without a stream: tags, conditional requests and `?wait=`, and what a hostile caller gets from it."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from support.api import over, refused, reply, start, waiting, within
from support.data_folder import World, run_async
from support.program import until
from support.server import Server

ASKING = {"skill": "asking", "engine": "scripted", "mode": "interactive"}


def test_a_run_that_has_not_changed_is_304(client: httpx.Client) -> None:
    run_id = waiting(client)
    seen = client.get(f"/v1/runs/{run_id}")
    tag = seen.headers["etag"]
    for value in (tag, tag.removeprefix("W/"), f'"x", {tag}', "*"):
        again = client.get(f"/v1/runs/{run_id}", headers={"If-None-Match": value})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for value in ('"0"', "", "nonsense", '""', ",,,", 'W/"999999"'):
        assert client.get(f"/v1/runs/{run_id}", headers={"If-None-Match": value}).json()["id"] == run_id
    reply(client, run_id, "red")
    over(client, run_id)
    changed = client.get(f"/v1/runs/{run_id}", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "succeeded")
    assert changed.headers["etag"] != tag


def test_without_a_tag_it_waits_until_the_run_asks_or_is_over(client: httpx.Client) -> None:
    run_id = start(client)
    found = client.get(f"/v1/runs/{run_id}", params={"wait": 60}).json()
    assert found["pending_interaction"]["prompt"] == "Which colour?"
    assert client.get(f"/v1/runs/{run_id}", params={"wait": 60}).json()["state"] == "waiting_user"
    reply(client, run_id, "blue")
    assert client.get(f"/v1/runs/{run_id}", params={"wait": 60}).json()["state"] == "succeeded"


def test_with_a_tag_it_waits_for_a_change(client: httpx.Client) -> None:
    run_id = waiting(client)
    tag = {"If-None-Match": client.get(f"/v1/runs/{run_id}").headers["etag"]}
    assert client.get(f"/v1/runs/{run_id}", params={"wait": 0.01}, headers=tag).status_code == 304
    with ThreadPoolExecutor(4) as pool:
        pending = [pool.submit(client.get, f"/v1/runs/{run_id}", params={"wait": 60}, headers=tag) for _ in range(4)]
        reply(client, run_id, "red")
        for each in pending:
            assert each.result().status_code == 200
            assert each.result().json()["state"] != "waiting_user"
    over(client, run_id)
    final = {"If-None-Match": client.get(f"/v1/runs/{run_id}").headers["etag"]}
    assert client.get(f"/v1/runs/{run_id}", params={"wait": 60}, headers=final).status_code == 304


@pytest.mark.parametrize("wait", ["-1", "61", "1e9", "nan", "inf", "x", "null", ""])
def test_a_time_that_is_none_is_refused(client: httpx.Client, wait: str) -> None:
    run_id = waiting(client)
    refused(client.get(f"/v1/runs/{run_id}", params={"wait": wait}), 422, "REQUEST_INVALID")
    refused(client.get("/v1/runs/nosuch", params={"wait": "5"}), 404, "RUN_NOT_FOUND")


def test_requests_that_wait_are_bounded_and_end_with_the_server(own_world: World) -> None:
    async def main() -> None:
        async with within(own_world) as (_, web, client):
            web.streams.max_per_token = 2
            run_id = (await client.post("/v1/runs", json=ASKING)).json()["id"]
            asked = await client.get(f"/v1/runs/{run_id}", params={"wait": 60})
            assert asked.json()["state"] == "waiting_user"
            tag = {"If-None-Match": asked.headers["etag"]}
            path = f"/v1/runs/{run_id}?wait=60"
            held = [asyncio.create_task(client.get(path, headers=tag)) for _ in range(2)]
            while web.streams.count < 2:
                await asyncio.sleep(0.01)
            refused(await client.get(path, headers=tag), 429, "TOO_MANY_STREAMS")
            web.streams.close()
            assert [(await each).status_code for each in held] == [304, 304]
            assert web.streams.count == 0

    run_async(main)


def test_a_caller_that_leaves_frees_its_place(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client)
    tag = client.get(f"/v1/runs/{run_id}").headers["etag"]

    def open_streams() -> float:
        lines = client.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith("askback_event_streams ")).split()[-1])

    head = f"GET /v1/runs/{run_id}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    sent = f"{head}Authorization: Bearer {server.token}\r\nIf-None-Match: {tag}\r\n\r\n".encode()
    before = open_streams()
    callers = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(3)]
    for caller in callers:
        caller.sendall(sent)
    until(lambda: open_streams() >= before + 3)
    for caller in callers:
        caller.close()
    until(lambda: open_streams() <= before)
    reply(client, run_id, "red")
    over(client, run_id)
