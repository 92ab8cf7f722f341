"""Invitations: a link that signs one device in, once, for long, as one person; and what it does not do."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from askback.access.grants import Grant
from askback.access.sessions import MAX_INVITATIONS, Invitation, Invitations, Lifetime, Sessions
from askback.core.access import AccessScope
from askback.core.errors import Conflict
from askback.fs.records import Records
from support.api import PATIENCE_SEC, calling, refused
from support.data_folder import World
from support.server import Server

ANNA = Grant(name="anna", scopes=frozenset({AccessScope.ANSWER}), token_digest="a" * 64)
PAGE = {"accept": "text/html", "accept-language": "en"}


@pytest.fixture(scope="module")
def invited(server: Server) -> str:
    """The name of somebody with a token."""
    with calling(server.url, server.token) as client:
        made = client.post("/v1/tokens", json={"name": "invited", "scopes": ["answer"]})
        assert made.status_code == 201
    return "invited"


def invite(client: httpx.Client, name: str, **rest: Any) -> dict[str, Any]:
    made = client.post("/v1/invitations", json={"token": name, **rest})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


def secret_of(invitation: dict[str, Any]) -> str:
    return parse_qs(urlsplit(invitation["url"]).query)["invitation"][0]


def accept(server: Server, secret: str, **headers: str) -> httpx.Response:
    data = {"invitation": secret}
    return httpx.post(f"{server.url}/enter", data=data, headers=PAGE | headers, timeout=PATIENCE_SEC)


def led_on(server: Server, accepted: httpx.Response) -> tuple[dict[str, str], str]:
    """The device's session at the name of the page, and the cookie as it was set."""
    origin, code = re.findall(r'href="(http://[^"/]+)/enter\?code=([^"]+)"', accepted.text)[0]
    host = {"host": urlsplit(origin).netloc}
    entered = httpx.get(f"{server.url}/enter", params={"code": code}, headers=host, timeout=PATIENCE_SEC)
    cookie = entered.headers["set-cookie"]
    return host | {"cookie": cookie.partition(";")[0]}, cookie


def test_looking_at_an_invitation_does_not_use_it_up_and_confirming_it_does(
    server: Server, client: httpx.Client, invited: str, furnished: World
) -> None:
    invitation = invite(client, invited)
    secret = secret_of(invitation)
    assert secret not in repr(furnished.records.collection("invitations", Invitation).read())
    for _ in range(3):
        shown = httpx.get(invitation["url"], headers=PAGE, timeout=PATIENCE_SEC)
        assert shown.status_code == 200
        assert "Sign in as invited?" in shown.text
        assert "set-cookie" not in shown.headers
        assert "form-action 'self'" in shown.headers["content-security-policy"]
    session, cookie = led_on(server, accept(server, secret))
    assert "Max-Age=31536000" in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with calling(server.url, None, **session) as phone:
        assert phone.get("/v1/inbox").status_code == 200
        refused(phone.get("/v1/runs"), 403, "SCOPE_MISSING")
        (own,) = [each for each in phone.get("/v1/sessions").json()["items"] if each["current"]]
        assert (own["token"], own["invited"]) == (invited, True)
        in_days = (datetime.fromisoformat(own["expires_at"]) - datetime.now(UTC)) / timedelta(days=1)
        assert 89 < in_days < 91
        for again in (accept(server, secret), httpx.get(invitation["url"], headers=PAGE, timeout=PATIENCE_SEC)):
            assert again.status_code == 401
            assert "This invitation does not work" in again.text
            assert "set-cookie" not in again.headers
        assert client.delete(f"/v1/sessions/{own['id']}").status_code == 204
        refused(phone.get("/v1/inbox"), 401, "UNAUTHORIZED")


def test_of_many_who_accept_at_once_one_gets_in(server: Server, client: httpx.Client, invited: str) -> None:
    secret = secret_of(invite(client, invited))
    with ThreadPoolExecutor(8) as pool:
        statuses = [each.status_code for each in pool.map(lambda _: accept(server, secret), range(8))]
    assert statuses.count(200) == 1
    assert statuses.count(401) == 7


def test_an_invitation_is_listed_and_revoked(server: Server, client: httpx.Client, invited: str) -> None:
    invitation = invite(client, invited, expires_in_sec=60)
    found = {each["id"]: each for each in client.get("/v1/invitations").json()["items"]}
    assert found[invitation["id"]]["token"] == invited
    assert "url" not in found[invitation["id"]]
    assert client.delete(f"/v1/invitations/{invitation['id']}").status_code == 204
    refused(client.delete(f"/v1/invitations/{invitation['id']}"), 404, "INVITATION_NOT_FOUND")
    assert accept(server, secret_of(invitation)).status_code == 401


@pytest.mark.parametrize("seconds", [0, -1, 2_592_001, "soon"])
def test_an_invitation_lasts_a_bounded_time(client: httpx.Client, invited: str, seconds: Any) -> None:
    made = client.post("/v1/invitations", json={"token": invited, "expires_in_sec": seconds})
    refused(made, 422, "REQUEST_INVALID")


