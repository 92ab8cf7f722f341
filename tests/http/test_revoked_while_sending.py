"""Somebody whose token or link is revoked while the body is still on its way: nothing is written."""

from __future__ import annotations

import io
import json
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from support.api import PATIENCE_SEC, get, waiting
from support.data_folder import World
from support.server import Server

JSON = "application/json"
FORM = "multipart/form-data; boundary=x"
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--x--\r\n'


class Sending:
    """A request whose head was accepted, and whose body is not complete."""

    def __init__(self, connection: socket.socket, rest: bytes) -> None:
        self._connection = connection
        self._rest = rest

    def finish(self) -> tuple[int, dict[str, Any]]:
        self._connection.sendall(self._rest)
        response = HTTPResponse(self._connection)
        response.begin()
        return response.status, json.loads(response.read())


@contextmanager
def sending(server: Server, path: str, kind: str, body: bytes, token: str | None = None) -> Iterator[Sending]:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_SEC) as connection:
        connection.sendall(head.encode())
        # Now the caller was admitted.
        told = b""
        while not told.endswith(b"\r\n\r\n"):
            told += connection.recv(1)
        assert told.startswith(b"HTTP/1.1 100 "), told
        connection.sendall(body[:3])
        yield Sending(connection, body[3:])


def revocable(client: httpx.Client, name: str) -> str:
    made = client.post("/v1/tokens", json={"name": name, "scopes": ["admin"]})
    assert made.status_code == 201, made.text
    return str(made.json()["token"])


def revoke(client: httpx.Client, name: str) -> None:
    assert client.delete(f"/v1/tokens/{name}").status_code == 204


def unauthorized(told: tuple[int, dict[str, Any]]) -> None:
    status, problem = told
    assert (status, problem["code"]) == (401, "UNAUTHORIZED")


def test_a_revoked_administrator_makes_no_new_token(server: Server, client: httpx.Client) -> None:
    token = revocable(client, "leaving")
    body = json.dumps({"name": "backdoor", "scopes": ["admin"]}).encode()
    with sending(server, "/v1/tokens", JSON, body, token) as request:
        revoke(client, "leaving")
        unauthorized(request.finish())
    assert "backdoor" not in [each["name"] for each in client.get("/v1/tokens").json()["items"]]


def test_a_revoked_token_submits_no_run(server: Server, client: httpx.Client) -> None:
    token = revocable(client, "late-submitter")
    body = json.dumps({"skill": "quick", "engine": "scripted", "labels": {"by": "late"}}).encode()
    with sending(server, "/v1/runs", JSON, body, token) as request:
        revoke(client, "late-submitter")
        unauthorized(request.finish())
    assert client.get("/v1/runs", params={"label": "by:late"}).json()["items"] == []


def test_nothing_stays_of_an_upload_with_a_revoked_token(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    token = revocable(client, "late-uploader")
    folder = furnished.data_dir / "uploads"
    assert client.post("/v1/uploads", files={"file": ("b.txt", b"b")}).status_code == 201
    before = sorted(folder.iterdir())
    with sending(server, "/v1/uploads", FORM, FILE, token) as request:
        revoke(client, "late-uploader")
        unauthorized(request.finish())
    assert sorted(folder.iterdir()) == before


def test_a_revoked_token_installs_no_skill(server: Server, client: httpx.Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("late-skill/SKILL.md", "---\nname: late-skill\ndescription: Late.\n---\nWork.\n")
    token = revocable(client, "late-installer")
    with sending(server, "/v1/skills", "application/zip", packed.getvalue(), token) as request:
        revoke(client, "late-installer")
        unauthorized(request.finish())
    assert client.get("/v1/skills/late-skill").status_code == 404


@pytest.mark.parametrize(
    ("skill", "end", "kind", "body"),
    [("asking", "", JSON, b'{"response": "red"}'), ("filing", "/file", FORM, FILE)],
    ids=["value", "file"],
)
def test_a_revoked_link_answers_nothing(
    server: Server, client: httpx.Client, furnished: World, skill: str, end: str, kind: str, body: bytes
) -> None:
    run_id = waiting(client, skill)
    made = client.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()
    link = made["url"].partition("/v1/answers/")[2]
    with sending(server, f"/v1/answers/{link}{end}", kind, body) as request:
        assert client.delete(f"/v1/runs/{run_id}/interaction/links/{made['id']}").status_code == 204
        status, problem = request.finish()
    assert (status, problem["code"]) == (401, "UNAUTHORIZED")
    assert "link" in problem["detail"]
    assert get(client, run_id)["state"] == "waiting_user"


def test_who_stays_valid_is_not_disturbed(server: Server, client: httpx.Client) -> None:
    with sending(server, "/v1/uploads", FORM, FILE, server.token) as request:
        assert request.finish()[0] == 201
