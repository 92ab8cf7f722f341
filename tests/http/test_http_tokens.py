"""Tokens of people over HTTP: made, listed with their last use, revoked with what belongs to them; for administrators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from askback.access.tokens import Token, TokenUses
from askback.core.access import AccessScope
from askback.core.actors import Channel
from askback.fs.records import Records
from support.api import PATIENCE_SEC, calling, refused, waiting, within
from support.data_folder import World, run_async
from support.program import askback
from support.server import Server


def make(client: httpx.Client, name: str, *scopes: str, **rest: Any) -> dict[str, Any]:
    made = client.post("/v1/tokens", json={"name": name, "scopes": scopes, **rest})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def listed(client: httpx.Client) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in client.get("/v1/tokens").json()["items"]}


@contextmanager
def held(server: Server, client: httpx.Client, name: str, *scopes: str) -> Iterator[httpx.Client]:
    """Somebody with a new token of this name."""
    with calling(server.url, make(client, name, *scopes)["token"]) as holder:
        yield holder


def test_a_token_is_made_for_a_person_and_its_text_is_shown_once(
    server: Server, client: httpx.Client, furnished: World
) -> None:
    made = make(client, "anna", "answer", "answer", "read", expires_in_sec=3600)
    assert made["scopes"] == ["answer", "read"]
    assert not made["main"]
    assert not made["expired"]
    text = made["token"]
    assert text not in client.get("/v1/tokens").text
    assert text not in repr(furnished.records.collection("tokens", Token).read())
    with calling(server.url, text) as anna:
        assert anna.get("/v1/inbox").status_code == 200
        refused(anna.post("/v1/runs", json={"skill": "quick"}), 403, "SCOPE_MISSING")
    again = client.post("/v1/tokens", json={"name": "anna", "scopes": ["read"]})
    assert "anna" in refused(again, 422, "INPUT_INVALID")["detail"]
    assert client.delete("/v1/tokens/anna").status_code == 204
    with calling(server.url, text) as anna:
        refused(anna.get("/v1/inbox"), 401, "UNAUTHORIZED")
    refused(client.delete("/v1/tokens/anna"), 404, "TOKEN_NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x"},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["everything"]},
        {"name": "", "scopes": ["read"]},
        {"name": "a b", "scopes": ["read"]},
        {"name": "a\nb", "scopes": ["read"]},
        {"name": "x\n", "scopes": ["read"]},
        {"name": "../x", "scopes": ["read"]},
        {"name": ".", "scopes": ["read"]},
        {"name": "..", "scopes": ["read"]},
        {"name": "-x", "scopes": ["read"]},
        {"name": "x" * 101, "scopes": ["read"]},
        {"name": "x", "scopes": ["read"], "expires_in_sec": 0},
        {"name": "x", "scopes": ["read"], "expires_in_sec": 10**12},
        {"name": "x", "scopes": ["read"], "token": "my-own"},
    ],
)
def test_a_token_that_makes_no_sense_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    before = listed(client).keys()
    made = client.post("/v1/tokens", json=body)
    refused(made, 422, "REQUEST_INVALID" if body["name"] == "x" else "INPUT_INVALID")
    assert listed(client).keys() == before


def test_the_server_s_own_token_is_listed_and_cannot_be_made_or_revoked(client: httpx.Client) -> None:
    first = client.get("/v1/tokens").json()["items"][0]
    assert (first["name"], first["main"], first["scopes"], first["created_at"]) == ("main", True, ["admin"], None)
    assert first["last_used_via"] == "api"
    for name in ("main", "Main", "MAIN"):
        refused(client.post("/v1/tokens", json={"name": name, "scopes": ["read"]}), 422, "INPUT_INVALID")
    refused(client.delete("/v1/tokens/main"), 422, "INPUT_INVALID")
    refused(client.post("/v1/invitations", json={"token": "main"}), 422, "INPUT_INVALID")
    assert client.get("/v1/tokens").status_code == 200


@pytest.mark.parametrize("scope", ["answer", "read", "submit"])
def test_only_an_administrator_sees_tokens(server: Server, client: httpx.Client, scope: str) -> None:
    name = f"curious-{scope}"
    with held(server, client, name, scope) as curious:
        for method, path, body in (
            ("GET", "/v1/tokens", None),
            ("POST", "/v1/tokens", {"name": "self-made", "scopes": ["admin"]}),
            ("DELETE", f"/v1/tokens/{name}", None),
            ("GET", "/v1/invitations", None),
            ("POST", "/v1/invitations", {"token": name}),
            ("DELETE", "/v1/invitations/00000000", None),
        ):
            refused(curious.request(method, path, json=body), 403, "SCOPE_MISSING")
    assert "self-made" not in listed(client)


def test_a_list_shows_when_and_by_which_way_a_token_was_used_and_who_is_signed_in(
    server: Server, client: httpx.Client
) -> None:
    text = make(client, "ben", "read")["token"]
    unused = listed(client)["ben"]
    assert (unused["last_used_at"], unused["last_used_via"], unused["sessions"]) == (None, None, 0)
    with calling(server.url, text) as ben:
        ben.get("/v1/runs")
    by_program = listed(client)["ben"]
    assert (by_program["last_used_via"], by_program["sessions"]) == ("api", 0)
    session = server.session(text)
    httpx.get(f"{server.url}/runs", headers=session, timeout=PATIENCE_SEC)
    by_browser = listed(client)["ben"]
    assert (by_browser["last_used_via"], by_browser["sessions"]) == ("page", 1)
    assert by_browser["last_used_at"] >= by_program["last_used_at"]


def test_what_belongs_to_a_token_ends_with_it(server: Server, client: httpx.Client) -> None:
    run_id = waiting(client)
    with held(server, client, "carl", "answer", "read") as carl:
        link = carl.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
        invitation = client.post("/v1/invitations", json={"token": "carl"}).json()
    assert httpx.get(link, timeout=PATIENCE_SEC).status_code == 200
    assert client.delete("/v1/tokens/carl").status_code == 204
    assert httpx.get(link, timeout=PATIENCE_SEC).status_code == 401
    assert httpx.get(invitation["url"], timeout=PATIENCE_SEC).status_code == 401
    assert invitation["id"] not in client.get("/v1/invitations").text


@pytest.mark.sqlite
def test_an_expired_token_is_listed_until_it_is_revoked(own_world: World) -> None:
    async def scene() -> None:
        async with within(own_world) as (app, _, client):
            made = await client.post("/v1/tokens", json={"name": "dora", "scopes": ["read"], "expires_in_sec": 60})
            path = app.settings.data_dir / "tokens.json"
            stored = json.loads(path.read_text())
            stored[0]["expires_at"] = "2026-01-01T00:00:00Z"
            path.write_text(json.dumps(stored))
            (_, found) = (await client.get("/v1/tokens")).json()["items"]
            assert (made.json()["expired"], found["expired"]) == (False, True)
            refused(await client.post("/v1/invitations", json={"token": "dora"}), 422, "INPUT_INVALID")
            # Its name is free again.
            again = await client.post("/v1/tokens", json={"name": "dora", "scopes": ["read"]})
            assert again.status_code == 201
            assert [each["expired"] for each in (await client.get("/v1/tokens")).json()["items"]] == [False, False]
            refused(await client.post("/v1/tokens", json={"name": "dora", "scopes": ["read"]}), 422, "INPUT_INVALID")
            assert (await client.delete("/v1/tokens/dora")).status_code == 204

    run_async(scene)


def test_a_token_may_be_restricted_to_labels(server: Server, client: httpx.Client) -> None:
    made = make(client, "customer", "read", labels={"customer": "4711"})
    assert made["labels"] == listed(client)["customer"]["labels"] == {"customer": "4711"}
    own, other = (waiting(client, labels={"customer": number}) for number in ("4711", "4712"))
    with calling(server.url, made["token"]) as customer:
        assert [run["id"] for run in customer.get("/v1/runs").json()["items"]] == [own]
        refused(customer.get(f"/v1/runs/{other}"), 404, "RUN_NOT_FOUND")
    for labels, scope in (({"a b": "c"}, "read"), ({"customer": "4711"}, "admin")):
        body = {"name": "unfit", "scopes": [scope], "labels": labels}
        refused(client.post("/v1/tokens", json=body), 422, "INPUT_INVALID")


# The last use.


def test_a_use_is_written_later_and_only_for_tokens_that_exist(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    path = tmp_path / "token-uses.json"
    uses = TokenUses(Records(tmp_path), lambda: now)
    uses.record("a", Channel.API)
    uses.record("revoked", Channel.API)
    now += timedelta(minutes=1)
    uses.record("a", Channel.PAGE)
    assert not path.exists()
    uses.flush(lambda: frozenset({"a", "b"}))
    written = path.read_bytes()
    uses.flush(lambda: frozenset())
    assert path.read_bytes() == written, "nothing was used since"
    found = TokenUses(Records(tmp_path), lambda: now)
    use = found.last("a")
    assert use is not None
    assert (use.at, use.via) == (now, Channel.PAGE)
    assert found.last("b") is None
    assert found.last("revoked") is None


def test_a_damaged_file_of_uses_stops_nobody(tmp_path: Path) -> None:
    path = tmp_path / "token-uses.json"
    path.write_text("{")
    uses = TokenUses(Records(tmp_path), lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert uses.last("a") is None
    uses.record("a", Channel.API)
    assert uses.last("a") is not None


def test_the_command_shows_the_last_use_that_a_server_has_written(own_world: World) -> None:
    with Server(own_world) as server:
        with calling(server.url, server.token) as client:
            text = make(client, "erik", "read")["token"]
            make(client, "unused", "admin")
        with calling(server.url, text) as erik:
            erik.get("/v1/runs")
        server.stop()
    told = askback(own_world, "tokens", "--json")
    uses = {each["name"]: each["last_used_via"] for each in json.loads(told.stdout)}
    assert uses == {"erik": "api", "unused": None}
    lines = askback(own_world, "tokens").stdout
    assert "by api" in lines
    assert "never used" in lines
    assert AccessScope.ADMIN in lines