def test_nobody_is_invited_without_a_token(client: httpx.Client) -> None:
    refused(client.post("/v1/invitations", json={"token": "nobody"}), 404, "TOKEN_NOT_FOUND")


def test_an_invitation_is_no_token_and_no_session(server: Server, client: httpx.Client, invited: str) -> None:
    secret = secret_of(invite(client, invited))
    with calling(server.url, secret) as bearer:
        refused(bearer.get("/v1/inbox"), 401, "UNAUTHORIZED")
    with calling(server.url, None, cookie=f"askback_session_{server.port}={secret}") as cookie:
        refused(cookie.get("/v1/inbox"), 401, "UNAUTHORIZED")
    for name in ("token", "code"):
        answer = httpx.get(f"{server.url}/enter", params={name: secret}, headers=PAGE, timeout=PATIENCE_SEC)
        assert answer.status_code == 401


def test_another_site_cannot_accept_an_invitation(server: Server, client: httpx.Client, invited: str) -> None:
    """A page of another site could otherwise sign a browser in as somebody else."""
    secret = secret_of(invite(client, invited))
    for headers in (
        {"origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "null"},
        {"host": "evil.example"},
    ):
        refused_ = accept(server, secret, **headers)
        assert refused_.status_code == 403, headers
        assert "set-cookie" not in refused_.headers
    assert accept(server, secret, origin=server.url).status_code == 200


def test_behind_a_public_name_the_device_is_signed_in_there(own_world: World) -> None:
    with Server(own_world, env={"ASKBACK_SERVER__PUBLIC_URL": "https://askback.example"}) as server:
        with calling(server.url, server.token) as client:
            assert client.post("/v1/tokens", json={"name": "anna", "scopes": ["answer"]}).status_code == 201
            invitation = invite(client, "anna")
        assert invitation["url"].startswith("https://askback.example/enter?invitation=")
        host = {"host": "askback.example", "origin": "https://askback.example"}
        entered = accept(server, secret_of(invitation), **host)
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith("__Host-askback_session_")
        assert "Secure" in cookie
        assert "Max-Age=31536000" in cookie
        phone = {"host": "askback.example", "cookie": cookie.partition(";")[0]}
        inbox = httpx.get(f"{server.url}/v1/inbox", headers=phone, timeout=PATIENCE_SEC)
        assert inbox.status_code == 200


# Without a server.


def test_an_invitation_ends_with_its_time_and_with_its_token(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    holder: dict[str, Grant] = {ANNA.token_digest: ANNA}
    invitations = Invitations(Records(tmp_path), lambda: now, holder.get)
    late, good = (
        invitations.make(token="anna", token_digest=ANNA.token_digest, lasts=timedelta(hours=hours))[0]
        for hours in (1, 24)
    )
    now += timedelta(hours=1)
    assert invitations.take(late) is None
    assert invitations.find(good) is not None
    holder.clear()
    assert invitations.find(good) is None
    assert invitations.take(good) is None
    assert invitations.all() == []


def test_there_are_only_so_many_invitations_and_used_or_expired_ones_do_not_count(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    invitations = Invitations(Records(tmp_path), lambda: now, lambda _: ANNA)
    lasts = timedelta(hours=1)
    for _ in range(MAX_INVITATIONS):
        text, _ = invitations.make(token="anna", token_digest=ANNA.token_digest, lasts=lasts)
    with pytest.raises(Conflict):
        invitations.make(token="anna", token_digest=ANNA.token_digest, lasts=lasts)
    assert invitations.take(text) is not None
    invitations.make(token="anna", token_digest=ANNA.token_digest, lasts=lasts)
    now += timedelta(hours=1)
    invitations.make(token="anna", token_digest=ANNA.token_digest, lasts=lasts)
    assert len(invitations.all()) == 1


def test_an_invited_device_stays_signed_in_while_it_is_used_and_at_most_for_its_time(tmp_path: Path) -> None:
    start = now = datetime(2026, 1, 1, tzinfo=UTC)
    device = Lifetime(idle=timedelta(days=20), max_age=timedelta(days=50))
    sessions = Sessions(Records(tmp_path), lambda: now, lambda _: ANNA, device)
    used, idle = (sessions.make(ANNA, host="a", user_agent="", invited=True).secret for _ in range(2))
    browser = sessions.make(ANNA, host="a", user_agent="").secret
    now += timedelta(days=19)
    assert [sessions.find(each, "a") is not None for each in (used, browser)] == [True, False]
    now += timedelta(days=1)
    assert [sessions.find(each, "a") is not None for each in (used, idle)] == [True, False]
    now += timedelta(days=19)
    assert sessions.find(used, "a") is not None
    now = start + timedelta(days=50)
    assert sessions.find(used, "a") is None
