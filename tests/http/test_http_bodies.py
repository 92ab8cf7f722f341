"""What is sent in: counted while it comes, read strictly, and never a fault of the server's."""

from __future__ import annotations

import io
import itertools
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import PATIENCE_SEC, exchange, get, newest_run, over, refused, reply, start, waiting
from support.server import Server

MB = 1 << 20
KINDS = {
    "/v1/runs": "application/json",
    "/v1/uploads": "multipart/form-data; boundary=x",
    "/v1/skills": "application/zip",
}
JSON = {"content-type": "application/json"}


def run_of(value: str, name: str = "a") -> bytes:
    """A run of a skill that takes anything, with this JSON text somewhere in its input."""
    return f'{{"skill": "open", "engine": "scripted", "mode": "auto", "input": {{"{name}": {value}}}}}'.encode()


def post(client: httpx.Client, content: Any, **headers: str) -> httpx.Response:
    return client.post("/v1/runs", content=content, headers={**JSON, **headers})


# How much.


def test_a_body_over_its_cap_is_413(client: httpx.Client) -> None:
    refused(post(client, run_of(f'"{"x" * 2 * MB}"')), 413, "BODY_TOO_LARGE")
    form = {"file": ("large", io.BytesIO(bytes(5 * MB)))}
    refused(client.post("/v1/uploads", files=form), 413, "BODY_TOO_LARGE")
    zipped = {"content-type": "application/zip"}
    refused(client.post("/v1/skills", content=bytes(5 * MB), headers=zipped), 413, "BODY_TOO_LARGE")


def test_a_body_just_under_its_cap_is_taken(client: httpx.Client) -> None:
    assert client.post("/v1/uploads", files={"file": ("large", bytes(3 * MB))}).json()["size"] == 3 * MB
    made = post(client, run_of(f'"{"x" * MB}"'))
    assert made.status_code == 201
    over(client, made.json()["id"])


@pytest.mark.parametrize("path", KINDS)
def test_a_body_that_hides_its_length_is_counted_as_it_comes(client: httpx.Client, path: str) -> None:
    begin = b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n" if path == "/v1/uploads" else b"["
    chunks = itertools.chain([begin], itertools.repeat(b"0," * 32768, 100))
    refused(client.post(path, content=chunks, headers={"content-type": KINDS[path]}), 413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("token", ["right", "wrong"])
def test_a_client_that_was_refused_and_goes_on_sending_is_hung_up_on(server: Server, token: str) -> None:
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.token if token == 'right' else 'x'}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(head.encode())
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            _send_on(connection)


def _send_on(connection: socket.socket) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while time.monotonic() < deadline:
        connection.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        time.sleep(0.002)


def test_a_length_is_believed_before_the_body_comes(server: Server) -> None:
    head = (
        f"POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10**18}\r\nExpect: 100-continue\r\n\r\n"
    )
    assert exchange(server, head.encode()).startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_in_the_middle_leaves_nothing(server: Server, client: httpx.Client) -> None:
    newest = newest_run(client)
    client.post("/v1/uploads", files={"file": ("a", b"x")})
    uploads = Path(server.told["data_dir"]) / "uploads"
    before = set(uploads.iterdir())
    for path, kind in KINDS.items():
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
                f"Content-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
            )
            connection.sendall(
                head.encode() + b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\nhalf"
            )
    assert newest_run(client) == newest
    assert set(uploads.iterdir()) == before
    assert "Traceback" not in server.stderr


# JSON.


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000])
def test_deep_nesting_is_told_in_words(client: httpx.Client, content: bytes) -> None:
    answer = client.post("/v1/runs", content=content, headers={"content-type": "application/json"})
    assert refused(answer, 400, "REQUEST_MALFORMED")["detail"] == "the JSON is nested too deeply"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"skill": NaN}',
        b'{"skill": Infinity}',
        b'{"skill": 1e999}',
        b'{"skill": 0x10}',
        b"{'skill': 1}",
        b'{"skill": "\\ud800"}',
        b'{"skill": "\xed\xa0\x80"}',
        b'{"skill": "\xff"}',
        b'{"skill": "a\nb"}',
        b'{"skill": "a", "skill": "b"}',
        b'{"skill": "open", "input": {"a": [{"b": 1, "b": 2}]}}',
        b'{"skill": "a"} and more',
        b'\xef\xbb\xbf{"skill": "a"}',
        '{"skill": "a"}'.encode("utf-16"),
        '{"skill": "a"}'.encode("utf-32"),
        b'{"skill": ' + b"9" * 10_000 + b"}",
        b"\x00",
        b"null\x00",
    ],
    ids=range(22),
)
def test_what_is_no_strict_json_is_refused(client: httpx.Client, content: bytes) -> None:
    answer = post(client, content)
    told = answer.json()
    assert (answer.status_code, told["code"]) in ((400, "REQUEST_MALFORMED"), (422, "REQUEST_INVALID")), told
    assert answer.status_code == 400 or not content or b"9" * 101 in content


