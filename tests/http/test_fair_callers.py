"""One caller against all others: unfinished bodies, full pools, and connections that come faster than they are read."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

import support.data_folder as world
from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from support.api import PATIENCE_SEC, calling, over, start, waiting, within
from support.data_folder import World
from support.server import Server

KB = 1 << 10
MB = 1 << 20
EVERYTHING = (AccessScope.SUBMIT, AccessScope.ANSWER, AccessScope.READ)
BODY: dict[str, Any] = {"skill": "open", "engine": "scripted", "mode": "auto"}
CAP = 8


def token(world: World, name: str) -> str:
    return Tokens(world.records, lambda: datetime.now(UTC)).make(name, EVERYTHING, None)


def posting(server: Server, path: str, holder: str | None, length: int) -> bytes:
    authorization = "" if holder is None else f"Authorization: Bearer {holder}\r\n"
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{authorization}"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


@contextmanager
def unfinished(server: Server, path: str, holder: str | None) -> Iterator[None]:
    """Twelve bodies of almost 1 MB without their ends, until four of them were refused."""
    body = b'{"response": "' + b"x" * (MB - 200)
    with ExitStack() as ends:
        open_ones = []
        for _ in range(12):
            connection = ends.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
            open_ones.append(connection)
            with suppress(OSError):
                connection.sendall(posting(server, path, holder, len(body) + 100) + body)
        while len(open_ones) > 8:
            answered, _, _ = select.select(open_ones, [], [], PATIENCE_SEC)
            assert answered
            for each in answered:
                with suppress(ConnectionResetError):
                    assert each.recv(65536)[:13] in (b"", b"HTTP/1.1 503 ")
                open_ones.remove(each)
        yield


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory, furnished_at: Any) -> Iterator[tuple[World, Server]]:
    """A server with room for 8 bodies of 1 MB, which waits for them as long as a test takes."""
    place = furnished_at(tmp_path_factory.mktemp("patient"))
    with Server(place, env={"ASKBACK_LIMITS__BODY": "1", "ASKBACK_LIMITS__BODY_SEC": "600"}) as server:
        yield place, server


def everybody_else_is_served(place: World, server: Server, name: str) -> None:
    with calling(server.url, token(place, name)) as ben:
        assert ben.post("/v1/runs", json=BODY).status_code == 201
        assert ben.post("/v1/runs", json={**BODY, "input": {"a": "x" * (MB - 200)}}).status_code == 201


def test_unfinished_replies_of_one_link_keep_nobody_out(patient: tuple[World, Server]) -> None:
    place, server = patient
    with calling(server.url, server.token) as client:
        run_id = waiting(client)
        links = [client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"] for _ in range(2)]
        path = f"/v1/answers/{links[0].rpartition('/')[2]}"
        with unfinished(server, path, None), calling(server.url, None) as other:
            everybody_else_is_served(place, server, "ben")
            address = f"/v1/answers/{links[1].rpartition('/')[2]}"
            assert other.post(address, json={"response": "red"}).status_code == 202


def test_unfinished_runs_of_one_token_keep_nobody_out(patient: tuple[World, Server]) -> None:
    place, server = patient
    anna = token(place, "anna")
    with unfinished(server, "/v1/runs", anna):
        with calling(server.url, anna) as client:
            # Small bodies have a reserve, for the greedy one as well.
            assert client.post("/v1/runs", json=BODY).status_code == 201
        everybody_else_is_served(place, server, "clara")


def test_what_was_sent_fast_does_not_pay_for_a_pause(own_world: World) -> None:
    """8 MB bought eight minutes."""
    with (
        Server(own_world, env={"ASKBACK_LIMITS__BODY_SEC": "1"}) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection,
    ):
        connection.sendall(posting(server, "/v1/runs", server.token, 9 * MB) + b" " * (8 * MB))
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


# Pools.

POOLS = {
    "parsing": (2, 70, ("POST", "/v1/runs", {**BODY, "input": {"a": "x" * (100 * KB)}})),
    "zipping": (3, 70, ("GET", "/v1/runs/{run_id}/bundle", None)),
    "previews": (1, 100, ("GET", "/runs/{run_id}/preview?path=plan.md", None)),
}
"""Threads, more requests than one caller has places for, and the request."""


@pytest.mark.parametrize("name", POOLS)
def test_a_caller_that_fills_a_pool_keeps_nobody_out(own_world: World, name: str) -> None:
    threads, count, (method, path, body) = POOLS[name]
    own_world.skill(
        [{"write": {"path": "artifacts/plan.md", "text": "# Plan"}}, {"finish": {"colour": "red"}}], name="p"
    )

    async def main() -> None:
        async with within(own_world) as (app, web, _):
            made = await world.submit(app, "p")
            await world.over(app, made.id)
            transport, gate = httpx.ASGITransport(app=web.application), threading.Event()
            pool = getattr(app.service.pools, name)

            async def send(holder: str) -> int:
                headers = {"authorization": f"Bearer {holder}"}
                async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8765") as client:
                    answer = await client.request(method, path.format(run_id=made.id), json=body, headers=headers)
                    return answer.status_code

            holders = [await asyncio.to_thread(token, own_world, each) for each in ("anna", "ben")]
            # The threads are busy, so that nothing ends before the test says so.
            busy = [asyncio.create_task(pool.run(gate.wait)) for _ in range(threads)]
            requests = [asyncio.create_task(send(holders[0])) for _ in range(count)]
            done, _ = await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            assert {each.result() for each in done} == {503}
            other = asyncio.create_task(send(holders[1]))
            # A refusal needs no thread: it would come now, and work cannot.
            while not other.done() and not any(each.party == ("ben",) for each in pool._open):
                await asyncio.sleep(0)
            gate.set()
            assert await other in (200, 201)
            await asyncio.gather(*busy, *requests)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_SEC))


# Connections.


@pytest.mark.parametrize("sent", [None, b"", b"GET / HTTP/1.1\r\nX-A: "], ids=["closed", "silent", "half a head"])
def test_no_connection_is_dropped_before_what_it_has_sent_is_read(own_world: World, sent: bytes | None) -> None:
    with (
        Server(own_world, env={"ASKBACK_SERVER__UNAUTHENTICATED_CONNECTIONS": str(CAP)}) as server,
        ExitStack() as others,
        calling(server.url, server.token) as client,
    ):
        assert client.get("/v1/runs").status_code == 200
        request = (
            f"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
        )
        # All of them wait until the server runs again, and the valid one is the oldest.
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            valid = others.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
            valid.sendall(request.encode())
            for _ in range(20 * CAP):
                other = others.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
                if sent is None:
                    other.close()
                else:
                    other.sendall(sent)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert valid.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_stream_to_an_allowed_origin_counts_as_one_with_a_token(own_world: World) -> None:
    origin = "https://app.example.com"
    env = {
        "ASKBACK_SERVER__UNAUTHENTICATED_CONNECTIONS": str(CAP),
        "ASKBACK_SERVER__ALLOWED_ORIGINS": f'["{origin}"]',
    }
    with Server(own_world, env=env) as server, calling(server.url, server.token) as client, ExitStack() as others:
        run_id = start(client, "endless")
        headers = {"authorization": f"Bearer {server.token}", "accept": "text/event-stream", "origin": origin}
        with httpx.stream(
            "GET", f"{server.url}/v1/runs/{run_id}/events", headers=headers, timeout=PATIENCE_SEC
        ) as stream:
            lines = stream.iter_lines()
            next(lines)
            for _ in range(3 * CAP):
                others.enter_context(closing(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC)))
            assert client.post(f"/v1/runs/{run_id}/cancel").status_code in (200, 202)
            assert over(client, run_id)["state"] == "canceled"
            assert any("canceled" in line for line in lines)
