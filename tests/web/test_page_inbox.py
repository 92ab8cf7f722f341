"""The inbox in a browser: questions come and go by themselves, and are answered right there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, press, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

LONG_WORD = "supercalifragilistic" * 30
LONG = {"ask": {"interaction_id": "long", "prompt": f"Read this: {LONG_WORD}\n" * 20, "context": {"a": LONG_WORD}}}
OFFERED = [{"label": "Stockholm", "value": "eu-north"}, {"label": "Milan", "value": "eu-south"}]
REGION = {"ask": {"interaction_id": "r", "prompt": "Region?", "options": OFFERED, "default": "eu-north"}}
_NOTED = """
window.noted = [];
window.Notification = class { constructor(title, how) { window.noted.push([title, how.body]); } };
Notification.permission = "granted";
Document.prototype.hasFocus = () => false;
"""


def furnish(folder: Path) -> World:
    world = World(folder)
    world.skill([ASK], [FINISH], name="asking")
    world.skill([LONG], [{"finish": {"colour": "red"}}], name="wordy")
    world.skill([REGION], [{"finish": {"colour": "red"}}], name="region")
    return world


@pytest.fixture
def quiet(tmp_path: Path, browser: Browser) -> Iterator[Site]:
    """A server whose inbox is this test's own."""
    with Server(furnish(tmp_path)) as server, signed_in(server, browser) as site:
        yield site


def row(page: Page, skill: str) -> Locator:
    return page.locator(".inbox-row", has_text=skill)


def card(page: Page, skill: str) -> Locator:
    """The open question of a skill."""
    return page.get_by_role("article").filter(has_text=skill)


def opened(page: Page, skill: str) -> Locator:
    row(page, skill).first.locator(".row-button").click()
    return card(page, skill)


def test_a_question_comes_up_by_itself_and_is_answered_by_a_click(quiet: Site) -> None:
    page = quiet.open("/")
    expect(page.get_by_role("heading", name="No questions yet")).to_be_visible()
    expect(page.get_by_text("All answered")).to_be_hidden()
    run_id = wire.start(quiet.api)
    expect(card(page, "asking").get_by_text("Which colour?")).to_be_visible()
    expect(page).to_have_title("(1) Inbox · Askback")
    expect(page.locator("#inbox-count")).to_have_text("1")
    press(card(page, "asking").get_by_role("button", name="blue"))
    expect(row(page, "asking")).to_have_count(0)
    expect(page.locator(".sent-row")).to_contain_text("Sent: blue")
    expect(page.get_by_role("heading", name="All answered")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="All answered")).to_be_visible()
    expect(page).to_have_title("Inbox · Askback")
    wire.over(quiet.api, run_id)
    assert quiet.api.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "blue"}


def test_the_keyboard_alone_answers(quiet: Site) -> None:
    first, second = wire.waiting(quiet.api), wire.waiting(quiet.api)
    page = quiet.open("/")
    expect(row(page, "asking")).to_have_count(2)
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("green, please")
    page.keyboard.press("Enter")
    expect(row(page, "asking")).to_have_count(1)
    wire.over(quiet.api, first)
    assert quiet.api.get(f"/v1/runs/{first}/result").json()["data"] == {"colour": "green, please"}
    assert wire.get(quiet.api, second)["state"] == "waiting_user"
    # The focus went on to the next question, not back to the top of the page.
    expect(card(page, "asking").get_by_role("heading", name="Which colour?")).to_be_focused()


def test_who_is_writing_is_told_kindly_that_another_was_faster(quiet: Site) -> None:
    run_id = wire.waiting(quiet.api)
    mine, theirs = quiet.open("/"), quiet.open("/")
    card(mine, "asking").get_by_text("Answer in your own words").click()
    card(mine, "asking").get_by_role("textbox").fill("I am still think")
    press(card(theirs, "asking").get_by_role("button", name="red"))
    expect(row(theirs, "asking")).to_have_count(0)
    told = mine.get_by_role("alert").filter(has_text="Already answered by main, on the page. Your answer was not used.")
    expect(told).to_be_visible()
    # What was written is not lost.
    expect(mine.locator(".unsent")).to_contain_text("I am still think")
    mine.get_by_role("button", name="OK").click()
    expect(card(mine, "asking")).to_have_count(0)
    wire.over(quiet.api, run_id)
    assert quiet.api.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}


@pytest.mark.long
def test_an_answer_that_comes_too_late_is_told_kindly(quiet: Site) -> None:
    run_id = wire.waiting(quiet.api)
    quiet.context.route("**/v1/inbox", lambda route: route.abort())
    page = quiet.open("/")
    expect(page.get_by_text("Connection lost")).to_be_visible()
    assert wire.reply(quiet.api, run_id, "red").status_code == 202
    press(card(page, "asking").get_by_role("button", name="blue"))
    expect(page.get_by_role("alert").filter(has_text="Your answer was not used")).to_be_visible()
    wire.over(quiet.api, run_id)
    page.close()
    quiet.mistakes.clear()
    assert quiet.api.get(f"/v1/runs/{run_id}/result").json()["data"] == {"colour": "red"}


