"""Who gets in: every call without a token, with each scope, by cookie, and from a stranger's page."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import TokenDirectory, Tokens
from askback.core.access import AccessScope
from askback.core.errors import Unavailable
from askback.fs.atomic import write_private
from askback.fs.records import Records, stored_secret
from support.api import calling, exchange, newest_run, openapi, operations, refused, start, waiting, within
from support.data_folder import World, run_async
from support.server import Server

NOWHERE = [
    "/",
    "/v1",
    "/v1/nothing",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/v1/openapi.json",
    "/enter",
    "/healthz/",
    "/v1/runs/",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
WRONG = {
    "none": {},
    "wrong": {"authorization": "Bearer " + "x" * 43},
    "empty": {"authorization": 'Bearer ""'},
    "blank": {"authorization": ""},
    "malformed": {"authorization": "Bearer"},
    "other kind": {"authorization": "Basic dXNlcjpwYXNz"},
    "cookie": {"cookie": "askback_session_PORT=wrong"},
    "empty cookie": {"cookie": "askback_session_PORT="},
    "broken cookie": {"cookie": '"; =;;\x01'},
}


@pytest.fixture(scope="module")
def tokens(server: Server, furnished: World) -> Tokens:
    return Tokens(furnished.records, lambda: datetime.now(UTC))


def filled(template: str) -> str:
    return (
        template.replace("{run_id}", "0000000000000000")
        .replace("{path}", "a")
        .replace("{skill_id}", "x")
        .replace("{link}", "x.y")
        .replace("{link_id}", "x")
        .replace("{session_id}", "x")
        .replace("{subscription_id}", "x")
    )


def every_call() -> list[tuple[str, str]]:
    documented = [(method, filled(path)) for method, path in operations() if path not in ("/healthz", "/readyz")]
    return [*documented, *(("GET", path) for path in NOWHERE), *((method, "/v1/runs") for method in METHODS)]


# Without a token.


@pytest.mark.parametrize("kind", [*WRONG, "expired", "revoked", "right but twice"])
def test_every_call_is_401_without_a_valid_token(server: Server, tokens: Tokens, kind: str) -> None:
    headers = {name: value.replace("PORT", str(server.port)) for name, value in WRONG.get(kind, {}).items()}
    if kind == "expired":
        past = datetime.now(UTC) - timedelta(seconds=1)
        headers = {"authorization": f"Bearer {tokens.make('old', (AccessScope.ADMIN,), past)}"}
    if kind == "revoked":
        headers = {"authorization": f"Bearer {tokens.make('gone', (AccessScope.ADMIN,), None)}"}
        with calling(server.url, None, **headers) as before:
            assert before.get("/v1/runs").status_code == 200
        tokens.revoke("gone")
    if kind == "right but twice":
        headers = {"authorization": f"Bearer {server.token}, Bearer {server.token}"}
    with calling(server.url, None, **headers) as stranger:
        for method, path in every_call():
            answer = stranger.request(method, path)
            assert answer.status_code == 401, (method, path, answer.status_code)
            assert answer.headers["www-authenticate"] == "Bearer"
            if method != "HEAD":
                refused(answer, 401, "UNAUTHORIZED")


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/uploads", "/v1/skills", "/v1/nothing", "/v1/answers/x.y"])
def test_a_stranger_s_body_is_not_read(server: Server, path: str) -> None:
    """Neither is it asked for: the client waits for a `100 Continue` that never comes."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 400000000\r\nExpect: 100-continue\r\n\r\n"
    assert exchange(server, head.encode()).startswith(b"HTTP/1.1 401 ")
    chunked = head.replace("Content-Length: 400000000", "Transfer-Encoding: chunked")
    assert exchange(server, chunked.encode()).startswith(b"HTTP/1.1 401 ")


def test_a_token_in_the_query_or_body_is_none(server: Server) -> None:
    with calling(server.url, None) as stranger:
        refused(stranger.get("/v1/runs", params={"token": server.token}), 401, "UNAUTHORIZED")
        refused(stranger.post("/v1/runs", json={"token": server.token}), 401, "UNAUTHORIZED")
        refused(stranger.post("/enter", params={"token": server.token}), 401, "UNAUTHORIZED")


