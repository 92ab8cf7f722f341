"""Browser sessions: what they are bound to, when they end, and who may end them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from askback.access.grants import Grant
from askback.access.sessions import IDLE, MAX_AGE, MAX_PER_TOKEN, Sessions, browser
from askback.access.tokens import Tokens
from askback.core.access import AccessScope
from askback.fs.records import Records
from askback.http.sign_in import CODE_SEC, Codes
from support.api import PATIENCE_SEC, calling, refused, waiting, within
from support.data_folder import World, run_async
from support.program import askback
from support.server import Server

READ = (AccessScope.READ,)
ADMIN = Grant(name="main", scopes=frozenset({AccessScope.ADMIN}), token_digest="d" * 64)


@pytest.fixture(scope="module")
def tokens(server: Server, furnished: World) -> Tokens:
    return Tokens(furnished.records, lambda: datetime.now(UTC))


def led(server: Server, host: str = "127.0.0.1") -> tuple[str, str]:
    """The host name of the page and a code for it, as somebody with the token is led there."""
    headers = {"host": f"{host}:{server.port}"}
    answer = httpx.post(f"{server.url}/enter", data={"token": server.token}, headers=headers, timeout=PATIENCE_SEC)
    assert "set-cookie" not in answer.headers
    origin, code = re.findall(r'href="(http://[^"/]+)/enter\?code=([^"]+)"', answer.text)[0]
    return urlsplit(origin).netloc, code


def redeemed(server: Server, code: str, host: str) -> httpx.Response:
    return httpx.get(f"{server.url}/enter", params={"code": code}, headers={"host": host}, timeout=PATIENCE_SEC)


# Codes.


def test_a_code_is_used_once(server: Server) -> None:
    host, code = led(server)
    assert "set-cookie" in redeemed(server, code, host).headers
    again = redeemed(server, code, host)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers


@pytest.mark.parametrize("name", ["localhost", "[::1]"])
def test_a_code_is_for_the_name_of_the_page_and_for_the_one_it_was_asked_at(server: Server, name: str) -> None:
    host, code = led(server)
    assert redeemed(server, code, f"{name}:{server.port}").status_code == 401
    assert redeemed(server, code, host).status_code == 401, "it is used up"


def test_where_the_name_of_the_page_cannot_be_reached_the_session_is_for_this_name_alone(server: Server) -> None:
    host, code = led(server)
    here = f"127.0.0.1:{server.port}"
    cookie = redeemed(server, code, here).headers["set-cookie"].partition(";")[0]
    with calling(server.url, None, cookie=cookie) as client:
        assert client.get("/v1/runs", headers={"host": here}).status_code == 200
        for other in (host, f"localhost:{server.port}"):
            refused(client.get("/v1/runs", headers={"host": other}), 401, "UNAUTHORIZED")


def test_a_cookie_that_holds_a_token_is_removed(server: Server) -> None:
    old = {"cookie": f"askback_token={server.token}"}
    led = httpx.post(f"{server.url}/enter", data={"token": server.token}, headers=old, timeout=PATIENCE_SEC)
    assert led.headers["set-cookie"].startswith('askback_token="";')
    assert "Max-Age=0" in led.headers["set-cookie"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
def test_whoever_comes_by_a_loopback_name_is_led_to_the_name_of_the_page(server: Server, name: str) -> None:
    host, _ = led(server, name)
    assert re.fullmatch(rf"[a-z2-7]{{26}}\.localhost:{server.port}", host)


def test_a_code_lasts_a_short_time_and_only_so_many_are_kept() -> None:
    now = 0.0
    codes = Codes(lambda: now)
    first = codes.make("digest", frozenset({"a"}))
    late = codes.make("digest", frozenset({"a"}))
    found = codes.take(first, "a")
    assert found is not None
    assert found.token_digest == "digest"
    assert codes.take(first, "a") is None
    now = CODE_SEC
    assert codes.take(late, "a") is None
    oldest = codes.make("digest", frozenset({"a"}))
    for _ in range(100):
        codes.make("digest", frozenset({"a"}))
    assert codes.take(oldest, "a") is None


def test_the_name_is_probed_from_our_own_pages_only(server: Server) -> None:
    origins = {
        f"http://127.0.0.1:{server.port}": True,
        f"http://localhost:{server.port}": True,
        f"https://127.0.0.1:{server.port}": False,
        "http://127.0.0.1:1": False,
        "http://evil.example": False,
        "null": False,
    }
    for origin, ours in origins.items():
        answer = httpx.get(f"{server.url}/enter/reachable", headers={"origin": origin}, timeout=PATIENCE_SEC)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers.get("access-control-allow-origin") == (origin if ours else None)
        assert "access-control-allow-credentials" not in answer.headers


def test_a_form_that_is_too_large_or_from_another_origin_signs_nobody_in(server: Server) -> None:
    with calling(server.url, None) as stranger:
        large = {"token": server.token, "more": "x" * 5000}
        refused(stranger.post("/enter", data=large), 401, "UNAUTHORIZED")
        foreign = {"origin": "http://127.0.0.1:1"}
        refused(stranger.post("/enter", data={"token": server.token}, headers=foreign), 403, "FORBIDDEN")


# The end of a session.


def opens(server: Server, session: dict[str, str]) -> bool:
    with calling(server.url, None, **session) as client:
        return client.get("/v1/sessions").status_code == 200


def test_a_session_ends_with_its_token_and_has_its_scopes(server: Server, tokens: Tokens) -> None:
    session = server.session(tokens.make("answers-only", (AccessScope.ANSWER,), None))
    with calling(server.url, None, **session) as client:
        assert client.get("/v1/inbox").status_code == 200
        refused(client.get("/v1/runs"), 403, "SCOPE_MISSING")
    tokens.revoke("answers-only")
    assert not opens(server, session)
    tokens.make("answers-only", (AccessScope.ANSWER,), None)
    assert not opens(server, session), "another token of the same name is another token"


def test_a_session_ends_when_its_token_expires(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    tokens = Tokens(Records(tmp_path), lambda: now)
    text = tokens.make("short", (AccessScope.READ,), now + timedelta(hours=1))
    sessions = Sessions(Records(tmp_path), lambda: now, tokens.find)
    (kept,) = tokens.all()
    grant = tokens.find(kept.digest)
    assert grant is not None
    session = sessions.make(grant, host="a", user_agent="").secret
    assert sessions.find(session, "a") is not None
    now += timedelta(hours=1)
    assert sessions.find(session, "a") is None
    assert sessions.all() == []
    assert text not in (tmp_path / "sessions.json").read_text()


def test_a_session_outlives_a_restart_and_ends_with_another_main_token(own_world: World) -> None:
    first, second = (
        {"ASKBACK_SERVER__TOKEN": "one-token-0123456789-abcdef"},
        {"ASKBACK_SERVER__TOKEN": "two-token-0123456789-abcdef"},
    )
    with Server(own_world, env=first) as server:
        session = server.session()
        port = server.port
        server.stop()
    with Server(own_world, env=first, port=port) as server:
        assert opens(server, session)
        server.stop()
    with Server(own_world, env=second, port=port) as server:
        assert not opens(server, session)


def test_a_session_ends_when_it_is_idle_and_after_its_longest_time(tmp_path: Path) -> None:
    start = now = datetime(2026, 1, 1, tzinfo=UTC)
    sessions = Sessions(Records(tmp_path), lambda: now, lambda _: ADMIN)
    idle, used = (sessions.make(ADMIN, host="a", user_agent="").secret for _ in range(2))
    while now < start + IDLE:
        now += timedelta(days=1)
        assert sessions.find(used, "a") is not None
    assert sessions.find(idle, "a") is None
    sessions.flush()
    assert len(json.loads((tmp_path / "sessions.json").read_text())) == 1
    while now < start + MAX_AGE - timedelta(days=1):
        now += timedelta(days=1)
        assert sessions.find(used, "a") is not None
    now = start + MAX_AGE
    assert sessions.find(used, "a") is None


def test_when_a_session_was_used_is_written_later_and_kept(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    path = tmp_path / "sessions.json"
    sessions = Sessions(Records(tmp_path), lambda: now, lambda _: ADMIN)
    text = sessions.make(ADMIN, host="a", user_agent="").secret
    written = path.read_bytes()
    now += timedelta(days=1)
    assert sessions.find(text, "a") is not None
    assert path.read_bytes() == written
    assert [each.last_seen_at for each in sessions.all()] == [now]
    sessions.flush()
    (kept,) = Sessions(Records(tmp_path), lambda: now, lambda _: ADMIN).all()
    assert kept.last_seen_at == now


def test_so_many_sessions_of_a_token_are_kept_and_its_own_one_not_used_for_longest_ends(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    sessions = Sessions(Records(tmp_path), lambda: now, lambda _: ADMIN)
    anna = sessions.make(Grant(name="anna", scopes=frozenset(), token_digest="a" * 64), host="a", user_agent="")
    made = []
    for _ in range(MAX_PER_TOKEN + 1):
        now += timedelta(seconds=1)
        made.append(sessions.make(ADMIN, host="a", user_agent="").secret)
    assert [sessions.find(text, "a") is None for text in (made[0], made[1], made[-1])] == [True, False, False]
    assert sessions.find(anna.secret, "a") is not None, "it is of another token"
    assert len(sessions.all()) == MAX_PER_TOKEN + 1


def test_no_token_signs_another_one_out_and_an_end_for_lack_of_room_is_in_the_log(own_world: World) -> None:
    with Server(own_world) as server, calling(server.url, server.token) as admin:
        phone = server.session(Tokens(own_world.records, lambda: datetime.now(UTC)).make("bob", READ, None))
        first = server.session()
        for _ in range(MAX_PER_TOKEN):
            server.session()
        assert [opens(server, each) for each in (phone, first)] == [True, False]
        ended = admin.get("/v1/audit", params={"action": "session.end"}).json()["items"]
        started = admin.get("/v1/audit", params={"action": "session.start", "actor": "main", "limit": 200}).json()
        assert [(each["actor"]["name"], each["object"]) for each in ended] == [("main", started["items"][-1]["object"])]


def test_a_session_is_kept_as_a_digest_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    sessions = Sessions(Records(tmp_path), lambda: datetime.now(UTC), lambda _: ADMIN)
    text = sessions.make(ADMIN, host="a", user_agent="").secret
    assert text not in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    for broken in (b"", b"{", b'[{"id": 1}]', b"\xff"):
        path.write_bytes(broken)
        assert sessions.find(text, "a") is None


# Signing in again, and the way to the page that was asked for.


def signed_in_headers(server: Server, **further: str) -> tuple[dict[str, str], str]:
    """A browser with a session at the name of the page, and a new code for it."""
    session = server.session()
    _, code = led(server)
    return session | further, code


def test_signing_in_again_ends_the_session_that_the_browser_had(server: Server) -> None:
    old, code = signed_in_headers(server)
    other = server.session()
    entered = httpx.get(f"{server.url}/enter", params={"code": code}, headers=old, timeout=PATIENCE_SEC)
    new = {"host": old["host"], "cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert [opens(server, each) for each in (old, new, other)] == [False, True, True]


def test_a_session_of_another_host_is_not_ended(tmp_path: Path) -> None:
    sessions = Sessions(Records(tmp_path), lambda: datetime.now(UTC), lambda _: ADMIN)
    old = sessions.make(ADMIN, host="a", user_agent="").secret
    sessions.make(ADMIN, host="b", user_agent="", instead_of=old)
    assert sessions.find(old, "a") is not None


def test_who_comes_from_another_name_is_led_once_through_this_one_so_that_the_cookie_comes_along(
    server: Server,
) -> None:
    host, code = led(server)
    headers = {"host": host, "sec-fetch-site": "cross-site"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_SEC) as browser:
        first = browser.get("/enter", params={"code": code})
        assert "set-cookie" not in first.headers
        assert f"url=/enter?code={code}&amp;direct=1" in first.text
        assert "Signed in" not in first.text
        assert "set-cookie" in browser.get("/enter", params={"code": code, "direct": "1"}).headers


def opened(server: Server, token: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{server.url}/enter", params={"token": token}, headers=headers, timeout=PATIENCE_SEC)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_signs_nobody_in_without_a_confirmation(server: Server, site: str) -> None:
    asked = opened(server, server.token, **{"sec-fetch-site": site, "accept-language": "en"})
    assert asked.status_code == 200
    assert "Sign in as main?" in asked.text
    assert "code=" not in asked.text
    assert "set-cookie" not in asked.headers
    origin = {"origin": server.url, "sec-fetch-site": "same-origin"}
    (token,) = re.findall(r'name="token" value="([^"]+)"', asked.text)
    confirmed = httpx.post(f"{server.url}/enter", data={"token": token}, headers=origin, timeout=PATIENCE_SEC)
    assert "/enter?code=" in confirmed.text
    assert opened(server, "wrong", **{"sec-fetch-site": site}).status_code == 401


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}])
def test_the_printed_address_signs_in_at_once(server: Server, headers: dict[str, str]) -> None:
    assert "/enter?code=" in opened(server, server.token, **headers).text


def test_nobody_takes_the_place_of_somebody_else_without_a_confirmation(server: Server, tokens: Tokens) -> None:
    session = server.session() | {"sec-fetch-site": "none", "accept-language": "en"}
    asked = opened(server, tokens.make("newcomer", READ, None), **session)
    assert "Sign in as newcomer?" in asked.text
    assert "set-cookie" not in asked.headers
    assert opens(server, session)
    assert "Sign in as" not in opened(server, server.token, **session).text


def test_the_page_that_leads_on_can_be_shown_again_until_its_code_is_used(server: Server) -> None:
    host, code = led(server)
    here = {"host": f"127.0.0.1:{server.port}", "accept": "text/html", "accept-language": "en"}
    with httpx.Client(base_url=server.url, headers=here, timeout=PATIENCE_SEC) as browser:
        for _ in range(2):
            again = browser.get("/enter", params={"step": code})
            assert "<h1>Almost there</h1>" in again.text
            assert f'href="/enter?code={code}"' in again.text
            assert "set-cookie" not in again.headers
        assert browser.get("/enter", params={"step": code}, headers={"host": host}).status_code == 401
        assert "set-cookie" in redeemed(server, code, host).headers
        for shown in ({"step": code}, {"code": code}):
            used = browser.get("/enter", params=shown)
            assert used.status_code == 401
            assert "This link has expired or was already used. Sign in again." in used.text
            assert "This token" not in used.text


def test_who_is_signed_in_and_shows_no_token_is_led_to_the_page(server: Server) -> None:
    session, used = signed_in_headers(server, accept="text/html")
    redeemed(server, used, session["host"])
    for params in ({}, {"code": used}, {"step": used}):
        answer = httpx.get(f"{server.url}/enter", params=params, headers=session, timeout=PATIENCE_SEC)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
    wrong = httpx.get(f"{server.url}/enter", params={"token": "wrong"}, headers=session, timeout=PATIENCE_SEC)
    assert wrong.status_code == 401
    stranger = httpx.get(f"{server.url}/enter", headers={"accept": "text/html"}, timeout=PATIENCE_SEC)
    assert 'role="alert"' not in stranger.text


@pytest.mark.parametrize(
    "form", ["  {token}\n", "http://127.0.0.1:1/enter?token={token}", " https://a.example/enter?token={token} "]
)
def test_what_is_pasted_may_have_spaces_around_it_or_be_the_link(server: Server, form: str) -> None:
    pasted = {"token": form.format(token=server.token)}
    assert httpx.post(f"{server.url}/enter", data=pasted, timeout=PATIENCE_SEC).status_code == 200


@pytest.mark.parametrize(
    "pasted", ["http://[", "http://a/enter", "http://a/other?token={token}", "ftp://a/enter?token={token}"]
)
def test_another_link_signs_nobody_in(server: Server, pasted: str) -> None:
    data = {"token": pasted.format(token=server.token)}
    assert httpx.post(f"{server.url}/enter", data=data, timeout=PATIENCE_SEC).status_code == 401


def landed(server: Server, target: str) -> str:
    """Where a sign-in leads whose form holds this target."""
    data = {"token": server.token, "next": target}
    answer = httpx.post(f"{server.url}/enter", data=data, timeout=PATIENCE_SEC)
    origin, code = re.findall(r'href="(http://[^"/]+)/enter\?code=([^"]+)"', answer.text)[0]
    page = redeemed(server, code, urlsplit(origin).netloc).text
    (refresh,) = re.findall(r'content="0; url=([^"]*)"', page)
    assert f'href="{refresh}"' in page
    return str(refresh)


@pytest.mark.parametrize("target", ["/", "/runs", "/runs/0123456789abcdef", "/new?skill=reads", "/runs?state=failed"])
def test_a_sign_in_leads_to_the_page_that_was_asked_for(server: Server, target: str) -> None:
    assert landed(server, target) == target
    asked = httpx.get(f"{server.url}{target}", headers={"accept": "text/html"}, timeout=PATIENCE_SEC)
    assert (f'name="next" value="{target}"' in asked.text) == (target != "/")
    mistyped = {"token": "wrong", "next": target}
    again = httpx.post(f"{server.url}/enter", data=mistyped, headers={"accept": "text/html"}, timeout=PATIENCE_SEC)
    assert (f'name="next" value="{target}"' in again.text) == (target != "/")


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "///evil.example/runs",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/runs\r\nx: y",
        "/runs\n",
        " /runs",
        "https://evil.example/runs",
        "javascript:alert(1)",
        "runs",
        "/runs;url=//evil.example",
        '/runs"><script>',
        "/runs?x=<script>",
        "/%2F/evil.example",
        "/enter?code=x",
        "/v1/runs",
        "/answers/x",
        "/static/app.css",
        "/nothing",
        "/runs#x",
        "/runs?" + "x" * 600,
        "",
    ],
)
def test_a_sign_in_leads_to_no_other_place(server: Server, target: str) -> None:
    assert landed(server, target) == "/"


# Listing and ending.


def test_a_session_is_listed_and_signs_itself_out(server: Server) -> None:
    session = server.session()
    with calling(server.url, None, **session) as client:
        (own,) = [each for each in client.get("/v1/sessions").json()["items"] if each["current"]]
        assert (own["token"], own["host"]) == ("main", session["host"])
        assert own["browser"].startswith("python-httpx")
        gone = client.delete(f"/v1/sessions/{own['id']}")
        assert gone.status_code == 204
        assert "askback_session_" in gone.headers["set-cookie"]
        assert "Max-Age=0" in gone.headers["set-cookie"]
    assert not opens(server, session)


def test_who_is_no_administrator_sees_and_ends_the_sessions_of_the_own_token_only(
    server: Server, tokens: Tokens, client: httpx.Client
) -> None:
    mine = server.session(tokens.make("mine", (AccessScope.READ,), None))
    theirs = server.session(tokens.make("theirs", (AccessScope.READ,), None))
    listed = {each["token"]: each["id"] for each in client.get("/v1/sessions").json()["items"]}
    with calling(server.url, None, **mine) as reader:
        assert {each["token"] for each in reader.get("/v1/sessions").json()["items"]} == {"mine"}
        refused(reader.delete(f"/v1/sessions/{listed['theirs']}"), 404, "SESSION_NOT_FOUND")
    assert opens(server, theirs)
    assert client.delete(f"/v1/sessions/{listed['theirs']}").status_code == 204
    assert not opens(server, theirs)
    refused(client.delete(f"/v1/sessions/{listed['theirs']}"), 404, "SESSION_NOT_FOUND")
    assert opens(server, mine)


def test_signing_out_everywhere_ends_every_session_of_the_own_token(server: Server, tokens: Tokens) -> None:
    token = tokens.make("everywhere", (AccessScope.READ,), None)
    first, second, other = server.session(token), server.session(token), server.session()
    with calling(server.url, None, **first) as reader:
        assert reader.delete("/v1/sessions").status_code == 204
    assert [opens(server, each) for each in (first, second, other)] == [False, False, True]


def test_another_page_cannot_sign_anybody_out(server: Server) -> None:
    session = server.session()
    with calling(server.url, None, **session) as client:
        for headers in ({"origin": server.url}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
            refused(client.delete("/v1/sessions", headers=headers), 403, "FORBIDDEN")
    assert opens(server, session)


def test_the_command_line_lists_and_ends_sessions_of_a_running_server(own_world: World) -> None:
    with Server(own_world) as server:
        first, second, third = (server.session() for _ in range(3))
        listed = askback(own_world, "sessions", "--json").json
        assert {each["token"] for each in listed} == {"main"}
        assert len(askback(own_world, "sessions").stdout.splitlines()) == 3
        with calling(server.url, None, **second) as client:
            (own,) = [each for each in client.get("/v1/sessions").json()["items"] if each["current"]]
        assert askback(own_world, "sessions", "revoke", own["id"]).code == 0
        assert [opens(server, each) for each in (first, second, third)] == [True, False, True]
        assert askback(own_world, "sessions", "revoke", own["id"]).code == 2
        assert askback(own_world, "sessions", "revoke").code == 2
        assert len(askback(own_world, "sessions", "revoke", "--all", "--json").json["revoked"]) == 2
        assert not opens(server, first)
        assert askback(own_world, "sessions", "--json").json == []


@pytest.mark.parametrize("kind", ["token", "session"])
def test_a_stream_ends_with_what_it_was_opened_with(server: Server, tokens: Tokens, kind: str) -> None:
    token = tokens.make(f"follows-{kind}", (AccessScope.READ,), None)
    headers = {"authorization": f"Bearer {token}"} if kind == "token" else server.session(token)
    with calling(server.url, None, accept="text/event-stream", **headers) as follower:
        with follower.stream("GET", "/v1/inbox") as stream:
            lines = stream.iter_lines()
            next(lines)
            if kind == "token":
                tokens.revoke(f"follows-{kind}")
            else:
                with calling(server.url, None, **headers) as same:
                    assert same.delete("/v1/sessions").status_code == 204
            for _ in lines:
                pass
        refused(follower.get("/v1/inbox"), 401, "UNAUTHORIZED")


def test_nothing_is_sent_to_a_stream_after_its_token_was_revoked(
    server: Server, client: httpx.Client, tokens: Tokens
) -> None:
    token = tokens.make("follows-no-more", READ, None)
    following = calling(server.url, token, accept="text/event-stream")
    with following as follower, follower.stream("GET", "/v1/inbox") as stream:
        lines = stream.iter_lines()
        assert any(line.startswith("data: ") for line in lines)
        tokens.revoke("follows-no-more")
        waiting(client)
        assert [line for line in lines if line.startswith("data: ")] == []


# Behind TLS.


@pytest.fixture
def behind_tls(own_world: World) -> tuple[World, str]:
    return own_world, '[server]\npublic_url = "https://Askback.example"\n'


def test_only_the_settings_make_a_cookie_secure(behind_tls: tuple[World, str]) -> None:
    async def main() -> None:
        async with within(*behind_tls) as (_, web, client):
            form = {"token": web.token}
            bare = httpx.AsyncClient(transport=client._transport, base_url="http://127.0.0.1:8765")
            entered = await bare.post("/enter", data=form, headers={"host": "askback.example"})
            cookie = entered.headers["set-cookie"]
            assert cookie.startswith("__Host-askback_session_8765=")
            parts = {part.strip() for part in cookie.split(";")[1:]}
            assert parts == {"HttpOnly", "SameSite=strict", "Path=/", "Secure"}
            pair = cookie.partition(";")[0]
            known = await bare.get("/v1/runs", headers={"host": "askback.example", "cookie": pair})
            assert known.status_code == 200
            for name, host in ((pair.removeprefix("__Host-"), "askback.example"), (pair, "127.0.0.1:8765")):
                other = await bare.get("/v1/runs", headers={"host": host, "cookie": name})
                assert other.status_code == 401
            forwarded = {"x-forwarded-proto": "https", "host": "127.0.0.1:8765"}
            led = await bare.post("/enter", data=form, headers=forwarded)
            assert "set-cookie" not in led.headers
            assert 'href="http://' in led.text

    run_async(main)


def test_a_link_begins_with_the_public_address_and_never_with_the_name_of_the_page(
    own_world: World, server: Server
) -> None:
    with Server(own_world, env={"ASKBACK_SERVER__PUBLIC_URL": "https://askback.example/"}) as public:
        with calling(public.url, public.token) as client:
            made = client.post(f"/v1/runs/{waiting(client)}/interaction/link", json={})
        assert made.json()["url"].startswith("https://askback.example/v1/answers/")
    session = server.session()
    with calling(server.url, None, **session) as client:
        made = client.post(f"/v1/runs/{waiting(client)}/interaction/link", json={})
    assert made.json()["url"].startswith(f"http://127.0.0.1:{server.port}/v1/answers/")


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox, Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", "Edge, Windows"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) Version/17 Safari/605.1.15", "Safari, macOS"),
        ("curl/8.5.0", "curl"),
        ("\x1b[31m<script>", ""),
        ("", ""),
    ],
)
def test_a_browser_is_told_in_short(agent: str, told: str) -> None:
    assert browser(agent) == told
