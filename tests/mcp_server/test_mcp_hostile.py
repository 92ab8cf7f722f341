"""Attacks at `/mcp`: bodies, sessions and streams have the limits of the rest of the API."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from askback.access.grants import Grant
from askback.background.pools import Pool
from askback.client import Client
from askback.http.messages import METHOD, SMALL_BYTES, Messages
from askback.http.streams import Streams
from askback.mcp.http_face import MAX_PER_TOKEN, HttpFace, Sessions
from support.mcp_requests import Requests
from support.server import Server

LIMIT_SEC = 120
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "run_skill"}
LEGACY = {"mcp-protocol-version": "2025-11-25"}
INITIALIZE: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def api(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


def rpc(method: str, params: str = "{}") -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%s","params":%s}' % (method.encode(), params.encode())


def call(value: str) -> bytes:
    before, after = '{"name":"run_skill","arguments":{"skill":"quick","input":{"place":', "}}}"
    return rpc("tools/call", before + value + after)


KEYS = "{" + ",".join(f'"{each}":0' for each in range(30_000)) + "}"
REFUSED = {
    "names in a list of tools": (rpc("tools/list", KEYS), 413),
    "names in a call": (call(KEYS), 413),
    "values in a small message": (rpc("initialize", "[" + "0," * 3_000 + "0]"), 413),
    "a large initialize": (rpc("initialize", json.dumps({"x": "z" * SMALL_BYTES})), 413),
    "a large notification": (b'{"jsonrpc":"2.0","method":"x","params":{"x":"%s"}}' % (b"z" * SMALL_BYTES), 413),
    "a large batch": (b"[" + b",".join([rpc("ping")] * 1_500) + b"]", 413),
    "a large body": (call('"' + "z" * (2 << 20) + '"'), 413),
    "a long number": (call("9" * 4_000), 422),
    "a number out of range": (call("1e999"), 400),
    "NaN": (call("NaN"), 400),
    "a lone surrogate": (call(r'"\ud800"'), 400),
    "a duplicate name": (call('{"a":1,"a":2}'), 400),
    "deep": (call("[" * 150 + "]" * 150), 400),
    "very deep": (call("[" * 15_000 + "]" * 15_000), 400),
    "no JSON": (b"{", 400),
    "nothing": (b"", 400),
}


@dataclass(frozen=True)
class Attacker:
    """Sends what no client library would."""

    http: httpx.Client
    server: Server

    def send(self, body: bytes, headers: dict[str, str], token: str | None = None) -> httpx.Response:
        known = {"authorization": f"Bearer {token or self.server.token}"}
        return self.http.post("/mcp", content=body, headers=ACCEPT | known | headers)

    def open(self, token: str) -> dict[str, str]:
        """The headers of a new session of the older era."""
        answer = self.send(rpc("initialize", json.dumps(INITIALIZE)), {}, token)
        assert answer.status_code == 200, answer.text
        return LEGACY | {"mcp-session-id": answer.headers["mcp-session-id"]}


@pytest.fixture
def attacker(server: Server) -> Iterator[Attacker]:
    with httpx.Client(base_url=server.url, timeout=LIMIT_SEC) as http:
        yield Attacker(http, server)


@pytest.mark.parametrize("era", [MODERN, LEGACY], ids=["modern", "legacy"])
def test_a_hostile_message_is_refused_and_leaves_no_traceback(attacker: Attacker, era: dict[str, str]) -> None:
    for name, (body, status) in REFUSED.items():
        refused = attacker.send(body, era)
        assert refused.status_code == status, (name, refused.text)
        assert "REQUEST" in refused.text or "BODY_TOO_LARGE" in refused.text, name
    other = {"content-type": "text/plain"}
    assert attacker.send(rpc("tools/list"), era | other).status_code == 415
    assert "Traceback" not in attacker.server.stderr


def test_a_client_that_leaves_during_its_message_leaves_no_traceback(server: Server) -> None:
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{"
    )
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), LIMIT_SEC) as connection:
            connection.sendall(head.encode())
    # Requests are handled in the order in which they come.
    assert Requests(server=server).send("tools/list").status_code == 200
    assert "Traceback" not in server.stderr


def test_the_largest_messages_are_served(server: Server) -> None:
    """A call as large as a reply may be, and every message of the usual size."""
    requests = Requests(server=server).declaring()
    place = "z" * 1_900_000
    quick = {"skill": "quick", "engine": "scripted", "idempotency_key": uuid.uuid4().hex, "input": {"place": place}}
    assert requests.result("tools/call", name="run_skill", arguments=quick)["structuredContent"]["run_id"]
    assert requests.result("tools/list", _padding="z" * 60_000)["tools"]


# What reaches the SDK.


class Reached:
    """Stands where the SDK does, and notes what it would have to decode."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.methods: list[str | None] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        assert not message["more_body"]
        self.bodies.append(message["body"])
        self.methods.append(scope.get(METHOD))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def test_only_checked_bodies_reach_the_sdk() -> None:
    response = b'{"jsonrpc":"2.0","id":1,"result":{"content":{"text":"%s"}}}' % (b"z" * 200_000)
    good = [rpc("tools/list"), call('"Lisbon"'), call('"' + "z" * 500_000 + '"'), response]

    async def test() -> None:
        reached, parsing = Reached(), Pool("parsing", threads=1, waiting=32)
        messages = Messages(reached, parsing)

        async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
            await messages({**scope, "grant": Grant(name="x", scopes=frozenset())}, receive, send)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(admitted), base_url="http://test") as client:
            for name, (body, status) in REFUSED.items():
                if name == "a large body":
                    # Its length is refused before.
                    continue
                refused = await client.post("/mcp", content=body, headers=ACCEPT)
                assert refused.status_code == status, (name, refused.text)
                assert refused.json()["error"]["code"] in (-32700, -32600), name
            assert reached.bodies == []
            for body in good:
                assert (await client.post("/mcp", content=body, headers=ACCEPT)).status_code == 200
            await client.request("GET", "/mcp", content=b"z" * 100_000)
        parsing.close()
        assert reached.bodies == [*good, b""]
        assert reached.methods == ["tools/list", "tools/call", "tools/call", None, None]

    asyncio.run(asyncio.wait_for(test(), LIMIT_SEC))


