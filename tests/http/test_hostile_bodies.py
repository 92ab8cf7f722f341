"""Bodies as attacks: without the right to send one, made of millions of values, or never ending."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from support.api import PATIENCE_SEC, calling, operations, refused, reply, waiting
from support.data_folder import World
from support.server import Server

MB = 1 << 20
JSON = {"content-type": "application/json"}
EMPTY_LISTS = b"[" + b"[]," * (600 * 1024) + b"1]"
"""Some 2 MB of text, and 40 MB once it is built."""


@pytest.fixture(scope="module")
def tokens(server: Server, furnished: World) -> Tokens:
    return Tokens(furnished.records, lambda: datetime.now(UTC))


def with_body() -> list[tuple[str, str, list[str]]]:
    """Every call that may have a body, with the scopes of which one is needed."""
    found = []
    for (method, path), operation in operations().items():
        if method in ("POST", "PUT", "PATCH", "DELETE") and operation["security"]:
            filled = path.replace("{run_id}", "0000000000000000").replace("{skill_id}", "x")
            found.append((method, filled, operation["security"][0]["token"]))
    assert len(found) >= 5
    return found


def first_line(server: Server, token: str, method: str, path: str, kind: str = "application/json") -> bytes:
    """The first line of the answer to a head whose body never comes. A server that wants it says `100 Continue`."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {kind}\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection:
        connection.sendall(head.encode())
        return connection.recv(65536).partition(b"\r\n")[0]


# Who may send one.


@pytest.mark.parametrize("scope", [scope for scope in AccessScope if scope is not AccessScope.ADMIN])
def test_nothing_is_read_of_a_body_whose_sender_lacks_the_scope(server: Server, tokens: Tokens, scope: str) -> None:
    token = tokens.make(f"bodiless-{scope}", (AccessScope(scope),), None)
    for method, path, roles in with_body():
        if scope not in roles:
            told = first_line(server, token, method, path)
            assert told.startswith(b"HTTP/1.1 403 "), (method, path, told)


def test_nothing_is_read_of_a_body_for_a_link_from_somebody_with_a_token(server: Server) -> None:
    assert first_line(server, server.token, "POST", "/v1/answers/x.y").startswith(b"HTTP/1.1 404 ")


# How many values.


@pytest.mark.parametrize(
    "content",
    [
        EMPTY_LISTS,
        b"[" + b"{}," * (600 * 1024) + b"1]",
        b"[" + b"1," * (900 * 1024) + b"1]",
        b'["' + b'","' * (600 * 1024) + b'"]',
        b'{"a' + b'":1,"a' * (280 * 1024) + b'":1}',
        b'{"skill": "' + b'\\"' * 1000 + b'", "input": {"a": ' + EMPTY_LISTS[: MB + MB // 2],
    ],
    ids=["lists", "dicts", "numbers", "texts", "names", "behind escaped quotes"],
)
def test_a_body_of_countless_values_is_refused(client: httpx.Client, content: bytes) -> None:
    told = refused(client.post("/v1/runs", content=content, headers=JSON), 413, "BODY_TOO_LARGE")
    assert "values" in told["detail"]


def test_signs_in_a_text_are_no_values(client: httpx.Client) -> None:
    text = '[{,:}]\\"' * 100_000
    made = client.post("/v1/runs", json={"skill": "open", "engine": "scripted", "mode": "auto", "input": {"a": text}})
    assert made.status_code == 201, made.text


def test_a_name_given_twice_is_named(client: httpx.Client) -> None:
    content = b'{"skill": "open", "input": {"a": [{"b\\"": 1, "b\\"": 2}]}}'
    told = refused(client.post("/v1/runs", content=content, headers=JSON), 400, "REQUEST_MALFORMED")
    assert "twice" in told["detail"]


# How large, and how long.


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory, furnished_at: Any) -> Iterator[Server]:
    """A server with its usual limits."""
    with Server(furnished_at(tmp_path_factory.mktemp("roomy"))) as server:
        yield server


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory, furnished_at: Any) -> Iterator[Server]:
    """A server that waits for a body for a second."""
    with Server(furnished_at(tmp_path_factory.mktemp("hasty")), env={"ASKBACK_LIMITS__BODY_SEC": "1"}) as server:
        yield server


@pytest.mark.contract("E-5")
def test_a_reply_of_1_mb_is_accepted_however_it_is_escaped(roomy: Server) -> None:
    with calling(roomy.url, roomy.token) as client:
        content = json.dumps({"interaction_id": "colour", "response": "\x01" * MB}).encode()
        assert len(content) > 6 * MB
        answer = client.post(f"/v1/runs/{waiting(client)}/interaction/reply", content=content, headers=JSON)
        assert answer.status_code == 202, answer.text[:500]


def test_the_body_of_a_reply_may_be_7_mb_whatever_a_run_may_be(roomy: Server) -> None:
    with calling(roomy.url, roomy.token) as client:
        run_id = waiting(client)
        refused(reply(client, run_id, "x" * (7 * MB)), 413, "BODY_TOO_LARGE")
        link = client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
        with calling(roomy.url, None) as holder:
            refused(holder.post(link, json={"response": "x" * (7 * MB)}), 413, "BODY_TOO_LARGE")
        refused(
            client.post(f"/v1/runs/{run_id}/interaction/link", content=b" " * MB, headers=JSON), 413, "BODY_TOO_LARGE"
        )


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/uploads", "/v1/skills", "/v1/runs/x/interaction/reply"])
def test_a_body_that_never_ends_is_408(hasty: Server, path: str) -> None:
    kinds = {"/v1/uploads": "multipart/form-data; boundary=x", "/v1/skills": "application/zip"}
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{hasty.port}\r\nAuthorization: Bearer {hasty.token}\r\n"
        f"Content-Type: {kinds.get(path, 'application/json')}\r\nContent-Length: 1000\r\n\r\n{'--x' if path == '/v1/uploads' else '{'}"
    )
    with socket.create_connection(("127.0.0.1", hasty.port), PATIENCE_SEC) as connection:
        connection.sendall(head.encode())
        came = b"".join(iter(lambda: connection.recv(65536), b""))
    assert came.startswith(b"HTTP/1.1 408 "), came
    assert b"BODY_TOO_SLOW" in came


def test_no_part_of_a_refused_body_is_left(hasty: Server) -> None:
    data_dir = Path(hasty.told["data_dir"])
    assert not list(data_dir.glob("uploads/.*"))
