"""The double's door: a loopback server that tells the protocols apart by path and acts out the script.

Knows no protocol's content and no CLI.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from double.chat import CHAT
from double.gemini import GEMINI
from double.messages import MESSAGES
from double.record import Record, Request, Visit
from double.responses import RESPONSES
from double.script import BreakOff, CallTool, Deed, Fail, Hang, OutOfSteps, Say, Script, Step
from double.side import side_answer, side_of
from double.wire import Answer, Call, Dialect

_JSON = "application/json"
_MODEL = "double-model"


class ModelDouble:
    """A model on loopback that says what the test tells it to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.record = Record()
        self.script = Script()
        self.faults: list[Exception] = []
        """What steps of the script raised."""
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def play(self, *steps: Step, when: str | None = None) -> None:
        """Add steps, for every conversation or for those `when` a text stands in what their user said."""
        self.script.add(steps, when)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The turns of all conversations."""
        return self.record.turns

    @property
    def side_requests(self) -> tuple[Request, ...]:
        return self.record.side

    @property
    def visits(self) -> tuple[Visit, ...]:
        """Everything that asked for no answer."""
        return self.record.visits

    def wait_for_requests(self, count: int, timeout_sec: float = 60.0) -> None:
        self.record.wait_until(lambda: len(self.record.turns) >= count, timeout_sec)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.script.close()
        self._server.shutdown()
        self._server.drop_connections()
        self._server.server_close()
        self._thread.join()
        if error is None and self.faults:
            raise self.faults[0]


@contextlib.contextmanager
def nobody_listens() -> Iterator[str]:
    """An address that refuses every connection, for as long as it is needed."""
    with socket.socket() as held:
        # Bound, so that nobody else gets the port, but not listening.
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 64

    def __init__(self, double: ModelDouble) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.double = double
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()

    def opened(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def drop_connections(self) -> None:
        """A client may hold a connection open without a word; its thread would never end."""
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        # A CLI that is killed leaves in the middle of anything.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._visit(200, {})

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/v1/models":
            model = {"id": _MODEL, "object": "model", "type": "model", "display_name": _MODEL, "created": 0}
            self._visit(200, {"object": "list", "data": [model], "has_more": False})
        elif path == "/v1beta/models":
            self._visit(200, {"models": [{"name": f"models/{_MODEL}"}]})
        else:
            self._visit(404, {"error": {"message": "the double knows no such path"}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path.endswith(":countTokens"):
            self._visit(200, {"totalTokens": 100})
        elif path.endswith("/messages/count_tokens"):
            self._visit(200, {"input_tokens": 100})
        elif (dialect := _dialect(path)) is not None:
            _Exchange(self, dialect, json.loads(body)).answer()
        else:
            self._visit(404, {"error": {"message": "the double knows no such path"}})

    def _visit(self, status: int, body: dict[str, Any]) -> None:
        self.server.double.record.add_visit(Visit(method=self.command, path=self.path, status=status))
        self.send_whole(status, json.dumps(body).encode())

    def send_whole(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, cut: int | None = None
    ) -> None:
        """An answer in one piece; with `cut` only so many bytes of it come."""
        self.send_response(status)
        for name, value in {"Content-Type": _JSON, **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()

    def send_chunk(self, data: bytes) -> None:
        """A part of a stream; an empty one ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _dialect(path: str) -> Dialect | None:
    if path.endswith("/responses"):
        return RESPONSES
    if path.endswith("/chat/completions"):
        return CHAT
    if path.endswith(("/v1/messages", "/messages")):
        return MESSAGES
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GEMINI
    return None


class _Exchange:
    """One request for an answer, from its record to the last byte of what the script says."""

    def __init__(self, door: _Handler, dialect: Dialect, body: dict[str, Any]) -> None:
        asked = dialect.read(door.path, body)
        self.door = door
        self.dialect = dialect
        self.double = door.server.double
        self.request = Request(
            protocol=dialect.name,
            path=door.path,
            headers={name.lower(): value for name, value in door.headers.items()},
            body=body,
            asked=asked,
            side=side_of(asked),
        )

    def answer(self) -> None:
        self.door.close_connection = True
        self.double.record.add(self.request)
        if self.request.side is not None:
            self._send(side_answer(self.request.asked))
            return
        try:
            deed = self.double.script.next(self.request)
        except OutOfSteps as error:
            self._refuse(Fail(status=400), str(error))
            return
        except Exception as error:
            # The test's own code, in a thread of the server: the test hears of it when the double closes.
            self.double.faults.append(error)
            self._refuse(Fail(status=400), str(error))
            return
        self._do(deed)

    def _do(self, deed: Deed) -> None:
        match deed:
            case Say():
                self._send(Answer(text=deed.text, tokens=deed.tokens))
            case CallTool():
                calls = (Call(name=each.name, arguments=each.arguments) for each in (deed, *deed.beside))
                self._send(Answer(text=deed.saying, calls=tuple(calls)))
            case Fail():
                self._refuse(deed, f"the double fails with {deed.status}")
            case BreakOff():
                self._break_off(Answer(text=deed.text))
            case Hang():
                deed.hold()
                if deed.then is not None:
                    self._do(self.double.script.follow(deed.then, self.request))

    def _send(self, answer: Answer) -> None:
        if not self.request.asked.streaming:
            self.door.send_whole(200, json.dumps(self.dialect.whole(answer, self.request.asked)).encode())
            return
        self.door.begin_stream()
        for frame in self.dialect.frames(answer, self.request.asked):
            self.door.send_chunk(frame)
        self.door.send_chunk(b"")

    def _break_off(self, answer: Answer) -> None:
        """Send the half of it; what follows is the end of the connection."""
        if not self.request.asked.streaming:
            body = json.dumps(self.dialect.whole(answer, self.request.asked)).encode()
            self.door.send_whole(200, body, cut=len(body) // 2)
            return
        self.door.begin_stream()
        frames = list(self.dialect.frames(answer, self.request.asked))
        for frame in frames[: len(frames) // 2]:
            self.door.send_chunk(frame)

    def _refuse(self, failure: Fail, message: str) -> None:
        body = json.dumps(self.dialect.refusal(failure.status, message)) if failure.body is None else failure.body
        self.door.send_whole(failure.status, body.encode(), failure.headers)
