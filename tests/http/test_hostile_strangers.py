"""Somebody without a token as an attack: slow forms, busy connections and broken chunks do not keep others out."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import httpx
import pytest

from support.api import PATIENCE_SEC, calling
from support.data_folder import World
from support.server import Server

CAP = 32
FEW = {"ASKBACK_SERVER__UNAUTHENTICATED_CONNECTIONS": str(CAP)}
FORM = "Content-Type: application/x-www-form-urlencoded\r\n"


def heads(port: int) -> dict[str, tuple[str, str]]:
    """What a stranger sends first, and then again and again."""
    host = f"Host: 127.0.0.1:{port}\r\n"
    refused, healthy = f"GET /x HTTP/1.1\r\n{host}\r\n", f"GET /healthz HTTP/1.1\r\n{host}\r\n"
    return {
        "large form": (f"POST /enter HTTP/1.1\r\n{host}{FORM}Content-Length: 200000\r\n\r\ntoken=", "a"),
        "slow form": (f"POST /enter HTTP/1.1\r\n{host}{FORM}Content-Length: 4000\r\n\r\ntoken=", "a"),
        "slow chunks": (f"POST /enter HTTP/1.1\r\n{host}{FORM}Transfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n"),
        "half a head": (f"GET / HTTP/1.1\r\n{host}", "a: b\r\n"),
        "refused": (refused, refused),
        "healthy": (healthy, healthy),
    }


class Flood:
    """Connections that send a little all the time; one that is dropped comes again."""

    def __init__(self, port: int, count: int, first: str, drip: str) -> None:
        self._port = port
        self._first, self._drip = first.encode(), drip.encode()
        self._over = threading.Event()
        self.full = threading.Event()
        self._sockets = [self._connect() for _ in range(count)]
        self._thread = threading.Thread(target=self._send)

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE_SEC)
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(self._first)
        return connection

    def _send(self) -> None:
        while not self._over.wait(0.1):
            for place, connection in enumerate(self._sockets):
                try:
                    connection.send(self._drip)
                except BlockingIOError:
                    pass
                except OSError:
                    connection.close()
                    self._sockets[place] = self._connect()
            self.full.set()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        self._thread.start()
        try:
            assert self.full.wait(PATIENCE_SEC)
            yield
        finally:
            self._over.set()
            self._thread.join()
            for connection in self._sockets:
                connection.close()


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in ("half a head", "refused") else pytest.mark.long)
        for kind in sorted(heads(0))
    ],
)
def test_a_stranger_keeps_nobody_out(own_world: World, kind: str) -> None:
    with Server(own_world, env=FEW) as server:
        flood = Flood(server.port, CAP + 4, *heads(server.port)[kind])
        with flood.going_on():
            for _ in range(20):
                with calling(server.url, server.token) as client:
                    assert client.get("/v1/runs").status_code == 200
                with calling(server.url, None) as client:
                    assert client.get("/healthz").status_code == 200
        assert "Traceback" not in server.stderr


def test_slow_forms_keep_nobody_from_signing_in(own_world: World) -> None:
    with Server(own_world) as server, Flood(server.port, 100, *heads(server.port)["slow form"]).going_on():
        for _ in range(10):
            assert "cookie" in server.session()


def test_a_form_is_not_waited_for_beyond_seconds(own_world: World) -> None:
    with (
        Server(own_world) as server,
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection,
    ):
        connection.sendall(heads(server.port)["slow form"][0].encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")


def test_a_connection_counts_as_what_its_latest_request_was(own_world: World) -> None:
    """A token that was shown once does not protect a connection for good."""
    with Server(own_world, env=FEW) as server, calling(server.url, server.token) as client:
        assert client.get("/v1/runs").status_code == 200
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SEC)) as connection:
            for token, status in ((server.token, 200), ("x", 401)):
                connection.request("GET", "/v1/runs", headers={"authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                assert (answer.status, bool(answer.read())) == (status, True)
            others = [socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) for _ in range(CAP)]
            assert ended(connection.sock)
            for each in others:
                each.close()
        assert client.get("/v1/runs").status_code == 200


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


# What is no HTTP.

BROKEN: dict[str, Callable[[], bytes]] = {
    "no size": lambda: b"zz\r\n",
    "long extension": lambda: b"1;" + b"a" * 200_000,
    "long trailers": lambda: b"0\r\n" + b"a: b\r\n" * 40_000,
}


@pytest.mark.parametrize("path", ["/enter", "/v1/runs", "/healthz"])
def test_a_broken_chunk_is_400_and_no_trace(own_world: World, path: str) -> None:
    with Server(own_world) as server:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n"
        statuses = [answer_to(server, head.encode() + broken()) for broken in BROKEN.values() for _ in range(3)]
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert statuses[:3] == [b"400"] * 3
        assert set(statuses) <= {b"400", b"401", b"405", b""}, statuses
        assert "Traceback" not in server.stderr
        assert server.stderr.count("Invalid HTTP request") <= 1


def answer_to(server: Server, content: bytes) -> bytes:
    """The status; empty where the connection was reset before it could be read."""
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection, suppress(OSError):
        connection.sendall(content)
        return connection.recv(65536)[9:12]
    return b""