def test_with_a_token_what_is_not_there_is_404_and_405(client: httpx.Client) -> None:
    for path in ("/v1/nothing", "/v1", "/docs", "/openapi.json", "/v1/runs/", "/healthz/", "/v1//runs"):
        assert refused(client.get(path), 404, "NOT_FOUND")["detail"] == "the path does not exist"
    for method, path in (
        ("PUT", "/v1/runs"),
        ("DELETE", "/v1/inbox"),
        ("POST", "/v1/engines"),
        ("OPTIONS", "/v1/runs"),
    ):
        answer = client.request(method, path)
        told = refused(answer, 405, "METHOD_NOT_ALLOWED")
        assert told["detail"] == "the path does not support the method"
        assert answer.headers["allow"]


def test_the_description_of_the_api_needs_a_token_too(server: Server, client: httpx.Client) -> None:
    assert client.get("/v1/openapi.json").json() == openapi()


# Scopes.


def test_a_token_may_do_what_its_scopes_say_and_no_more(server: Server, tokens: Tokens) -> None:
    """For every call and every scope: refused for the scope, or not, as the document says."""
    made = {scope: tokens.make(f"only-{scope}", (scope,), None) for scope in AccessScope}
    for scope, token in made.items():
        with calling(server.url, token) as holder:
            for (method, path), operation in operations().items():
                if not operation["security"]:
                    continue
                answer = holder.request(method, filled(path))
                roles = operation["security"][0]["token"]
                assert roles, (method, path)
                allowed = scope in roles or scope is AccessScope.ADMIN
                told = (
                    answer.json().get("code")
                    if answer.headers.get("content-type", "").endswith("problem+json")
                    else None
                )
                assert (told != "SCOPE_MISSING") == allowed, (scope, method, path, answer.text)
                assert allowed or answer.status_code == 403


def test_a_scope_is_checked_before_anything_is_done(server: Server, tokens: Tokens, client: httpx.Client) -> None:
    run_id = waiting(client)
    with calling(server.url, tokens.make("reader", (AccessScope.READ,), None)) as reader:
        refused(reader.post(f"/v1/runs/{run_id}/cancel"), 403, "SCOPE_MISSING")
        told = reader.post(f"/v1/runs/{run_id}/interaction/reply", json={"interaction_id": "colour", "response": "red"})
        refused(told, 403, "SCOPE_MISSING")
        refused(
            reader.post("/v1/skills", content=b"PK", headers={"content-type": "application/zip"}), 403, "SCOPE_MISSING"
        )
        assert reader.get(f"/v1/runs/{run_id}").json()["state"] == "waiting_user"


def test_two_scopes_do_what_each_does(server: Server, tokens: Tokens) -> None:
    with calling(server.url, tokens.make("app", (AccessScope.SUBMIT, AccessScope.READ), None)) as app:
        run_id = start(app, "quick")
        assert app.get(f"/v1/runs/{run_id}").status_code == 200
        refused(app.delete("/v1/skills/quick"), 403, "SCOPE_MISSING")


# The page's cookie.


def test_the_address_that_is_printed_leads_to_a_session_that_opens_the_rest(server: Server) -> None:
    with httpx.Client() as browser:
        led = browser.get(server.told["page"])
        assert "set-cookie" not in led.headers
        assert server.token not in led.text
    session = server.session()
    with calling(server.url, None, **session) as browser:
        assert browser.get("/v1/runs").status_code == 200
        own = {"origin": f"http://{session['host']}", "sec-fetch-site": "same-origin"}
        assert browser.post("/v1/runs", json={"skill": "quick", "engine": "scripted"}, headers=own).status_code == 201
        other = {"origin": server.url, "sec-fetch-site": "cross-site"}
        refused(browser.post("/v1/runs", json={"skill": "quick"}, headers=other), 403, "FORBIDDEN")


@pytest.mark.parametrize("token", ["", "wrong", "%00", "%ff"])
def test_nobody_enters_with_another_token(server: Server, token: str) -> None:
    with calling(server.url, None) as browser:
        answer = browser.get(f"/enter?token={token}")
        refused(answer, 401, "UNAUTHORIZED")
        assert "set-cookie" not in answer.headers
        refused(browser.get("/enter"), 401, "UNAUTHORIZED")


def test_a_wrong_bearer_is_not_helped_by_a_right_cookie(server: Server) -> None:
    with calling(server.url, "wrong", **server.session()) as confused:
        refused(confused.get("/v1/runs"), 401, "UNAUTHORIZED")


