"""A proxy in front of a PostgreSQL server, for a network that fails: it cuts a connection at a chosen statement, or stops to forward."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_NAME = ".s.PGSQL.5432"
_ENDS_OF_STATEMENTS = b"QS"
"""A simple query, and the end of an extended one."""
_PARTS_OF_STATEMENTS = b"PBDEC"
"""Of an extended query. They are forwarded together with its end, as they come in one packet."""
_NOTICED_SEC = 3.0


class PostgresProxy:
    """Listens on a socket in a folder of its own. `address` leads through it."""

    def __init__(self, address: str) -> None:
        """`address` names the folder of a socket as its host."""
        before, _, folder = address.rpartition("host=")
        self._target = str(Path(folder) / _NAME)
        self.folder = Path(tempfile.mkdtemp(prefix="askback-proxy-", dir="/tmp"))
        self.address = f"{before}host={self.folder}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.folder / _NAME))
        self._listener.listen(64)
        self._lock = threading.Lock()
        self._left: int | None = None
        self._forward = False
        self._hang = False
        self._hung: list[socket.socket] = []
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, statement: int, *, forward: bool, hang: bool = False) -> None:
        """Cut at the `statement`-th statement from now on, before it reaches the server, or right after (`forward`).

        `hang`: as if the network dropped all packets of the connection from then on, also those that close it. The server
        notices that after a few seconds, as it does by keepalives.
        """
        with self._lock:
            self._left, self._forward, self._hang = statement, forward, hang

    def disarm(self) -> bool:
        """Whether the connection was cut."""
        with self._lock:
            armed, self._left = self._left is not None, None
        return not armed

    def hang(self) -> None:
        """Lose every packet of all connections, also those that close one. New connections are accepted."""
        self._open.clear()

    def proceed(self) -> None:
        self._open.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    server.connect(self._target)
                except OSError:
                    client.close()
                    continue
                hung = threading.Event()
                threading.Thread(target=self._pump_statements, args=(client, server, hung), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, hung), daemon=True).start()

    def _pump_statements(self, client: socket.socket, server: socket.socket, hung: threading.Event) -> None:
        """Forward message by message: the first has no type, all others have one."""
        with contextlib.suppress(OSError):
            has_type, message = False, b""
            while True:
                head = _exactly(client, 5 if has_type else 4)
                size = int.from_bytes(head[-4:], "big") - 4
                message += head + _exactly(client, size)
                if has_type and head[:1] in _PARTS_OF_STATEMENTS:
                    continue
                cut = has_type and head[:1] in _ENDS_OF_STATEMENTS and self._is_due()
                if cut and self._hang:
                    hung.set()
                    self._hung.append(client)
                    threading.Timer(_NOTICED_SEC, _end, (server,)).start()
                if not cut or self._forward:
                    self._open.wait()
                    server.sendall(message)
                if hung.is_set():
                    return
                if cut:
                    break
                has_type, message = True, b""
        self._open.wait()
        _end(client)
        _end(server)

    def _pump(self, source: socket.socket, target: socket.socket, hung: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                if not hung.is_set():
                    target.sendall(data)
        self._open.wait()
        if not hung.is_set():
            _end(source)
            _end(target)

    def _is_due(self) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= 1
            if self._left > 0:
                return False
            self._left = None
            return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.set()
        # Closing alone would not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._hung:
            _end(connection)
        shutil.rmtree(self.folder, ignore_errors=True)


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = source.recv(size - len(parts))
        if not part:
            raise ConnectionError
        parts += part
    return parts


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
