"""A server with skills of every kind, and a browser that is signed in there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from askback.skills.library import DEMO
from support.data_folder import ASK, FINISH, World
from support.server import Server

READS = {
    "type": "object",
    "required": ["document", "count"],
    "properties": {
        "document": {"type": "string", "x-input-source": "file", "description": "What to read."},
        "count": {"type": "integer", "minimum": 1, "maximum": 10},
        "kind": {"enum": ["short", "long"]},
    },
    "if": {"properties": {"count": {"minimum": 5}}},
    "then": {"required": ["kind"]},
}
"""The last part is beyond what the page checks itself."""
LANGUAGE = {
    "type": "object",
    "properties": {
        "language": {"type": "string", "default": "English"},
        "api_key": {"type": "string", "format": "password"},
    },
}
TRIP = {
    "interaction_id": "trip",
    "prompt": "Where do you want to go?",
    "kind": "form",
    "context": {"budget": 800, "note": "By **train**, if possible.\n\n- no flights"},
    "response_schema": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    },
}
PATIENCE_MS = 60_000
BOTH = {"id": "reads", "version": "0.3.0", "execution_modes": ["auto", "interactive"]}


def furnish(world: World) -> None:
    """Skills for every page: the demo's, one with files, a plain one, one that asks, one that waits for a file `go` in
    its folder, one that asks twice and writes files, and a broken one.
    """
    world.skill([ASK], [FINISH], name="asking")
    world.skill([{"say": "ok"}, {"finish": {"colour": "red"}}], name="plain")
    world.skill([{"ask": {"interaction_id": "plan", "prompt": "Which plan?", "kind": "file"}}], [FINISH], name="filing")
    world.skill([{"ask": TRIP}], [{"finish": {"colour": "red"}}], name="trip-form")
    world.skill(
        [{"ask": {**ASK["ask"], "kind": "secret", "options": []}}], [{"finish": {"colour": "red"}}], name="secret"
    )
    more = [wrote("b.txt", "it has grown"), wrote("a.txt", "it has come")]
    world.skill([wrote("b.txt", "small"), ASK], [*more, ASK], [FINISH], name="writing")
    world.skill([{"wait_for": "go"}, {"finish": {"colour": "red"}}], name="gated")
    world.skill(
        [{"say": "ok"}, {"finish": {"colour": "{{input.document}}"}}],
        name="reads",
        runner=BOTH,
        schemas={"input": READS, "parameter": LANGUAGE},
    )
    shutil.copytree(DEMO, world.folder / "skills" / DEMO.name)
    broken = world.folder / "skills" / "broken"
    broken.mkdir()
    (broken / "SKILL.md").write_text("no front matter")


def wrote(name: str, text: str) -> dict[str, Any]:
    """A step that leaves a file."""
    return {"write": {"path": f"artifacts/{name}", "text": text}}


class FurnishedServer(Server):
    """Knows its world, for a look at what came to be there."""

    def __init__(self, world: World) -> None:
        furnish(world)
        super().__init__(world)
        self.world = world


class Site:
    """What a test drives: pages of one server in one browser context, and the API beside them."""

    def __init__(self, server: Server, context: BrowserContext, url: str) -> None:
        self.server = server
        self.url = url
        """Where the page lives."""
        self.context = context
        headers = {"Authorization": f"Bearer {server.token}"}
        self.api = httpx.Client(base_url=server.url, headers=headers, timeout=PATIENCE_MS / 1000)
        self.mistakes: list[str] = []

    def open(self, path: str) -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.mistakes.append(str(error)))
        page.on("console", lambda message: self._heard(message))
        page.goto(self.url + path)
        return page

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.mistakes.append(message.text)


def be_patient(context: BrowserContext) -> None:
    """A browser, a server and its engines share this machine with other tests: what is waited for may take long."""
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)


def sign_in(server: Server, context: BrowserContext, *, scripts: bool = True) -> str:
    """Open the address that the server prints; where that led to."""
    page = context.new_page()
    page.goto(server.told["page"])
    if not scripts:
        page.locator("#onward").click()
    page.wait_for_url(re.compile(r"^http://\w+\.localhost:\d+/$"))
    url = page.url.rstrip("/")
    page.close()
    return url


def take_session(server: Server, context: BrowserContext) -> str:
    """Sign in without a page, which would cost more than many a test: the cookie is that of a session by HTTP."""
    headers = server.session()
    url = f"http://{headers['host']}"
    name, _, value = headers["cookie"].partition("=")
    context.add_cookies([{"name": name, "value": value, "url": url, "httpOnly": True, "sameSite": "Strict"}])
    return url


def press(button: Locator) -> None:
    """Click a button that answers a question; again, as its user does, if it has just moved and the page said so."""
    button.click()
    moved = button.page.locator(".toast", has_text="just appeared or moved")
    while moved.count():
        expect(moved).to_have_count(0)
        button.click()


@contextmanager
def signed_in(server: Server, browser: Browser, *, by_page: bool = False, **how: Any) -> Iterator[Site]:
    """Ends with a look at whether the pages' scripts did well. `by_page`: signs in as a user does."""
    context = browser.new_context(**({"locale": "en-GB", "timezone_id": "UTC"} | how))
    be_patient(context)
    scripts = how.get("java_script_enabled", True)
    url = sign_in(server, context, scripts=scripts) if by_page else take_session(server, context)
    site = Site(server, context, url)
    try:
        yield site
        assert site.mistakes == []
    finally:
        site.api.close()
        context.close()
