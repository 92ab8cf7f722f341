"""Pictures for clients that do not read: what the server holds for each is bounded, however large the picture is."""

from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from askback.web.files import MAX_PICTURE
from support.api import calling, over, start
from support.data_folder import World
from support.server import Server

CLIENTS = 20
PNG = b"\x89PNG\r\n\x1a\n"
MB = 1024 * 1024


def resident_bytes(server: Server) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def asked(server: Server, path: str) -> socket.socket:
    """A client that asks for a picture and reads no more than the beginning of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect(("127.0.0.1", server.port))
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    client.sendall(head.encode())
    assert client.recv(15) == b"HTTP/1.1 200 OK"
    return client


@pytest.mark.sqlite
def test_clients_that_do_not_read_their_picture_take_little_memory(own_world: World) -> None:
    own_world.skill([{"write": {"path": "artifacts/a.txt", "text": "1"}}, {"finish": {}}], name="writing", output=None)
    with Server(own_world) as server, calling(server.url, server.token) as client, ExitStack() as ends:
        run_id = start(client, "writing")
        over(client, run_id)
        folder = own_world.data_dir / "runs" / run_id / "work" / "artifacts"
        for name, size in (("a.png", MAX_PICTURE), ("large.png", MAX_PICTURE + 1)):
            with (folder / name).open("wb") as file:
                file.write(PNG)
                file.truncate(size)
        url = f"/runs/{run_id}/picture?path="
        whole = httpx.get(f"{server.url}{url}a.png", headers=client.headers, timeout=60)
        assert (whole.status_code, whole.headers["content-type"]) == (200, "image/png")
        assert whole.content == PNG + bytes(MAX_PICTURE - len(PNG))
        assert httpx.get(f"{server.url}{url}large.png", headers=client.headers, timeout=60).status_code == 404
        before = resident_bytes(server)
        for _ in range(CLIENTS):
            ends.callback(asked(server, f"{url}a.png").close)
        time.sleep(1)  # what it would still read for them
        assert resident_bytes(server) - before < 80 * MB
