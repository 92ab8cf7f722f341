"""Shortage as an attack: no open files left, and connections by the hundred from somebody without a token."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from support.api import PATIENCE_SEC, calling, over, reach, start
from support.data_folder import World
from support.program import until
from support.server import Server

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")


@contextmanager
def without_files(pid: int) -> Iterator[None]:
    """The process can open nothing more for as long as this lasts."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # Numbers below the highest may be free: leave none that could be given out. With a limit below the number of files
    # that are polled at once, poll(2) fails too, which no real shortage does.
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("path", ["/v1/skills/quick", "/v1/skills/installed", "/v1/runs/{run}/artifacts/file"])
def test_a_shortage_of_files_is_503_and_passes(own_world: World, path: str) -> None:
    with Server(own_world) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as client:
        client.headers["authorization"] = f"Bearer {server.token}"
        run_id = start(client, "quick")
        over(client, run_id)
        (own_world.data_dir / "runs" / run_id / "work" / "artifacts" / "file").write_text("x")
        path = path.format(run=run_id)
        if path.endswith("installed"):
            installed = client.get("/demo-skill.zip").content
            client.post("/v1/skills", content=installed, headers={"content-type": "application/zip"})
            path = "/v1/skills/trip-planner"
        assert client.get(path).status_code == 200
        with without_files(server.process.pid):
            told = client.get(path)
        # With PostgreSQL, the list of skills needs no file, and a connection that is short of files is lost.
        if own_world.database is None or told.status_code != 200:
            codes = ("RESOURCE_SHORTAGE",) if own_world.database is None else ("RESOURCE_SHORTAGE", "STORE_UNUSABLE")
            assert told.status_code == 503, told.text
            assert told.json()["code"] in codes
            assert int(told.headers["retry-after"]) > 0
        assert client.get(path).status_code == 200


def test_a_submit_in_a_shortage_is_503_and_no_lasting_fault(own_world: World) -> None:
    with Server(own_world) as server, httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as client:
        client.headers["authorization"] = f"Bearer {server.token}"
        over(client, start(client, "quick"))
        body = {"skill": "asking", "engine": "scripted", "mode": "interactive"}
        with without_files(server.process.pid):
            told = client.post("/v1/runs", json=body)
        assert (told.status_code, told.json()["code"]) == (503, "RESOURCE_SHORTAGE"), told.text
        reach(client, start(client, "asking"), "waiting_user")


@pytest.mark.databases
def test_an_accept_that_fails_is_logged_once_and_tried_again(own_world: World) -> None:
    with Server(own_world) as server, ExitStack() as held:
        with without_files(server.process.pid):
            for _ in range(50):
                held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
            until(lambda: "cannot accept connections" in server.stderr)
        with calling(server.url, server.token) as client:
            over(client, start(client, "quick"))
        assert server.stderr.count("cannot accept connections") == 1
        assert "Traceback" not in server.stderr
        assert len(server.stderr) < 20_000


def test_connections_without_a_token_make_room_for_those_with_one(own_world: World) -> None:
    """Many more than the server may have, all of them idle."""
    limited = {"ASKBACK_SERVER__UNAUTHENTICATED_CONNECTIONS": "32"}
    with Server(own_world, env=limited) as server, calling(server.url, server.token) as early, ExitStack() as held:
        over(early, start(early, "quick"))
        for _ in range(400):
            held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
        with calling(server.url, server.token) as client:
            over(client, start(client, "quick"))
        assert early.get("/v1/runs").status_code == 200
        until(lambda: connections(server.process.pid) < 64)
        assert server.stderr.count("too many connections") == 1


def connections(pid: int) -> int:
    count = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(link.readlink()).startswith("socket:")
    return count


def test_a_stream_outlives_a_flood_of_connections(own_world: World) -> None:
    limited = {"ASKBACK_SERVER__UNAUTHENTICATED_CONNECTIONS": "8"}
    with Server(own_world, env=limited) as server, calling(server.url, server.token) as client, ExitStack() as held:
        run_id = start(client, "asking")
        reach(client, run_id, "waiting_user")
        accept = {"accept": "text/event-stream"}
        with client.stream("GET", f"/v1/runs/{run_id}/events", headers=accept) as stream:
            lines = stream.iter_lines()
            next(line for line in lines if "interaction.asked" in line or "waiting_user" in line)
            for _ in range(100):
                held.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC))
            with calling(server.url, server.token) as other:
                other.post(f"/v1/runs/{run_id}/cancel")
            assert any("canceled" in line for line in lines)


def test_the_limit_of_open_files_is_raised(own_world: World) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 1024), before[1]))
    try:
        server = Server(own_world)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with server:
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft == min(hard, 65_536)
