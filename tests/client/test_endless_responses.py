"""A server that sends without end: the clients stop reading, with an error that says why."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from askback.client import AsyncClient, CallFailed, Client, calls
from askback.client.errors import AnswerUnreadable

LIMIT = 1_000_000
CHUNK = b"x" * 65_536
CHUNKS = 2_000
"""Where it ends all the same."""


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_BYTES", LIMIT)


@contextmanager
def sending(head: bytes) -> Iterator[str]:
    """A server that begins its response like this and goes on with letters."""

    def serve(peer: socket.socket) -> None:
        with peer, suppress(OSError):
            peer.settimeout(60)
            peer.recv(65_536)
            peer.sendall(head)
            for _ in range(CHUNKS):
                peer.sendall(CHUNK)

    def accept() -> None:
        with suppress(OSError):
            while True:
                serve(server.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def read(url: str) -> None:
    with Client(url, "token") as client:
        client.health()


def read_in_asyncio(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, "token") as client:
            await client.health()

    asyncio.run(main())


def download(url: str) -> None:
    with Client(url, "token") as client:
        client.download("run", "plan.md", Path("plan.md"))


def follow(url: str) -> None:
    with Client(url, "token") as client:
        list(client.follow("run"))


@pytest.mark.parametrize(
    ("status", "call"), [(200, read), (200, read_in_asyncio), (500, read), (500, download), (200, follow)]
)
def test_a_response_without_end_is_not_read_further(
    status: int, call: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = f"HTTP/1.1 {status} Any\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".encode()
    with sending(head) as url, pytest.raises(AnswerUnreadable, match="more than 1,000,000 bytes"):
        call(url)
    assert issubclass(AnswerUnreadable, CallFailed)
    assert list(tmp_path.iterdir()) == []
