"""How a run's page reads: the question pinned with its form, one entry for question and answer, quiet rows, drafts, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from history import asked
from long_waits import waited
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, signed_in, wrote

import support.api as wire
from askback.core.interactions import Question
from support.data_folder import ASK, FINISH, World
from support.server import Server

DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
SEARCH = {"tool": {"name": "search", "detail": "hotels", "output": "none", "sleep_sec": 0.2}}
BREAK = {"tool": {"name": "break", "detail": "the vase", "output": "ouch", "ok": False}}
WORDS = {"ask": {"interaction_id": "words", "prompt": "Anything else?"}}
SECRET = {"ask": {"interaction_id": "pin", "prompt": "Which pin?", "kind": "secret"}}
SHAPE = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "late": {"type": "boolean"}, "size": {"enum": ["S", "L"]}},
}
REFERRING = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "pass": {"$ref": "#/$defs/word"}},
    "$defs": {"word": {"$ref": "#/$defs/hidden"}, "hidden": {"type": "string", "format": "password"}},
}
LOGIN = Question(prompt="How to sign in?", interaction_id="login", response_schema=REFERRING)
FORM = {"ask": {"interaction_id": "form", "prompt": "Who comes?", "response_schema": SHAPE}}
PLAN = "# Plan\n\n**{{reply}}**\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("conversation"))
    long = [{"say": f"line {place}\n" * 4} for place in range(30)]
    world.skill(
        [*long, SEARCH, BREAK, ASK], [WORDS], [wrote("plan.md", PLAN), {"finish": {"colour": "red"}}], name="asking"
    )
    world.skill([SECRET], [FINISH], name="secretive")
    world.skill([FORM], [{"finish": {"colour": "red"}}], name="formal")
    world.skill([{"misbehave": "auth"}], name="failing")
    return world


@pytest.fixture(scope="module")
def old_run(world: World) -> str:
    """Its first question waited for three days."""
    return waited(world, "asking", 3, "red", "nothing")


@pytest.fixture(scope="module")
def login_run(world: World) -> str:
    return asked(world, LOGIN)


@pytest.fixture(scope="module")
def server(world: World, old_run: str, login_run: str) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture(params=[DESK, pytest.param(PHONE, marks=pytest.mark.long)], ids=["desk", "phone"])
def anywhere(server: Server, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Site]:
    with signed_in(server, browser, **request.param) as site:
        yield site


@pytest.fixture
def desk(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser, **DESK) as site:
        yield site


def pinned(page: Page) -> Locator:
    return page.locator(".pinned")


def test_question_and_form_are_one_card_that_is_always_in_view(anywhere: Site) -> None:
    page = anywhere.open(f"/runs/{wire.waiting(anywhere.api)}")
    red = pinned(page).get_by_role("button", name="red")
    expect(page.get_by_text("line 29").first).to_be_attached()
    expect(red).to_be_in_viewport(ratio=1)
    expect(pinned(page).locator(".prompt")).to_be_in_viewport(ratio=1)
    for place in ("document.body.scrollHeight / 2", "document.body.scrollHeight"):
        page.evaluate(f"window.scrollTo(0, {place})")
        expect(red).to_be_attached()
    page.evaluate("window.scrollTo(0, document.body.scrollHeight / 2)")
    expect(red).to_be_in_viewport(ratio=1)
    expect(page.locator(".asked")).to_be_hidden()
    red.click()
    expect(page.locator(".toast", has_text="just appeared or moved")).to_have_count(0)
    entry = page.locator(".asked", has_text="Which colour?")
    expect(entry.locator(".reply")).to_have_text("red")
    expect(entry).to_contain_text("Answered by main, on the page · after")
    expect(pinned(page).locator(".prompt", has_text="Anything else?")).to_be_in_viewport(ratio=1)
    expect(page.locator(".asked:visible")).to_have_count(1)


@pytest.mark.long
def test_a_minimized_question_leaves_its_line(anywhere: Site) -> None:
    page = anywhere.open(f"/runs/{wire.waiting(anywhere.api)}")
    pinned(page).get_by_role("button", name="Minimize").click()
    expect(pinned(page).locator("form")).to_be_hidden()
    expect(pinned(page).locator(".pinned-line")).to_have_text("Which colour?")
    pinned(page).get_by_role("button", name="Answer", exact=True).click()
    expect(pinned(page).locator("form")).to_be_visible()


@pytest.mark.long
def test_a_link_to_the_question_is_shown(anywhere: Site) -> None:
    page = anywhere.open(f"/runs/{wire.waiting(anywhere.api)}")
    pinned(page).get_by_label("More actions").click()
    pinned(page).locator(".menu-item", has_text="Link to this question").click()
    expect(page.get_by_role("dialog").locator("pre")).to_have_text(re.compile(r"^http://\S+/answers/\S+$"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def own_words(page: Page, text: str) -> Locator:
    pinned(page).get_by_text("Answer in your own words").click()
    box = pinned(page).get_by_role("textbox")
    box.fill(text)
    return box


def test_a_draft_survives_a_reload_and_is_gone_once_it_is_sent(desk: Site) -> None:
    run_id = wire.waiting(desk.api)
    page = desk.open(f"/runs/{run_id}")
    own_words(page, "a warm\ngreen")
    page.reload()
    expect(pinned(page).get_by_role("textbox")).to_have_value("a warm\ngreen")
    expect(pinned(page).get_by_role("textbox")).to_be_visible()
    pinned(page).get_by_role("button", name="Send").click()
    expect(page.locator(".reply")).to_have_text("a warm green")
    # The answer may be on the stream before its own response is here.
    page.wait_for_function("!Object.keys(sessionStorage).some((key) => key.startsWith('askback-draft'))")
    expect(page.locator("#notices")).to_be_empty()


@pytest.mark.long
def test_a_form_is_a_draft_too_and_a_secret_is_none(desk: Site) -> None:
    page = desk.open(f"/runs/{wire.waiting(desk.api, 'formal')}")
    pinned(page).get_by_label("Name").fill("Ada")
    pinned(page).get_by_label("Late").check()
    pinned(page).get_by_label("L", exact=True).check()
    page.reload()
    expect(pinned(page).get_by_label("Name")).to_have_value("Ada")
    expect(pinned(page).get_by_label("Late")).to_be_checked()
    expect(pinned(page).get_by_label("L", exact=True)).to_be_checked()
    page = desk.open(f"/runs/{wire.waiting(desk.api, 'secretive')}")
    pinned(page).locator("input").fill("hunter-2-hunter")
    assert "hunter" not in page.evaluate("JSON.stringify(sessionStorage)")
    page.reload()
    expect(pinned(page).locator("input")).to_have_value("")


def test_a_secret_behind_a_reference_is_in_no_draft(desk: Site, login_run: str) -> None:
    link = desk.api.post(f"/v1/runs/{login_run}/interaction/link", json={}).json()["url"]
    page = desk.open(f"/runs/{login_run}")
    for address in (page.url, link):
        page.goto(address)
        page.get_by_label("Name").fill("Ada")
        page.locator("input[type=password]").fill("hunter-2-hunter")
        assert "Ada" in page.evaluate("JSON.stringify(sessionStorage)")
        assert "hunter" not in page.evaluate("JSON.stringify(sessionStorage)")
        page.reload()
        expect(page.get_by_label("Name")).to_have_value("Ada")
        expect(page.locator("input[type=password]")).to_have_value("")


@pytest.mark.long
def test_a_draft_is_kept_when_somebody_else_answers_first(desk: Site) -> None:
    run_id = wire.waiting(desk.api)
    page = desk.open(f"/runs/{run_id}")
    own_words(page, "my long thoughts")
    assert wire.reply(desk.api, run_id, "blue", "colour").status_code == 202
    notice = page.get_by_role("alert").filter(has_text="Already answered by main, by API. Your answer was not used.")
    expect(notice).to_contain_text("my long thoughts")
    expect(pinned(page).locator(".prompt", has_text="Anything else?")).to_be_visible()
    notice.get_by_role("button", name="OK").click()
    expect(notice).to_have_count(0)
    # Also if the page is closed meanwhile.
    pinned(page).get_by_role("textbox").fill("later thoughts")
    address = page.url
    page.goto("about:blank")
    assert wire.reply(desk.api, run_id, "no", "words").status_code == 202
    wire.over(desk.api, run_id)
    page.goto(address)
    # The page does not know which question the draft was for.
    late = page.get_by_role("alert").filter(has_text="Somebody else has already answered")
    expect(late).to_contain_text("later thoughts")
    page.reload()
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator("#notices")).to_be_empty()


@pytest.mark.long
def test_tools_have_a_duration_and_a_turn_one_time(desk: Site) -> None:
    page = desk.open(f"/runs/{wire.waiting(desk.api)}")
    took = page.locator(".tool", has_text="search").locator(".tool-state")
    expect(took).to_have_text(re.compile(r"^[\d.]+ (ms|s)$"))
    expect(page.locator(".tool", has_text="break").locator(".tool-state")).to_have_text(re.compile(r"^failed · \S"))
    expect(page.locator("#conversation time")).to_have_count(1)


@pytest.mark.long
def test_a_wait_of_days_is_a_labelled_gap_and_the_work_stays_readable(anywhere: Site, old_run: str) -> None:
    page = anywhere.open(f"/runs/{old_run}")
    gap = page.locator(".timeline-gap", has_text="3 d")
    expect(gap).to_be_visible()
    bar, narrow = page.locator(".timeline-bar").bounding_box(), gap.bounding_box()
    assert bar is not None
    assert narrow is not None
    assert narrow["width"] < bar["width"] / 2
    assert page.locator(".timeline-bar").evaluate("(bar) => bar.scrollWidth <= bar.clientWidth + 1")
    times = page.locator("#conversation .divider time")
    expect(times).to_have_count(3)
    for place in range(2):
        expect(times.nth(place)).to_have_text(re.compile(r"^\w{3}.* \w+, \d\d:\d\d$"))
    expect(page.locator(".asked").first).to_contain_text("after 3 d")


@pytest.mark.long
def test_a_failed_run_has_no_dot_that_says_otherwise_and_details_are_folded(desk: Site) -> None:
    run_id = wire.start(desk.api, "failing")
    wire.over(desk.api, run_id)
    page = desk.open(f"/runs/{run_id}")
    expect(page.locator("#connection")).to_have_attribute("data-state", "over")
    expect(page.locator("#connection")).to_be_hidden()
    expect(page.get_by_text("While waiting")).to_be_hidden()
    page.get_by_text("Details", exact=True).click()
    expect(page.get_by_text("While waiting")).to_be_visible()


@pytest.mark.long
def test_the_only_file_is_open_and_can_be_opened_alone_and_copied(desk: Site, old_run: str) -> None:
    desk.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = desk.open(f"/runs/{old_run}")
    expect(page.locator(".file-look").get_by_role("heading", name="Plan")).to_be_visible()
    page.locator("#files").get_by_text("Open", exact=True).click()
    page.wait_for_url("**/preview?path=plan.md")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "# Plan\n\n**nothing**\n"
