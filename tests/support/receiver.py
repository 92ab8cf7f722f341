"""A real receiver of webhooks on this machine: keeps what came, and answers as it is told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ALLOWED = "[notifications]\nallow_private = true\n"
"""Settings of a server that may tell this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(slots=True, kw_only=True)
class Receiver:
    """`answers` are the statuses of the first answers; then 204. `hold` keeps answers back until it is set."""

    answers: list[int] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    came: list[Came] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def take(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.came.append(Came(path=request.path, headers=headers, body=body))
        self.hold.wait(30)
        request.send_response(self.answers.pop(0) if self.answers else 204)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("content-length", "0")
        request.end_headers()


@contextmanager
def receiving(receiver: Receiver, tls: ssl.SSLContext | None = None, *, hold: bool = False) -> Iterator[Receiver]:
    """Receives for as long as the block lasts, on `receiver.port` or a free one."""
    if not hold:
        receiver.hold.set()
    server = ThreadingHTTPServer(("127.0.0.1", receiver.port), _handler(receiver.take))
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(take: Callable[[BaseHTTPRequestHandler], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            take(self)

        def do_POST(self) -> None:
            take(self)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