# Strangers' pages.


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "127.0.0.1:{port}.evil.example", ""]
)
def test_another_host_is_refused(server: Server, client: httpx.Client, host: str) -> None:
    headers = {"host": host.format(port=server.port)}
    for method, path in (("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/v1/nothing"), ("GET", "/enter")):
        refused(client.request(method, path, headers=headers), 403, "FORBIDDEN")


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_our_own_hosts_are_answered(server: Server, client: httpx.Client, host: str) -> None:
    assert client.get("/v1/runs", headers={"host": host.format(port=server.port)}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://["},
        {"origin": ""},
        {"origin": "http://127.0.0.1:{port}.evil.example"},
        {"origin": "http://x@127.0.0.1:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_write_from_another_site_is_refused(server: Server, client: httpx.Client, headers: dict[str, str]) -> None:
    told = {name: value.format(port=server.port) for name, value in headers.items()}
    newest = newest_run(client)
    refused(client.post("/v1/runs", json={"skill": "quick", "engine": "scripted"}, headers=told), 403, "FORBIDDEN")
    refused(client.delete("/v1/skills/quick", headers=told), 403, "FORBIDDEN")
    assert newest_run(client) == newest


def test_no_page_of_another_origin_is_told_that_it_may_read(client: httpx.Client) -> None:
    ask = {"origin": "http://evil.example", "access-control-request-method": "GET"}
    for answer in (
        client.get("/v1/runs", headers=ask),
        client.options("/v1/runs", headers=ask),
        client.get("/healthz", headers=ask),
    ):
        assert [name for name in answer.headers if name.startswith("access-control")] == []


def test_a_further_host_may_be_allowed(own_world: World) -> None:
    async def main() -> None:
        config = '[server]\nallowed_hosts = ["Askback.example"]\n'
        async with within(own_world, config) as (_, _, client):
            headers = {"host": "askback.example", "origin": "https://askback.example"}
            made = await client.post("/v1/runs", json={"skill": "quick", "engine": "scripted"}, headers=headers)
            assert made.status_code == 201
            assert (await client.get("/v1/runs", headers={"host": "other.example"})).status_code == 403

    run_async(main)


# What is kept of tokens.


def test_only_digests_of_further_tokens_are_kept(tmp_path: Path) -> None:
    tokens = Tokens(Records(tmp_path), lambda: datetime.now(UTC))
    text = tokens.make("app", (AccessScope.READ,), None)
    assert text not in (tmp_path / "tokens.json").read_text()
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
    assert [each.name for each in tokens.all()] == ["app"]


def test_a_broken_file_of_tokens_lets_nobody_in_and_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    tokens = Tokens(Records(tmp_path), lambda: datetime.now(UTC))
    for broken in (b"", b"{", b'[{"name": 1}]', b"\xff"):
        path.write_bytes(broken)
        assert TokenDirectory(token="own", api_tokens=tokens)("other") is None
        with pytest.raises(Unavailable, match=r"tokens\.json"):
            tokens.make("app", (AccessScope.READ,), None)
        assert path.read_bytes() == broken


def test_a_secret_is_made_once_kept_private_and_never_empty(tmp_path: Path) -> None:
    path = tmp_path / "token"
    secret = stored_secret(path)
    assert len(secret) >= 43
    assert stored_secret(path) == secret
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in tmp_path.iterdir()] == ["token"]
    write_private(path, b"\n")
    with pytest.raises(Unavailable, match="remove the file"):
        stored_secret(path)


def test_of_programs_that_start_at_once_all_have_the_same_secret(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        assert len(set(threads.map(lambda _: stored_secret(tmp_path / "token"), range(64)))) == 1


# Connections that are no HTTP.


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/runs HTTP/9.9\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: a\r\nBad Header: x\r\n\r\n",
        b"GET /v1/runs HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"POST /v1/runs HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=range(14),
)
def test_what_is_no_http_is_told_so_in_the_same_form(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        came = b"".join(iter(lambda: connection.recv(65536), b""))
    if not came:
        return
    head, _, body = came.partition(b"\r\n\r\n")
    assert head.split(b" ")[1] in (b"400", b"401"), head
    assert b"content-type: application/problem+json" in head
    assert b"content-security-policy" in head
    assert b'"code":"REQUEST_MALFORMED"' in body or b'"code":"UNAUTHORIZED"' in body


def test_a_request_for_a_websocket_is_an_ordinary_one(server: Server) -> None:
    head = f"GET /v1/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    keyed = head + "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert exchange(server, keyed.encode()).startswith(b"HTTP/1.1 401 ")


def test_the_server_still_answers(client: httpx.Client) -> None:
    answer: Any = client.get("/healthz").json()
    assert answer["status"] == "ok"
