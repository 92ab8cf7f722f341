"""The inbox at work: filters in the URL, keys, several answers at once, drafts, and the list of answered questions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, press, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

DONE = {"finish": {"colour": "red"}}
PAY = {"ask": {"interaction_id": "pay", "kind": "confirm", "prompt": "Pay the invoice?", "context": "EUR 240 above"}}
FORM = {
    "ask": {
        "interaction_id": "form",
        "prompt": "Who is it?",
        "response_schema": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
        },
    }
}
SECRET = {"ask": {"interaction_id": "secret", "kind": "secret", "prompt": "The password?"}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def desk_server(tmp_path: Path) -> Iterator[Server]:
    world = World(tmp_path)
    named = {"schemas": {"input": CITY}, "runner": {"summary": "{{input.city}}"}}
    world.skill([ASK], [FINISH], name="asking", **named)
    world.skill([PAY], [DONE], name="paying", **named)
    world.skill([FORM], [DONE], name="form")
    world.skill([SECRET], [DONE], name="secretive")
    with Server(world) as server:
        yield server


@pytest.fixture
def desk(desk_server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(desk_server, browser) as site:
        yield site


def rows(page: Page) -> Locator:
    return page.locator(".inbox-row")


def article(page: Page) -> Locator:
    return page.get_by_role("article")


def expect_rows(page: Page, *texts: str) -> None:
    expect(rows(page)).to_have_count(len(texts))
    for place, text in enumerate(texts):
        expect(rows(page).nth(place)).to_contain_text(text)


# Filters.


def test_filters_are_in_the_url_and_their_counts_are_true(desk: Site) -> None:
    for city in ("Lisbon", "Porto"):
        wire.waiting(desk.api, input={"city": city})
    wire.waiting(desk.api, "paying", input={"city": "Lisbon"})
    page = desk.open("/")
    expect_rows(page, "Lisbon", "Porto", "Lisbon")
    page.get_by_role("button", name="asking 2").click()
    expect_rows(page, "Lisbon", "Porto")
    expect(page).to_have_url(re.compile(r"/\?skill=asking$"))
    page.get_by_role("searchbox").fill("porto")
    expect_rows(page, "Porto")
    expect(page).to_have_url(re.compile(r"skill=asking&q=porto$"))
    page.reload()
    expect_rows(page, "Porto")
    expect(page.get_by_role("searchbox")).to_have_value("porto")
    expect(page.get_by_role("button", name="asking 1")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("searchbox").fill("above lisbon")
    expect(page.get_by_role("heading", name="No question matches")).to_be_visible()
    page.get_by_role("button", name="paying 1").click()
    expect_rows(page, "Pay the invoice?")
    page.go_back()
    expect(page.get_by_role("heading", name="No question matches")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    expect_rows(page, "Lisbon", "Porto", "Lisbon")
    # What arrives is counted, and shown only where it matches.
    page.get_by_role("button", name="paying 1").click()
    expect_rows(page, "Pay the invoice?")
    wire.waiting(desk.api, input={"city": "Faro"})
    expect(page.get_by_role("button", name="asking 3")).to_be_visible()
    expect_rows(page, "Pay the invoice?")


# Keys.


def test_keys_move_choose_and_send(desk: Site) -> None:
    first, second = wire.waiting(desk.api, input={"city": "A"}), wire.waiting(desk.api, input={"city": "B"})
    page = desk.open("/")
    expect_rows(page, "A", "B")
    page.keyboard.press("j")
    expect(article(page)).to_contain_text("B")
    page.keyboard.press("k")
    expect(article(page)).to_contain_text("A")
    page.keyboard.press("j")
    page.keyboard.press("2")
    expect(article(page).get_by_role("button", name="blue")).to_be_focused()
    assert wire.get(desk.api, second)["state"] == "waiting_user"
    page.keyboard.press("Enter")
    expect(page.locator(".sent-row")).to_contain_text("Sent: blue")
    wire.over(desk.api, second)
    assert wire.get(desk.api, first)["state"] == "waiting_user"
    # In a field, and with a modifier, keys are only typed.
    page.keyboard.press("/")
    page.keyboard.type("j1x?")
    expect(page.get_by_role("searchbox")).to_have_value("j1x?")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.long
def test_single_keys_can_be_switched_off_and_stay_off(desk: Site) -> None:
    for city in ("A", "B"):
        wire.waiting(desk.api, input={"city": city})
    page = desk.open("/")
    expect_rows(page, "A", "B")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.reload()
    expect_rows(page, "A", "B")
    for key in ("j", "x", "?"):
        page.keyboard.press(key)
    expect(rows(page).first.locator(".row-button")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Keyboard shortcuts").click()
    expect(dialog.get_by_role("checkbox")).not_to_be_checked()


# Several at once.


def test_like_questions_get_one_answer_after_one_confirmation_that_names_them(desk: Site) -> None:
    runs = [wire.waiting(desk.api, "paying", input={"city": city}) for city in ("Lisbon", "Porto", "Faro")]
    wire.waiting(desk.api, input={"city": "Other"})
    wire.waiting(desk.api, "secretive")
    page = desk.open("/")
    expect(rows(page)).to_have_count(5)
    expect(rows(page).filter(has_text="The password?").get_by_role("checkbox")).to_have_count(0)
    rows(page).filter(has_text="Lisbon").get_by_role("checkbox").check()
    expect(rows(page).filter(has_text="Other").get_by_role("checkbox")).to_be_disabled()
    page.get_by_role("button", name="Select all 3 like this").click()
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.get_by_role("button", name="Answer together").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Yes").click()
    for city in ("Lisbon", "Porto", "Faro"):
        expect(dialog.get_by_role("listitem").filter(has_text=city)).to_be_visible()
    expect(dialog.get_by_text("Send “Yes” to these 3 questions?")).to_be_visible()
    # One is answered elsewhere before the confirmation; nothing was sent until then.
    assert wire.reply(desk.api, runs[1], "no", "pay").status_code == 202
    assert wire.get(desk.api, runs[0])["state"] == "waiting_user"
    dialog.get_by_role("button", name="Send 3 answers").click()
    expect(dialog.get_by_text("2 of 3 answers sent.")).to_be_visible()
    expect(dialog.get_by_role("listitem").filter(has_text="Porto")).to_contain_text("Too late")
    expect(dialog.get_by_role("listitem").filter(has_text="Faro")).to_contain_text("Sent")
    dialog.get_by_role("button", name="Done").click()
    expect(rows(page)).to_have_count(2)
    for run_id, answer in zip(runs, ("yes", "no", "yes"), strict=True):
        wire.over(desk.api, run_id)
        (asked,) = desk.api.get(f"/v1/runs/{run_id}/interactions").json()["items"]
        assert asked["response"] == answer


@pytest.mark.long
def test_going_back_from_the_confirmation_sends_nothing(desk: Site) -> None:
    run_id = wire.waiting(desk.api, "paying", input={"city": "Lisbon"})
    page = desk.open("/")
    rows(page).get_by_role("checkbox").check()
    page.get_by_role("button", name="Answer together").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Yes").click()
    expect(dialog.get_by_text("Send “Yes” to these")).to_be_visible()
    dialog.get_by_role("button", name="Back").click()
    expect(dialog.get_by_role("button", name="No", exact=True)).to_be_enabled()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert wire.get(desk.api, run_id)["state"] == "waiting_user"


# Drafts and messages.


@pytest.mark.long
def test_the_draft_of_a_form_survives_a_reload_but_a_secret_does_not(desk: Site) -> None:
    wire.waiting(desk.api, "form")
    wire.waiting(desk.api, "secretive")
    page = desk.open("/")
    article(page).get_by_role("textbox", name="Name").fill("Ada")
    rows(page).filter(has_text="The password?").locator(".row-button").click()
    article(page).locator("input[type=password]").fill("hunter-2")
    page.reload()
    expect(article(page).locator("input[type=password]")).to_have_value("")
    assert "hunter-2" not in page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}, history.state])")
    rows(page).filter(has_text="Who is it?").locator(".row-button").click()
    expect(article(page).get_by_role("textbox", name="Name")).to_have_value("Ada")


@pytest.mark.long
def test_a_draft_in_own_words_is_open_after_a_reload_and_gone_once_sent(desk: Site) -> None:
    wire.waiting(desk.api, input={"city": "A"})
    page = desk.open("/")
    article(page).get_by_text("Answer in your own words").click()
    article(page).get_by_role("textbox").fill("rather green")
    page.reload()
    expect(article(page).get_by_role("textbox")).to_have_value("rather green")
    press(article(page).get_by_role("button", name="Send"))
    expect(page.locator(".sent-row")).to_contain_text("Sent: rather green")
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.long
def test_a_message_vanishes_when_its_cause_is_over(desk: Site) -> None:
    wire.waiting(desk.api, input={"city": "A"})
    page = desk.open("/")
    desk.context.route("**/reply", lambda route: route.abort())
    trouble = article(page).locator(".answer-trouble")
    press(article(page).get_by_role("button", name="blue"))
    expect(trouble).to_contain_text("does not respond")
    page.evaluate("window.dispatchEvent(new Event('online'))")
    expect(trouble).to_be_hidden()
    press(article(page).get_by_role("button", name="blue"))
    expect(trouble).to_be_visible()
    article(page).get_by_text("Answer in your own words").click()
    article(page).get_by_role("textbox").press_sequentially("g")
    expect(trouble).to_be_hidden()
    desk.mistakes.clear()


# Narrow and wide.


def test_a_phone_has_one_column_and_its_count_stays_in_view(desk_server: Server, browser: Browser) -> None:
    with signed_in(desk_server, browser, **PHONE) as site:
        for city in ("A", "B", "C"):
            wire.waiting(site.api, input={"city": city})
        page = site.open("/")
        expect_rows(page, "A", "B", "C")
        expect(article(page)).to_have_count(0)
        rows(page).nth(1).locator(".row-button").tap()
        expect(rows(page).nth(1).get_by_role("article")).to_contain_text("Which colour?")
        page.mouse.wheel(0, 2000)
        expect(page.locator("#inbox-count")).to_be_in_viewport()
        page.goto(f"{site.url}/dashboard")
        expect(page.locator("#inbox-count")).to_be_in_viewport()


@pytest.mark.long
def test_a_window_that_becomes_narrow_keeps_the_question_and_what_was_written(desk: Site) -> None:
    wire.waiting(desk.api, input={"city": "A"})
    page = desk.open("/")
    article(page).get_by_text("Answer in your own words").click()
    article(page).get_by_role("textbox").fill("green")
    page.set_viewport_size({"width": 700, "height": 800})
    expect(rows(page).get_by_role("textbox")).to_have_value("green")
    page.set_viewport_size({"width": 1300, "height": 800})
    expect(page.locator("#inbox-pane").get_by_role("textbox")).to_have_value("green")


# Answered questions.


def test_answered_questions_are_listed_with_answer_time_and_run(desk: Site) -> None:
    page = desk.open("/answered")
    expect(page.get_by_role("heading", name="Nothing answered yet")).to_be_visible()
    first, second = wire.waiting(desk.api, input={"city": "Lisbon"}), wire.waiting(desk.api, "secretive")
    third = wire.waiting(desk.api, "paying", input={"city": "Porto"})
    assert wire.reply(desk.api, first, "red").status_code == 202
    assert wire.reply(desk.api, second, "hunter-2", "secret").status_code == 202
    assert desk.api.post(f"/v1/runs/{third}/cancel").status_code in (200, 202)
    listed = page.locator(".answered-row")
    expect(listed).to_have_count(3)
    for place, texts in enumerate(
        (
            ("Pay the invoice?", "Run canceled by main, by API", "Porto"),
            ("The password?", "Answered by main, by API", "(secret)"),
            ("Which colour?", "Answered by main, by API", "red", "Lisbon"),
        )
    ):
        for text in texts:
            expect(listed.nth(place)).to_contain_text(text)
    assert "hunter-2" not in page.content()
    listed.nth(2).get_by_role("link", name="Open run").click()
    expect(page).to_have_url(re.compile(f"/runs/{first}$"))
