"""Every page for everybody: names for what can be used, landmarks, headings, contrast, and the keyboard's way through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from accessibility import complaints, focus_complaints
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, Site, signed_in

import support.api as wire

PHONE = {"width": 360, "height": 740}
PAGES = (
    "/",
    "/?q=nothing-has-this-word",
    "/answered",
    "/runs",
    "/new?skill=reads",
    "/skills",
    "/skills/reads",
    "/engines",
    "/dashboard",
    "/sessions",
    "/people",
    "/audit",
    "/nothing",
)


@pytest.fixture(scope="module")
def runs(furnished_server: FurnishedServer) -> list[str]:
    """The pages of a run that waits, one that is over, one of its files, and the form to run it again."""
    with wire.calling(furnished_server.url, furnished_server.token) as api:
        waiting = wire.waiting(api)
        done = wire.waiting(api)
        folder: Path = furnished_server.world.data_dir / "runs" / done / "work" / "artifacts"
        folder.mkdir(exist_ok=True)
        (folder / "note.md").write_text("# A\n\ntext [link](https://a.example)\n\n## B\n\n`code`")
        wire.reply(api, done, "red")
        wire.over(api, done)
    again = f"/new?skill=asking&again={done}"
    return [f"/runs/{waiting}", f"/runs/{done}", f"/runs/{done}/preview?path=note.md", again]


def settled(site: Site, path: str) -> Page:
    page = site.open(path)
    expect(page.get_by_role("main")).to_be_visible()
    page.wait_for_load_state("load")
    if path.startswith("/runs/") and "preview" not in path:
        expect(page.locator("#progress")).to_have_text(re.compile(r"^\d"))
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    return page


@pytest.mark.parametrize(
    ("theme", "language"), [("light", "en-GB"), pytest.param("dark", "zh-CN", marks=pytest.mark.long)]
)
def test_every_page_can_be_read_and_used_by_everybody_at_a_desk_and_on_a_phone(
    furnished_server: FurnishedServer, browser: Browser, runs: list[str], theme: str, language: str
) -> None:
    found: dict[str, list[str]] = {}
    with signed_in(furnished_server, browser, color_scheme=theme, locale=language) as site:
        for path in (*PAGES, *runs):
            page = settled(site, path)
            found[path] = complaints(page)
            page.set_viewport_size(PHONE)
            wide = page.evaluate("document.documentElement.scrollWidth")
            found[path] += [f"{wide} px wide on a phone"] * (wide > PHONE["width"])
            page.close()
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.long
def test_the_keyboard_goes_through_every_page_in_its_order(site: Site, runs: list[str]) -> None:
    found: dict[str, list[str]] = {}
    for path in ("/", "/new?skill=reads", runs[0]):
        page = settled(site, path)
        found[path] = focus_complaints(page, 120)
        page.close()
    assert {path: each for path, each in found.items() if each} == {}


def test_the_first_stop_leads_past_the_menu(site: Site) -> None:
    page = settled(site, "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_the_door_can_be_used_by_everybody(furnished_server: FurnishedServer, browser: Browser) -> None:
    for theme in ("light", "dark"):
        context = browser.new_context(color_scheme=theme)
        page = context.new_page()
        page.goto(f"{furnished_server.url}/")
        # It has neither a header nor a menu: there is nowhere to go from there.
        told = [each for each in complaints(page) if not each.startswith(("not one header", "not one nav"))]
        assert told == []
        context.close()
