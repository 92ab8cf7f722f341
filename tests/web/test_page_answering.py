"""Answering by tap: rows for thumbs, nothing moves under a finger, and answers are shown by their labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from site_pages import be_patient, signed_in

import support.api as wire
from askback.client import Client
from support.data_folder import World
from support.server import Server

ANY: dict[str, Any] = {"type": "object"}
PACE = {
    "interaction_id": "pace",
    "prompt": "What pace?",
    "kind": "choice",
    "options": [{"label": "Packed: see it all", "value": "packed"}, {"label": "Relaxed", "value": "slow"}],
}
TABLE = {
    "interaction_id": "table",
    "prompt": "A table for tonight",
    "questions": [
        {"id": "guests", "prompt": "How many guests?", "response_schema": {"type": "integer", "maximum": 40}},
        {"id": "room", "prompt": "Which room?", "options": [{"label": "The garden", "value": "out"}, "hall"]},
        {
            "id": "note",
            "prompt": "Is there anything else that the kitchen has to know, such as allergies?",
            "required": False,
        },
    ],
}
WATCH = """
(id) => {
  const empty = document.getElementById(id);
  window.sentIsShown = new Promise((resolve) =>
    new MutationObserver(() => {
      if (!empty.hidden) resolve(document.querySelector(".sent-row")?.getClientRects().length > 0);
    }).observe(empty, { attributes: true }),
  );
}
"""
"""Whether the line about a sent answer is visible when the page says that there are no more questions."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("answering"))
    world.skill([{"ask": PACE}], [{"finish": {"done": True}}], name="pace", output=ANY)
    world.skill([{"ask": TABLE}], [{"finish": {"done": True}}], name="table", output=ANY)
    with Server(world) as server:
        yield server


@pytest.fixture
def desk(server: Server) -> Iterator[Client]:
    with Client(server.url, server.token) as client:
        yield client


def thumb(browser: Browser, language: str = "en-GB") -> Page:
    context = browser.new_context(
        locale=language, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    be_patient(context)
    return context.new_page()


def asked(desk: Client, skill: str) -> tuple[str, str]:
    """A run that waits, and a link to its question."""
    run_id = desk.wait(desk.create_run(skill, engine="scripted", mode="interactive").id).id
    return run_id, desk.link(run_id).url


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("ASKBACK_TEST_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.parametrize("by", ["finger", pytest.param("mouse", marks=pytest.mark.long)])
def test_a_tap_that_leaves_a_wrong_field_still_counts(desk: Client, browser: Browser, by: str) -> None:
    run_id, url = asked(desk, "table")
    page = thumb(browser) if by == "finger" else browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(url)
    page.get_by_label("How many guests?").press_sequentially("99")
    garden = page.get_by_role("radio", name="The garden")
    if by == "finger":
        garden.tap()
    else:
        garden.hover()
        page.mouse.down()
        expect(garden).to_be_focused()
        page.mouse.up()
    expect(garden).to_be_checked()
    expect(page.locator(".problem:visible")).to_have_text("Must be 40 or less.")
    picture(page, f"form-{by}")
    page.context.close()
    desk.cancel(run_id)


@pytest.mark.long
def test_rows_to_choose_from_are_large_enough_for_a_thumb(desk: Client, browser: Browser) -> None:
    run_id, url = asked(desk, "table")
    page = thumb(browser)
    page.goto(url)
    rows = page.locator("label.check")
    expect(rows).to_have_count(2)
    heights = [box["height"] for row in rows.all() if (box := row.bounding_box())]
    assert len(heights) == 2
    assert min(heights) >= 44
    mark = page.locator(".field-optional").evaluate("(each) => getComputedStyle(each, '::before').content")
    assert mark == "none"
    page.context.close()
    desk.cancel(run_id)


@pytest.mark.parametrize(
    ("language", "said"), [("en-GB", "The answer: "), pytest.param("zh-CN", "回答：", marks=pytest.mark.long)]
)
def test_an_answer_is_shown_by_its_label(
    server: Server, desk: Client, browser: Browser, language: str, said: str
) -> None:
    run_id, url = asked(desk, "pace")
    page = thumb(browser, language)
    page.goto(url)
    page.get_by_role("button", name="Packed: see it all").tap()
    expect(page.locator("#answered strong")).to_have_text(f"{said}Packed: see it all")
    page.reload()
    expect(page.locator("#answered strong")).to_have_text(f"{said}Packed: see it all")
    picture(page, f"label-{language}")
    page.context.close()
    assert desk.wait(run_id).state == "succeeded"
    assert desk.interactions(run_id)[0].response == "packed"
    with signed_in(server, browser, locale=language) as site:
        answered = site.open("/answered")
        expect(answered.locator(".answered-row").first.locator("strong")).to_have_text("Packed: see it all")
        expect(site.open(f"/runs/{run_id}").locator(".reply")).to_have_text("Packed: see it all")


@pytest.mark.long
def test_what_was_sent_stays_in_view_after_the_last_question(server: Server, browser: Browser, desk: Client) -> None:
    for width, path, empty in ((1280, "/", "inbox-empty"), (360, "/?skill=pace", "inbox-unmatched")):
        run_id, _ = asked(desk, "pace")
        with signed_in(server, browser, viewport={"width": width, "height": 740}) as site:
            page = site.open(path)
            expect(page.locator("#inbox-summary")).to_have_text(re.compile("^One (pending|matching) question.$"))
            page.evaluate(WATCH, empty)
            page.get_by_role("button", name="Relaxed").click()
            assert page.evaluate("window.sentIsShown") is True
            picture(page, f"sent-{width}")
            expect(page.locator(".sent-row")).to_have_count(0)
            expect(page.locator("#inbox-list")).to_be_hidden()
        assert desk.wait(run_id).state == "succeeded"


def test_without_permission_to_read_runs_no_link_leads_to_one(server: Server, browser: Browser, desk: Client) -> None:
    run_id, _ = asked(desk, "pace")
    with wire.calling(server.url, server.token) as api:
        token = api.post("/v1/tokens", json={"name": "answers", "scopes": ["answer"]}).json()["token"]
    context = browser.new_context(locale="en-GB", viewport={"width": 1280, "height": 800})
    be_patient(context)
    page = context.new_page()
    page.goto(server.url)
    page.locator("#token").fill(token)
    page.get_by_role("button").click()
    expect(page.get_by_role("button", name="Relaxed")).to_be_visible()
    picture(page, "answer-only")
    assert page.locator("main a[href^='/runs']").count() == 0
    page.get_by_role("button", name="Relaxed").click()
    expect(page.locator(".sent-row")).to_contain_text("Sent: Relaxed")
    assert page.locator("main a[href^='/runs']").count() == 0
    context.close()
    assert desk.wait(run_id).state == "succeeded"