# Sessions of the older era.


def test_a_token_has_a_limited_number_of_sessions(attacker: Attacker, api: Client) -> None:
    names = [f"many-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    greedy, other = (api.create_token(each, ["read"]).token for each in names)
    bystander = attacker.open(other)
    sessions = [attacker.open(greedy) for _ in range(MAX_PER_TOKEN)]
    # The first two are used, so the third is the one that was unused for the longest time.
    assert attacker.send(rpc("ping"), sessions[0], greedy).status_code == 200
    # The status of a session that has ended, for another reason.
    own = Requests(server=attacker.server, token=greedy)
    assert own.send("no/such", {"mcp-session-id": sessions[1]["mcp-session-id"]}).status_code == 404
    attacker.open(greedy)
    statuses = [attacker.send(rpc("ping"), each, greedy).status_code for each in sessions]
    assert statuses == [200, 200, 404, *[200] * (MAX_PER_TOKEN - 3)]
    assert attacker.send(rpc("ping"), bystander, other).status_code == 200
    assert sessions[0]["mcp-session-id"] not in attacker.server.stderr
    for each in names:
        api.revoke_token(each)


def test_sessions_in_use_stay_and_those_of_a_revoked_token_end() -> None:
    async def test() -> None:
        ended: list[str] = []
        valid = {"a": True, "b": True}

        async def end(session_id: str, owner: str) -> None:
            ended.append(session_id)

        sessions = Sessions(end, max_per_token=2)
        for session_id, owner in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            assert await sessions.make_room(owner)
            sessions.add(session_id, owner, lambda owner=owner: valid[owner])
        with sessions.using("a1", "a"), sessions.using("a2", "a"), sessions.using("b1", "a"):
            assert not await sessions.make_room("a")
        with sessions.using("a1", "a"), sessions.opening("a"):
            assert await sessions.make_room("a") is False
            assert ended == ["a2"]
        valid["b"] = False
        await sessions.end_invalid()
        assert (ended, sessions.count) == (["a2", "b1"], 1)

    asyncio.run(asyncio.wait_for(test(), LIMIT_SEC))


@pytest.mark.parametrize("message", [rpc("ping"), b'{"jsonrpc":"2.0","method":"notifications/initialized"}'])
def test_a_message_that_comes_while_its_session_ends_gets_one_response(
    message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK responds first. It passes the message on to a session that has ended meanwhile, and responds again."""
    sent: list[int] = []

    async def no_api(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError

    async def main() -> None:
        face = HttpFace(
            no_api, key=b"k", skills_as_tools=False, max_bytes=1 << 20, identity=lambda _: "a", method=method_of
        )

        async def exchange(method: str, body: bytes, session: str | None, then: str | None = None) -> str | None:
            """Send a request. End the session `then` before the response is passed on."""
            opened: list[str | None] = []
            bodies = [body]

            async def receive() -> Message:
                if bodies:
                    return {"type": "http.request", "body": bodies.pop(), "more_body": False}
                await asyncio.Event().wait()
                raise AssertionError

            async def send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    sent.append(message["status"])
                    opened.append(dict(message["headers"]).get(b"mcp-session-id", b"").decode())
                    if then:
                        await exchange("DELETE", b"", then)
                        sent.pop()

            headers = ACCEPT | LEGACY | ({"mcp-session-id": session} if session else {})
            raw = [(name.encode(), value.encode()) for name, value in headers.items()]
            scope = {"type": "http", "method": method, "path": "/mcp", "query_string": b"", "headers": raw}
            await Streams().while_valid(face, scope | {"still_valid": lambda: True, "body": body}, receive, send)
            return opened[0]

        async with face.running():
            session = await exchange("POST", rpc("initialize", json.dumps(INITIALIZE)), None)
            await exchange("POST", message, session, then=session)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SEC))
    assert sent[0] == 200
    assert len(sent) == 2, sent
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def method_of(scope: Scope) -> str | None:
    return json.loads(scope["body"]).get("method") if scope["body"] else None


def test_an_open_stream_ends_with_its_token(attacker: Attacker, api: Client) -> None:
    name = f"gone-{uuid.uuid4().hex[:8]}"
    token = api.create_token(name, ["read"]).token
    headers = ACCEPT | attacker.open(token) | {"authorization": f"Bearer {token}"}
    with attacker.http.stream("GET", "/mcp", headers=headers) as stream:
        assert stream.status_code == 200
        api.revoke_token(name)
        # It ends as a complete response. Before that come a few pings, one in 15 seconds.
        for number, _ in enumerate(stream.iter_bytes()):
            assert number < 8
    assert "Traceback" not in attacker.server.stderr
