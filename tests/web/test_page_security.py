"""The page and strangers: who sees what, with which headers, and that no text of an engine is ever run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from hostile_texts import TEXTS
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, Site, signed_in

import support.api as wire
from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope
from support.data_folder import World
from support.server import Server

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGES = (
    "/",
    "/runs",
    "/new?skill=asking",
    "/skills",
    "/skills/asking",
    "/engines",
    "/dashboard",
    "/sessions",
    "/nothing",
    "/runs/nothing",
)
STATIC = Path(__file__).resolve().parents[2] / "src/askback/web/static"
FIELDS = TEXTS[:60]
"""A form has at most a hundred fields."""
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


@pytest.fixture
def stranger(furnished_server: FurnishedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=furnished_server.url, headers=HTML, timeout=wire.PATIENCE_SEC) as client:
        yield client


@pytest.fixture
def known(furnished_server: FurnishedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=furnished_server.url, headers=HTML, timeout=wire.PATIENCE_SEC) as client:
        client.headers.update(furnished_server.session())
        yield client


# Who comes in.


@pytest.mark.parametrize("path", [*PAGES, "/static/app.css", "/static/nothing.js"])
def test_a_browser_without_a_token_is_told_how_to_get_in(stranger: httpx.Client, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert 'action="/enter"' in answer.text
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rest = "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    assert answer.headers["content-security-policy"] == f"default-src 'none'; style-src 'sha256-{allowed}'; {rest}"
    assert "<script" not in answer.text
    assert not re.search(r'(src|href)="(?!/)', answer.text)


def test_whoever_does_not_ask_for_a_page_gets_a_problem(stranger: httpx.Client) -> None:
    for path, accept in (
        ("/", "*/*"),
        ("/runs", "application/json"),
        ("/v1/runs", "text/html"),
        ("/static/app.css", "text/css"),
    ):
        answer = stranger.get(path, headers={"accept": accept})
        assert (answer.status_code, answer.json()["code"]) == (401, "UNAUTHORIZED")
    assert stranger.post("/", headers=HTML).json()["code"] == "UNAUTHORIZED"


def test_the_token_is_typed_at_the_door(furnished_server: FurnishedServer, browser: Browser) -> None:
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.goto(f"{furnished_server.url}/runs")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("This token is invalid or has expired.")
    page.get_by_label("Token").fill(furnished_server.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    assert furnished_server.token not in page.url
    context.close()


def test_a_page_is_for_whoever_has_its_scope(furnished_server: FurnishedServer) -> None:
    tokens = Tokens(furnished_server.world.records, now)
    seen: dict[str, list[int]] = {}
    for scope in (AccessScope.READ, AccessScope.ANSWER, AccessScope.SUBMIT):
        token = tokens.make(f"only-{scope}", (scope,), None)
        headers = HTML | furnished_server.session(token)
        with httpx.Client(base_url=furnished_server.url, headers=headers) as client:
            answers = [client.get(path) for path in ("/", "/runs", "/skills", "/new?skill=asking")]
        seen[scope] = [answer.status_code for answer in answers]
        for answer in answers:
            assert (answer.status_code == 403) == ("<h1>No access with this token</h1>" in answer.text)
    assert seen == {
        "read": [200, 200, 200, 403],
        "answer": [200, 403, 403, 403],
        "submit": [403, 403, 200, 200],
    }


# What every page has.


class _Inline(HTMLParser):
    """Finds styles and scripts in the markup of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "style":
            self.found.append(tag)
        for name, value in attrs:
            if name == "style" or name.startswith("on") or (value or "").strip().lower().startswith("javascript:"):
                self.found.append(f"{tag} {name}={value}")


def test_inline_styles_and_scripts_would_be_found() -> None:
    parsed = _Inline()
    parsed.feed('<style></style><p style="x">&lt;b onclick=1&gt; javascript:</p><a href="javascript:1" onclick=2>')
    assert parsed.found == ["style", "p style=x", "a href=javascript:1", "a onclick=2"]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_the_whole_policy_and_nothing_inline(known: httpx.Client, path: str) -> None:
    answer = known.get(path)
    assert answer.status_code == (404 if "nothing" in path else 200)
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.headers["x-content-type-options"], answer.headers["x-frame-options"]) == ("nosniff", "DENY")
    parsed = _Inline()
    # Texts of other tests are on the page too: only markup counts.
    parsed.feed(answer.text)
    assert parsed.found == []
    for attributes, content in re.findall(r"<script([^>]*)>(.*?)</script>", answer.text, re.DOTALL):
        assert content == "" or 'type="application/json"' in attributes
        assert content == "" or json.loads(content)