@pytest.mark.parametrize("content", [b"null", b"[]", b"1", b'"text"', b"true", b"{}", b"[[]]"])
def test_what_is_no_run_is_422(client: httpx.Client, content: bytes) -> None:
    refused(post(client, content), 422, "REQUEST_INVALID")


@pytest.mark.parametrize(
    "value",
    [
        str(2**63),
        str(-(2**63) - 1),
        str(2**64),
        "9" * 400,
        "1e308",
        "5e-324",
        "-0.0",
        '"\\u0000"',
        '"\\ud83d\\ude00"',
        '"\\u202e"',
        '""',
        "null",
        "[" * 90 + "]" * 90,
        "[" * 101 + "]" * 101,
        "[" * 900 + "]" * 900,
        '{"":{"":{}}}',
        '{"upload_id": 1}',
        '{"upload_id": "x", "more": 1}',
        '{"$ref": "#"}',
        '{"__class__": "x", "constructor": {"prototype": 1}}',
        json.dumps("x" * 100_000),
        json.dumps(list(range(10_000))),
    ],
    ids=range(22),
)
@pytest.mark.parametrize("place", ["input", "parameter", "options", "key"])
def test_every_value_is_taken_or_refused_in_every_place(client: httpx.Client, place: str, value: str) -> None:
    body = {"input": run_of(value), "key": run_of(value)}.get(place) or run_of("1").replace(
        b'"input"', f'"{place}": {{"a": {value}}}, "input"'.encode()
    )
    answer = post(client, body, **({"idempotency-key": os.urandom(8).hex()} if place == "key" else {}))
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 201:
        run_id = answer.json()["id"]
        over(client, run_id)
        for path in ("", "/events", "/result"):
            assert client.get(f"/v1/runs/{run_id}{path}").status_code == 200


@pytest.mark.parametrize("name", ["", "../up", "a/b", "\\u0000", "x" * 5000, "__proto__", "upload_id"])
def test_every_name_is_taken_or_refused(client: httpx.Client, name: str) -> None:
    upload_id = client.post("/v1/uploads", files={"file": ("a", b"x")}).json()["upload_id"]
    for value in ("1", json.dumps({"upload_id": upload_id})):
        answer = post(client, run_of(value, name))
        assert answer.status_code in (201, 422), answer.text


@pytest.mark.parametrize("response", [2**70, -(2**70), 1.5e300, {"a": 2**63}, "\x00", ["\u202e"], True, [[]] * 50])
def test_every_answer_is_taken_or_refused(client: httpx.Client, response: Any) -> None:
    run_id = waiting(client)
    answer = reply(client, run_id, response)
    assert answer.status_code in (202, 422), answer.text
    for path in ("", "/interactions", "/events"):
        assert client.get(f"/v1/runs/{run_id}{path}").status_code == 200


# Media types.


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/json", "image/png"]
)
def test_a_body_that_is_not_said_to_be_json_is_415(client: httpx.Client, kind: str) -> None:
    """A page of another site can send these without being asked, but no JSON."""
    headers = {"content-type": kind} if kind else {}
    content = b'{"skill": "quick", "engine": "scripted"}'
    refused(client.post("/v1/runs", content=content, headers=headers), 415, "MEDIA_TYPE_UNSUPPORTED")
    run_id = waiting(client)
    path = f"/v1/runs/{run_id}/interaction/reply"
    refused(
        client.post(path, content=b'{"interaction_id": "colour", "response": 1}', headers=headers),
        415,
        "MEDIA_TYPE_UNSUPPORTED",
    )
    assert get(client, run_id)["state"] == "waiting_user"


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"]
)
def test_json_is_taken_under_its_names(client: httpx.Client, kind: str) -> None:
    made = client.post("/v1/runs", content=b'{"skill": "quick", "engine": "scripted"}', headers={"content-type": kind})
    assert made.status_code == 201


def test_a_body_where_none_is_wanted_is_no_trouble(client: httpx.Client) -> None:
    run_id = start(client, "endless")
    for content in (b"{", b"[" * 100_000, bytes(100_000)):
        assert client.request("GET", f"/v1/runs/{run_id}", content=content, headers=JSON).status_code == 200
    assert client.post(f"/v1/runs/{run_id}/cancel", content=b"{{{", headers=JSON).status_code == 202
    assert client.request("GET", f"/v1/runs/{run_id}", content=bytes(3 * MB)).status_code == 200
    refused(client.post(f"/v1/runs/{run_id}/cancel", content=bytes(3 * MB)), 413, "BODY_TOO_LARGE")


def test_a_form_that_is_none_is_refused(client: httpx.Client) -> None:
    for kind, content in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=", b"x"),
        ("multipart/form-data; boundary=x", b"garbage"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\ncut"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: x\r\n\r\n\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\n" + b"A: b\r\n" * 10_000 + b"\r\n\r\n--x--\r\n"),
        (
            "multipart/form-data; boundary=x; charset=nonsense",
            b"--x\r\nContent-Disposition: form-data; name=\xff\r\n\r\n\xff\r\n--x--\r\n",
        ),
    ):
        answer = client.post("/v1/uploads", content=content, headers={"content-type": kind})
        assert answer.status_code in (400, 422), (kind, content[:40], answer.text)