def test_many_tabs_hold_one_stream(quiet: Site) -> None:
    asked: list[str] = []
    quiet.context.on("request", lambda request: asked.append(request.url))
    pages = [quiet.open("/") for _ in range(8)]
    wire.start(quiet.api)
    for page in pages:
        expect(row(page, "asking")).to_be_visible()
    assert len([url for url in asked if url.endswith("/v1/inbox")]) == 1
    pages[0].close()
    wire.start(quiet.api)
    expect(row(pages[7], "asking")).to_have_count(2)


@pytest.mark.long
def test_a_deadline_counts_down_and_says_what_happens_then(quiet: Site) -> None:
    how = {"interactive_require_user_reply": False, "session_timeout_sec": 600}
    wire.waiting(quiet.api, options=how)
    wire.waiting(quiet.api, "wordy", options={"interactive_profile": "sticky_process", "session_timeout_sec": 90})
    page = quiet.open("/")
    expect(opened(page, "asking").get_by_role("timer")).to_contain_text("left")
    expect(card(page, "asking")).to_contain_text("the engine decides")
    before = card(page, "asking").get_by_role("timer").inner_text()
    expect(card(page, "asking").get_by_role("timer")).not_to_have_text(before)
    expect(opened(page, "wordy")).to_contain_text("process waits for this answer")
    expect(card(page, "wordy").get_by_role("timer")).to_have_class("deadline-left soon")


@pytest.mark.long
def test_the_nearest_deadline_is_first_and_its_end_leaves_a_line(quiet: Site) -> None:
    wire.waiting(quiet.api)
    how = {"interactive_require_user_reply": False}
    page = quiet.open("/")
    rows = page.locator(".inbox-row")
    expect(rows).to_have_count(1)
    wire.waiting(quiet.api, "wordy", options=how | {"session_timeout_sec": 600})
    expect(rows).to_have_count(2)
    wire.waiting(quiet.api, "region", options=how | {"session_timeout_sec": 300})
    expect(rows).to_have_count(3)
    for place, skill in enumerate(("region", "wordy", "asking")):
        expect(rows.nth(place)).to_contain_text(skill)
    # The open question stays open while others come before it.
    expect(card(page, "asking")).to_be_visible()
    expect(opened(page, "region")).to_contain_text("the engine continues with “Stockholm”")
    wire.waiting(quiet.api, "region", options=how | {"session_timeout_sec": 6})
    expect(page.locator(".sent-row", has_text="region")).to_contain_text("Time ran out; “Stockholm” was chosen.")


@pytest.mark.long
def test_a_new_question_notifies_the_desk_if_allowed(quiet: Site) -> None:
    quiet.context.add_init_script(_NOTED)
    page = quiet.open("/")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    wire.start(quiet.api)
    expect(row(page, "asking")).to_be_visible()
    assert page.evaluate("window.noted") == [["asking has a question", "Which colour?"]]


@pytest.mark.long
def test_a_phone_needs_no_sideways_scroll_for_a_long_question(quiet: Site) -> None:
    run_id = wire.waiting(quiet.api, "wordy")
    page = quiet.open("/")
    page.set_viewport_size({"width": 360, "height": 740})
    expect(card(page, "wordy").locator(".prompt")).to_be_visible()
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.goto(f"{quiet.url}/runs/{run_id}")
        expect(page.locator("form.answer")).to_be_visible()


def test_the_inbox_comes_back_after_a_restart_of_the_server(tmp_path: Path, browser: Browser) -> None:
    world = furnish(tmp_path)
    with Server(world) as server, signed_in(server, browser) as site:
        wire.waiting(site.api)
        page = site.open("/")
        expect(row(page, "asking")).to_have_count(1)
        server.kill(signal.SIGKILL)
        expect(page.get_by_text("Connection lost")).to_be_visible()
        with Server(world, port=server.port):
            wire.waiting(site.api, "wordy")
            expect(row(page, "wordy")).to_be_visible()
            expect(row(page, "asking")).to_have_count(1)
            expect(page.get_by_text("Live", exact=True)).to_be_visible()
            page.close()
        site.mistakes.clear()


def test_the_page_speaks_the_language_that_is_chosen(quiet: Site) -> None:
    page = quiet.open("/")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", name="收件箱")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh"
    expect(page.get_by_text("实时", exact=True)).to_be_visible()
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()


@pytest.mark.long
def test_the_theme_that_is_chosen_stays(quiet: Site) -> None:
    page = quiet.open("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(ground) != light
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
