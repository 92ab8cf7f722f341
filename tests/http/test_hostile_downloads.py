"""Downloads as attacks: files without end, many at once, and clients that leave or do not read."""

from __future__ import annotations

import io
import socket
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from support.api import PATIENCE_SEC, calling, over, refused, start
from support.data_folder import World
from support.program import until
from support.server import Server

TB = 1 << 40
CLIENTS = 48
"""More than there are threads for anything."""


@contextmanager
def serving(world: World, **env: str) -> Iterator[tuple[Server, httpx.Client, str]]:
    """A server, a client, and a run that is over and left a sparse file of 1 TB."""
    with Server(world, env=env) as server, calling(server.url, server.token) as client:
        run_id = start(client, "quick")
        over(client, run_id)
        leave(world, run_id, "sparse", TB)
        yield server, client, run_id


def leave(world: World, run_id: str, name: str, size: int) -> None:
    folder = world.data_dir / "runs" / run_id / "work" / "artifacts"
    with (folder / name).open("wb") as file:
        file.truncate(size)


def asked(server: Server, path: str) -> socket.socket:
    """A client that has asked for something and has seen the beginning of it."""
    connection = socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    connection.sendall(head.encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def works(client: httpx.Client) -> None:
    """A run is taken in, carried out, and its files are listed and zipped."""
    run_id = start(client, "quick")
    over(client, run_id)
    assert client.get(f"/v1/runs/{run_id}/artifacts").status_code == 200
    with zipfile.ZipFile(io.BytesIO(client.get(f"/v1/runs/{run_id}/bundle").content)) as archive:
        assert archive.testzip() is None
    assert client.get("/healthz").json()["status"] == "ok"


def test_files_beyond_the_cap_are_not_zipped(own_world: World) -> None:
    with serving(own_world) as (_, client, run_id):
        refused(client.get(f"/v1/runs/{run_id}/bundle"), 422, "BUNDLE_TOO_LARGE")
        works(client)


@pytest.mark.parametrize("what", [pytest.param("bundle", marks=pytest.mark.long), "artifacts/sparse"])
def test_downloads_without_end_hold_up_nobody_and_no_stop(own_world: World, what: str) -> None:
    with serving(own_world, ASKBACK_LIMITS__BUNDLE=str(4 * TB)) as (server, client, run_id), ExitStack() as held:
        for _ in range(CLIENTS):
            held.enter_context(asked(server, f"/v1/runs/{run_id}/{what}"))
        works(client)
        # One stop, and it ends: the wait has a bound.
        assert server.stop() == 0


def test_a_client_that_leaves_ends_its_zip(own_world: World) -> None:
    with serving(own_world, ASKBACK_LIMITS__BUNDLE=str(4 * TB)) as (server, client, run_id):
        for _ in range(CLIENTS):
            asked(server, f"/v1/runs/{run_id}/bundle").close()
        works(client)
        until(closed(server.process.pid, "sparse"))


def closed(pid: int, name: str) -> Callable[[], bool]:
    """Whether the process has no file of that name open any more."""

    def look() -> bool:
        links = [Path(f"/proc/{pid}/fd/{fd.name}") for fd in Path(f"/proc/{pid}/fd").iterdir()]
        return not any(link.is_symlink() and link.readlink().name == name for link in links)

    return look
