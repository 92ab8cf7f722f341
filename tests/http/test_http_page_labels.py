"""The host name of the page: each token has its own, and the holder of one learns nothing of another.

A browser sends the cookie of a host name to every port. The holder of a weak token who listens on some port must not be
able to lure the browser of an administrator to a name that the administrator has a cookie for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx
import pytest

from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.http.addresses import PageLabels
from support.api import PATIENCE_SEC, calling, refused, waiting
from support.data_folder import World
from support.server import Server

KEY = b"k" * 32


@pytest.fixture(scope="module")
def tokens(server: Server, furnished: World) -> Tokens:
    return Tokens(furnished.records, lambda: datetime.now(UTC))


def led(server: Server, token: str, host: str) -> tuple[str, str]:
    """Where somebody who signs in at this host is led, with the code for it."""
    headers = {"host": host, "origin": f"http://{host}"}
    answer = httpx.post(f"{server.url}/enter", data={"token": token}, headers=headers, timeout=PATIENCE_SEC)
    assert "set-cookie" not in answer.headers
    origin, code = re.findall(r'href="(http://[^"/]+)/enter\?code=([^"]+)"', answer.text)[0]
    return urlsplit(origin).netloc, code


def test_the_holder_of_a_weak_token_does_not_learn_the_host_name_of_another(server: Server, tokens: Tokens) -> None:
    admin = server.session()
    weak = server.session(tokens.make("label-weak", (AccessScope.ANSWER,), None))
    assert weak["host"] != admin["host"]
    assert server.session()["host"] == admin["host"], "bookmarks stay valid"
    label = admin["host"].partition(".")[0]
    with httpx.Client(base_url=server.url, headers=weak, timeout=PATIENCE_SEC) as thief:
        for path in ("/", "/sessions", "/v1/sessions", "/v1/inbox", "/enter", "/enter/reachable", "/nothing"):
            answer = thief.get(path, headers={"accept": "text/html, application/json"})
            assert label not in answer.text + str(answer.headers), path


def test_a_session_of_one_token_opens_nothing_under_the_name_of_another(server: Server, tokens: Tokens) -> None:
    admin = server.session()
    weak = server.session(tokens.make("label-other", (AccessScope.ANSWER,), None))
    with calling(server.url, None) as thief:
        for mine, other in ((admin, weak), (weak, admin)):
            refused(thief.get("/v1/sessions", headers=mine | {"host": other["host"]}), 401, "UNAUTHORIZED")
            assert thief.get("/v1/sessions", headers=mine).status_code == 200


def test_a_sign_in_at_the_name_of_another_token_leaves_no_session_there(server: Server, tokens: Tokens) -> None:
    """An administrator who was lured there would else leave a cookie that its holder can receive at another port."""
    weak = server.session(tokens.make("label-lure", (AccessScope.ANSWER,), None))["host"]
    own, code = led(server, server.token, weak)
    assert own == server.session()["host"]
    here = httpx.get(f"{server.url}/enter", params={"code": code}, headers={"host": weak}, timeout=PATIENCE_SEC)
    assert (here.status_code, "set-cookie" in here.headers) == (401, False)
    _, code = led(server, server.token, weak)
    there = httpx.get(f"{server.url}/enter", params={"code": code}, headers={"host": own}, timeout=PATIENCE_SEC)
    assert "set-cookie" in there.headers
    probe = httpx.get(f"{server.url}/enter/reachable", headers={"origin": f"http://{weak}"}, timeout=PATIENCE_SEC)
    assert probe.headers["access-control-allow-origin"] == f"http://{weak}", "the browser is led on by itself"


def test_the_name_of_a_revoked_token_is_refused_like_any_unknown_host(server: Server, tokens: Tokens) -> None:
    session = server.session(tokens.make("label-revoked", (AccessScope.READ,), None))
    unknown = f"{'a' * 26}.localhost:{server.port}"
    with calling(server.url, server.token) as client:
        assert client.get("/v1/runs", headers={"host": session["host"]}).status_code == 200
        refused(
            client.get("/v1/runs", headers={"host": session["host"].replace(str(server.port), "1")}), 403, "FORBIDDEN"
        )
        # At the server itself: what another program revokes takes a few seconds on a shared database.
        client.delete("/v1/tokens/label-revoked").raise_for_status()
        answers = [client.get("/v1/runs", headers={"host": host}) for host in (session["host"], unknown)]
        entered = [
            client.post("/enter", data={"token": server.token}, headers={"host": host})
            for host in (session["host"], unknown)
        ]
    for first, second in (answers, entered):
        refused(first, 403, "FORBIDDEN")
        assert (first.status_code, first.json()["detail"]) == (second.status_code, second.json()["detail"])
    with calling(server.url, None) as client:
        refused(client.get("/v1/runs", headers=session), 401, "UNAUTHORIZED")


def test_the_holder_of_a_link_learns_no_name_of_the_page(server: Server, tokens: Tokens) -> None:
    token = tokens.make("label-linking", (AccessScope.READ, AccessScope.ANSWER, AccessScope.SUBMIT), None)
    names = [each["host"].partition(".")[0] for each in (server.session(), server.session(token))]
    with calling(server.url, None, **server.session(token)) as maker:
        url = maker.post(f"/v1/runs/{waiting(maker)}/interaction/link", json={}).json()["url"]
    assert url.startswith(f"http://127.0.0.1:{server.port}/v1/answers/")
    link = url.rpartition("/")[2]
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SEC) as holder:
        for path in (
            f"/v1/answers/{link}",
            f"/answers/{link}",
            f"/answers/{link}/nothing",
            f"/answers/{link}x",
            f"/enter?code={link}",
            f"/enter?token={link}",
            "/v1/sessions",
        ):
            for accept in ("text/html", "application/json"):
                answer = holder.get(path, headers={"accept": accept, "origin": server.url})
                assert not [name for name in names if name in answer.text + str(answer.headers)], path
                assert "set-cookie" not in answer.headers
        assert holder.get(f"/v1/answers/{link}").status_code == 200


def test_a_label_follows_its_token_and_is_worked_out_once() -> None:
    digests, valid, reads = {"a"}, {"a", "b"}, 0

    def current() -> frozenset[str]:
        nonlocal reads
        reads += 1
        return frozenset(digests)

    labels = PageLabels(KEY, digests=current, is_valid=lambda each: each in valid)
    first, second = labels.of("a"), labels.of("b")
    assert labels.has(first)
    assert not labels.has(second), "no such token yet"
    digests.add("b")
    assert labels.has(second)
    before = reads
    assert labels.has(first)
    assert labels.has(second)
    assert reads == before, "a known label costs no look at all tokens"
    valid.remove("a")
    assert not labels.has(first), "expired"
    assert labels.of("a") != PageLabels(b"other", digests=current, is_valid=lambda _: True).of("a")


@pytest.mark.sqlite
def test_the_label_of_an_expired_token_is_no_longer_answered(own_world: World) -> None:
    now = datetime.now(UTC)
    with Server(own_world) as server:
        tokens = Tokens(own_world.records, lambda: now)
        host = server.session(tokens.make("short", (AccessScope.READ,), now + timedelta(hours=1)))["host"]
        path = own_world.data_dir / "tokens.json"
        with calling(server.url, server.token) as client:
            assert client.get("/v1/runs", headers={"host": host}).status_code == 200
            (kept,) = tokens.all()
            assert kept.expires_at is not None
            past = (now - timedelta(hours=1)).isoformat().replace("+00:00", "Z")
            written = kept.expires_at.isoformat().replace("+00:00", "Z")
            assert written in path.read_text()
            path.write_text(path.read_text().replace(written, past))
            refused(client.get("/v1/runs", headers={"host": host}), 403, "FORBIDDEN")
            path.write_text("damaged")
            refused(client.get("/v1/runs", headers={"host": host}), 403, "FORBIDDEN")
            assert client.get("/v1/runs", headers={"host": server.session()["host"]}).status_code == 200
