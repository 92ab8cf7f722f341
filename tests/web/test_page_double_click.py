"""A double click, a double tap or a key pressed twice answers one question, and a button that has just moved answers none.

The page's clock stands still: the tests say how much time passes between two clicks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from crowds import crowd
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

MANY = 24
SETTLE_MS = 600
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def busy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("double"))
    world.skill([ASK], [FINISH], name="asking")
    crowd(world, "asking", MANY)
    with Server(world) as server:
        yield server


@pytest.fixture
def busy(busy_server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(busy_server, browser) as site:
        yield site


def pending(site: Site) -> list[str]:
    return [each["run_id"] for each in site.api.get("/v1/inbox").json()["items"]]


def opened(site: Site, width: int | None = None) -> Page:
    """The inbox with its first question open, and with its controls settled."""
    page = site.context.new_page()
    if width is not None:
        page.set_viewport_size({"width": width, "height": 720})
    page.clock.install()
    page.goto(site.url)
    expect(page.locator(".inbox-row").first).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)
    settle(page)
    if page.get_by_role("article").count() == 0:
        page.locator(".row-button").first.click()
        settle(page)
    expect(red(page)).to_be_visible()
    return page


def settle(page: Page) -> None:
    """Let the time pass after which everything has settled, unless it goes on moving."""
    page.clock.run_for(2 * SETTLE_MS)
    expect(page.locator("[aria-disabled=true]")).to_have_count(0)


def middle(control: Locator) -> tuple[float, float]:
    control.scroll_into_view_if_needed()
    box = control.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def red(page: Page) -> Locator:
    return page.get_by_role("article").get_by_role("button", name="red")


@pytest.mark.parametrize("width", [1280, 800], ids=["beside", "inside"])
def test_a_double_click_answers_one_question(busy: Site, width: int) -> None:
    page = opened(busy, width)
    for gap_ms in (100, 250, 599):
        before = pending(busy)
        spot = middle(red(page))
        page.mouse.click(*spot)
        expect(page.locator(".sent-row", has_text="Sent: red").nth(0)).to_be_visible()
        page.clock.run_for(gap_ms)
        page.mouse.click(*spot)
        # After the row has folded the next question is open, and has just appeared.
        page.clock.run_for(SETTLE_MS - gap_ms)
        expect(red(page)).to_be_visible()
        page.mouse.click(*spot)
        page.mouse.click(*middle(red(page)))
        page.mouse.move(0, 0)
        page.clock.fast_forward(10_000)
        expect(page.locator(".sent-row")).to_have_count(0)
        settle(page)
        assert len(pending(busy)) == len(before) - 1


def test_a_double_tap_answers_one_question(busy_server: Server, browser: Browser) -> None:
    with signed_in(busy_server, browser, **PHONE) as site:
        page = opened(site)
        before = pending(site)
        spot = middle(red(page))
        page.touchscreen.tap(*spot)
        expect(page.locator(".sent-row")).to_be_visible()
        page.clock.run_for(200)
        page.touchscreen.tap(*spot)
        page.clock.run_for(400)
        expect(red(page)).to_be_visible()
        page.touchscreen.tap(*spot)
        page.touchscreen.tap(*middle(red(page)))
        expect(page.locator(".inbox-row")).to_have_count(len(before) - 1)
        assert len(pending(site)) == len(before) - 1


@pytest.mark.long
def test_a_double_tap_on_a_row_opens_it(busy_server: Server, browser: Browser) -> None:
    with signed_in(busy_server, browser, **PHONE) as site:
        page = opened(site)
        row = page.locator(".row-button").nth(1)
        spot = middle(row)
        page.touchscreen.tap(*spot)
        page.clock.run_for(200)
        expect(row).to_have_attribute("aria-expanded", "true")
        page.touchscreen.tap(*middle(row))
        expect(row).to_have_attribute("aria-expanded", "true")
        # The row above has folded, so others are where this one was.
        page.touchscreen.tap(*spot)
        expect(row).to_have_attribute("aria-expanded", "true")


def test_a_double_click_confirms_no_answer_to_several_questions(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    for place in (0, 1):
        page.locator(".row-check").nth(place).click()
        settle(page)
    page.get_by_role("button", name="Answer together").click()
    settle(page)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="blue").click()
    send = dialog.get_by_role("button", name="Send 2 answers")
    expect(send).to_be_visible()
    for gap_ms in (100, 250, 200):
        page.mouse.click(*middle(send))
        page.clock.run_for(gap_ms)
    expect(send).to_be_visible()
    assert len(pending(busy)) == len(before)
    settle(page)
    send.click()
    expect(dialog.get_by_text("2 of 2 answers sent.")).to_be_visible()
    assert len(pending(busy)) == len(before) - 2


@pytest.mark.long
def test_enter_on_a_touch_keyboard_starts_a_new_line(busy_server: Server, browser: Browser) -> None:
    with signed_in(busy_server, browser, **PHONE) as site:
        page = site.open("/")
        page.locator(".row-button").first.tap()
        card = page.get_by_role("article").first
        card.get_by_text("Answer in your own words").tap()
        card.get_by_role("button", name="Send").tap()
        expect(card.get_by_text("Please enter an answer.")).to_be_visible()
        card.get_by_role("textbox").press_sequentially("a")
        expect(card.get_by_text("Please enter an answer.")).to_be_hidden()
        card.get_by_role("textbox").press("Enter")
        card.get_by_role("textbox").press_sequentially("b")
        expect(card.get_by_role("textbox")).to_have_value("a\nb")
        expect(card.get_by_text("Enter starts a new line")).to_be_visible()


def test_a_key_pressed_twice_answers_one_question(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    red(page).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".sent-row")).to_be_visible()
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
    page.clock.run_for(SETTLE_MS)
    expect(red(page)).to_be_visible()
    red(page).focus()
    for key in ("Enter", "Space"):
        page.keyboard.press(key)
    expect(page.get_by_text("This has just appeared or moved")).not_to_have_count(0)
    assert len(pending(busy)) == len(before) - 1
    page.clock.run_for(SETTLE_MS)
    page.keyboard.press("Enter")
    expect(page.locator(".inbox-row")).to_have_count(len(before) - 2)


@pytest.mark.long
def test_clicking_again_and_again_answers_one_question(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    spot = middle(red(page))
    page.mouse.click(*spot)
    expect(page.locator(".sent-row", has_text="Sent: red")).to_be_visible()
    for _ in range(20):
        page.clock.run_for(150)
        page.mouse.click(*spot)
    expect(page.get_by_text("This has just appeared or moved")).to_have_count(1)
    assert len(pending(busy)) == len(before) - 1


def test_typing_that_continues_after_the_question_was_closed_answers_nothing(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    card = page.get_by_role("article")
    card.get_by_text("Answer in your own words").click()
    settle(page)
    card.get_by_role("textbox").press_sequentially("please ship")
    href = card.get_by_role("link", name="Open run").get_attribute("href")
    assert href is not None
    wire.reply(busy.api, href.rpartition("/")[2], "blue")
    expect(card.get_by_role("alert")).to_be_visible()
    for key in " version 1 of it. ok":
        page.clock.run_for(160)
        page.keyboard.press(key)
    page.clock.run_for(160)
    page.keyboard.press("Enter")
    expect(card.get_by_role("alert")).to_be_visible()
    expect(card.get_by_text("please ship")).to_be_visible()
    assert len(pending(busy)) == len(before) - 1


@pytest.mark.long
def test_a_question_is_not_answered_while_others_are_selected(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    for place in (1, 2):
        page.locator(".row-check").nth(place).click()
        settle(page)
    expect(page.get_by_text("Other questions are selected")).to_be_visible()
    page.mouse.click(*middle(red(page)))
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page.get_by_text("Other questions are selected")).to_be_hidden()
    assert len(pending(busy)) == len(before)
    settle(page)
    red(page).click()
    expect(page.locator(".sent-row", has_text="Sent: red")).to_be_visible()
    assert len(pending(busy)) == len(before) - 1


def test_a_row_that_has_just_moved_is_not_opened_by_a_click(busy: Site) -> None:
    page = opened(busy)
    before = pending(busy)
    wire.waiting(busy.api, options={"interactive_require_user_reply": False, "session_timeout_sec": 900})
    expect(page.locator(".inbox-row")).to_have_count(len(before) + 1)
    page.mouse.click(*middle(page.locator(".row-button").nth(2)))
    expect(page.get_by_text("This has just appeared or moved")).to_be_visible()
    expect(page.locator(".row-button").nth(1)).to_have_attribute("aria-current", "true")
    page.clock.run_for(SETTLE_MS)
    page.mouse.click(*middle(page.locator(".row-button").nth(2)))
    expect(page.locator(".row-button").nth(2)).to_have_attribute("aria-current", "true")