def test_files_of_the_page_have_their_types_and_are_fetched_once(known: httpx.Client) -> None:
    kinds = {
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".svg": "image/svg+xml",
        ".png": "image/png",
    }
    for path in sorted(STATIC.iterdir()):
        answer = known.get(f"/static/{path.name}")
        assert (answer.status_code, answer.content) == (200, path.read_bytes())
        assert answer.headers["content-type"] == kinds[path.suffix]
        assert answer.headers["cache-control"] == "private, no-cache"
        again = known.get(f"/static/{path.name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    assert known.get("/static/..%2fapp.py").status_code == 404
    assert known.get("/static/nothing.js").status_code == 404


def test_an_address_that_does_not_exist_is_told_each_in_his_way(known: httpx.Client) -> None:
    assert "Not found" in known.get("/nothing").text
    for path in ("/nothing", "/v1/nothing"):
        assert known.get(path, headers={"accept": "*/*"}).json()["code"] == "NOT_FOUND"
    assert known.post("/runs").status_code == 404


def test_scripts_never_make_html_of_texts() -> None:
    ways = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc")
    scripts = sorted(STATIC.glob("*.js"))
    assert len(scripts) > 8
    assert {path.name: found for path in scripts if (found := ways.findall(path.read_text()))} == {}
    assert [path.name for path in scripts if re.search(r"https?://(?!www\.w3\.org)", path.read_text())] == []


# A hundred hostile texts in every place.


def hostile_world(folder: Path) -> World:
    world = World(folder)
    everything = "\n".join(TEXTS)
    tools = [{"tool": {"name": text, "detail": text, "output": text}} for text in TEXTS]
    ask = {
        "ask": {"interaction_id": "q", "prompt": everything, "options": list(TEXTS), "context": {"texts": list(TEXTS)}}
    }
    named = {text: {"type": "string", "title": text, "description": text} for text in FIELDS}
    form = {"type": "object", "properties": {**named, "choice": {"type": "string", "enum": list(TEXTS)}}}
    schema_ask = {"ask": {"interaction_id": "form", "prompt": "fill in", "response_schema": form}}
    says = [{"say": text} for text in TEXTS]
    files = [{"write": {"path": f"artifacts/{name}", "text": everything}} for name in file_names()]
    files += [
        {"write": {"path": f"artifacts/all{ending}", "text": "\n\n".join(TEXTS)}} for ending in (".md", ".html", ".svg")
    ]
    result = {"finish": {"colour": everything, **dict.fromkeys(TEXTS, "x"), "texts": list(TEXTS)}}
    world.skill([*says, *tools, ask], [schema_ask], [*files, result], name="hostile")
    world.skill([{"misbehave": "api_error", "message": everything}], name="failing")
    front = json.dumps({"name": "hostile", "description": " ".join(TEXTS)[:1000]}, ensure_ascii=False)
    (world.folder / "skills/hostile/SKILL.md").write_text(f"---\n{front}\n---\n" + "\n\n".join(TEXTS))
    return world


def file_names() -> list[str]:
    """Those that can be a file's name."""
    fit = [text.strip() for text in TEXTS if "/" not in text and "\n" not in text and len(text.encode()) < 200]
    return [f"{name}.md" for name in fit if name]


class Harmless:
    """Opens pages and notes whatever of a text was run, or tried to."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.dialogs: list[str] = []
        site.context.add_init_script(_WATCH)
        site.context.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))

    def open(self, path: str) -> Page:
        page = self.site.open(path)
        expect(page.get_by_role("main")).to_be_visible()
        return page

    def check(self, page: Page, place: str, texts: Iterator[str] | tuple[str, ...] = TEXTS) -> None:
        """Nothing was run, and each text stands there as it is."""
        seen = page.locator(place).evaluate_all("all => all.map((each) => each.textContent).join('\\n')")
        assert [text for text in texts if flat(text) not in flat(seen)] == []
        self.unharmed(page)

    def check_markdown(self, page: Page, place: str) -> None:
        """Texts without marks stand there as they are, and marks make nothing but text and links to websites."""
        self.check(page, place, tuple(text for text in TEXTS if not _MARKS.search(text)))
        links: list[str] = page.eval_on_selector_all(f"{place} a", "all => all.map((each) => each.protocol)")
        assert set(links) <= {"http:", "https:", "mailto:"}
        assert page.locator(place).locator("script, img, iframe, style, form, input, svg, object").count() == 0
        styled = "all => all.flatMap((each) => [...each.attributes].map(({ name }) => name))"
        names = set(page.eval_on_selector_all(f"{place} .prose *", styled))
        assert names <= {"href", "title", "target", "rel", "start", "tabindex"}

    def unharmed(self, page: Page) -> None:
        assert page.evaluate("[window.__pwned ?? null, window.violations]") == [None, []]
        assert self.dialogs == []


_MARKS = re.compile(r"[`\\[]|__.*__|\*.*\*|~~")


def flat(text: str) -> str:
    """Without the spaces at the ends of lines, which a message's text does not keep."""
    return re.sub(r"\s+", " ", text).strip()


def test_no_text_of_an_engine_is_run_anywhere(tmp_path: Path, browser: Browser) -> None:
    assert len(TEXTS) >= 100
    with Server(hostile_world(tmp_path)) as server, signed_in(server, browser) as site:
        harmless = Harmless(site)
        run_id = wire.waiting(site.api, "hostile")
        _asked(harmless, run_id)
        assert wire.reply(site.api, run_id, "\n".join(TEXTS), "q").status_code == 202
        wire.reach(site.api, run_id, "waiting_user")
        page = harmless.open("/")
        expect(page.locator("#inbox form.answer")).to_be_visible()
        harmless.check(page, "#inbox form.answer")
        page.close()
        assert wire.reply(site.api, run_id, dict.fromkeys(FIELDS, "x"), "form").status_code == 202
        wire.over(site.api, run_id)
        _ended(harmless, run_id)
        _files(harmless, run_id)
        failed = wire.start(site.api, "failing")
        wire.over(site.api, failed)
        page = harmless.open(f"/runs/{failed}")
        expect(page.locator(".error-detail")).to_be_visible()
        harmless.unharmed(page)
        for path in ("/answered", "/skills", "/skills/hostile", "/new?skill=hostile", "/runs", "/dashboard"):
            harmless.unharmed(harmless.open(path))


def _asked(harmless: Harmless, run_id: str) -> None:
    page = harmless.open("/")
    expect(page.locator("#inbox .options")).to_be_visible()
    for place in ("#inbox .prompt", "#inbox .options"):
        harmless.check(page, place)
    harmless.check_markdown(page, "#inbox .context")
    page.goto(f"{harmless.site.url}/runs/{run_id}")
    expect(page.locator("#pending form")).to_be_visible()
    expect(page.locator("#progress")).to_have_text(re.compile(r"^\d+ events$"))
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    expect(page.locator(".tool-body").last).to_be_attached()
    harmless.check_markdown(page, ".message")
    for place in (".tool-name", ".tool-body", ".pinned .prompt", "#pending form"):
        harmless.check(page, place)
    page.close()


def _ended(harmless: Harmless, run_id: str) -> None:
    page = harmless.open(f"/runs/{run_id}")
    expect(page.locator("#result dl").first).to_be_visible()
    expect(page.locator("#progress")).to_have_text(re.compile(r"^\d+ events$"))
    harmless.check(page, "#result")
    harmless.check(page, ".reply")
    harmless.check(page, "#files", tuple(file_names()))
    page.get_by_role("button", name="Show as JSON").click()
    harmless.unharmed(page)
    page.close()


def _files(harmless: Harmless, run_id: str) -> None:
    base = f"/runs/{run_id}/preview?path="
    for name in ("all.html", "all.svg"):
        page = harmless.open(base + name)
        harmless.check(page, "pre")
        page.close()
    page = harmless.open(f"{base}all.md")
    harmless.unharmed(page)
    links: list[str] = page.eval_on_selector_all("main article a", "all => all.map((each) => each.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    assert page.locator("main article").locator("script, img, iframe, style, form, input, svg").count() == 0
    page.close()
    listed: list[dict[str, Any]] = harmless.site.api.get(f"/v1/runs/{run_id}/artifacts").json()["items"]
    page = harmless.open(f"/runs/{run_id}")
    links = page.eval_on_selector_all("#files .file-open", "all => all.map((each) => each.href)")
    assert len(links) == len(listed)
    for address in links[:10]:
        assert harmless.site.api.get(address.removeprefix(harmless.site.url), headers=HTML).status_code == 200
    for name in ("all.html", "all.svg", "all.md"):
        row = page.locator("#files > li", has=page.locator(".file-name", has_text=re.compile(f"^{re.escape(name)}$")))
        row.locator("summary").click()
        expect(row.locator(".file-look:not([aria-busy])")).to_be_visible()
    assert page.locator(".file-look").locator("script, img, iframe, style, form, input, svg").count() == 0
    harmless.unharmed(page)
    page.close()
