"""A proxy in front of a PostgreSQL server that can stop to forward, as a network that loses every packet."""

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


class HangingProxy:
    """Connections stay open, and new ones are accepted, while nothing is forwarded."""

    def __init__(self, address: str) -> None:
        """`address` names the folder of a socket as its host."""
        before, _, folder = address.rpartition("host=")
        self._target = str(Path(folder) / _NAME)
        self.folder = Path(tempfile.mkdtemp(prefix="askback-hang-", dir="/tmp"))
        self.address = f"{before}host={self.folder}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.folder / _NAME))
        self._listener.listen(64)
        self._open = threading.Event()
        self._open.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def hang(self) -> None:
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
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                target.sendall(data)
        # The end of a connection does not get through either.
        self._open.wait()
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

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
        shutil.rmtree(self.folder, ignore_errors=True)
