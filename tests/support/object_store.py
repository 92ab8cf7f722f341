"""An S3 server of the tests' own: moto, as a process on loopback, behind a door that can be closed.

The server ends with the process that started it. It is started for the first test that uses it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path

DEADLINE_SEC = 120.0
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test-key-of-moto",
    "AWS_SECRET_ACCESS_KEY": "test-secret-of-moto",
    "AWS_REGION": "us-east-1",
}
_SET_DEATH_SIGNAL = 1
_LISTENING = re.compile(r"http://127\.0\.0\.1:(\d+)")


class Door(Enum):
    OPEN = "open"
    REFUSING = "refusing"
    """Connections end at once, as those to a server that is down."""
    HANGING = "hanging"
    """Connections are taken, and nothing is ever answered."""


class S3Server:
    def __init__(self, folder: Path) -> None:
        self._numbers = itertools.count(1)
        self._log = folder / "moto.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": ""},
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._port = self._wait_until_ready()

    def _wait_until_ready(self) -> int:
        deadline = time.monotonic() + DEADLINE_SEC
        while True:
            if said := _LISTENING.search(self._log.read_text()):
                return int(said[1])
            assert self._process.poll() is None, f"the server has ended: {self._log.read_text()}"
            assert time.monotonic() < deadline, f"the server does not start: {self._log.read_text()}"
            time.sleep(0.05)

    def make_bucket(self) -> Bucket:
        name = f"bucket-{next(self._numbers)}"
        _request("PUT", self._port, name)
        return Bucket(name, self._port)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_SEC)


class Bucket:
    """A bucket behind a door of its own."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self._behind = port
        self._door = Door.OPEN
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: set[socket.socket] = set()
        self._start(self._accept)

    @property
    def address(self) -> str:
        """A value of the setting `files`."""
        return f"s3://{self.name}/some/prefix?endpoint={self.endpoint}&region=us-east-1"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def content(self, key: str) -> bytes:
        """A stored file, also while the door is closed."""
        return _request("GET", self._behind, f"{self.name}/some/prefix/{key}")

    def turn(self, door: Door) -> None:
        """Connections that exist end, so that the next request meets the new state."""
        self._door = door
        for connection in list(self._connections):
            _end(connection)

    def close(self) -> None:
        self.turn(Door.REFUSING)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._listener.accept()
                if self._door is Door.REFUSING:
                    taken.close()
                    continue
                self._connections.add(taken)
                if self._door is Door.OPEN:
                    behind = socket.create_connection(("127.0.0.1", self._behind), DEADLINE_SEC)
                    behind.settimeout(None)
                    self._connections.add(behind)
                    self._start(lambda a=taken, b=behind: self._pass_on(a, b))
                    self._start(lambda a=taken, b=behind: self._pass_on(b, a))

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        for each in (source, target):
            _end(each)
            self._connections.discard(each)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()


def _request(method: str, port: int, path: str) -> bytes:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", method=method)
    # The region is a part of the credentials.
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request")
    with urllib.request.urlopen(request, timeout=DEADLINE_SEC) as answer:
        return bytes(answer.read())


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
