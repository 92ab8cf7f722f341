"""An inbox with more questions than one page holds: all can be reached, the count is true, and what is open stays live."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from crowds import crowd
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

PAGE = 200
BEHIND = 4


@pytest.fixture(scope="module")
def crowded_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("crowd"))
    world.skill([ASK], [FINISH], name="asking")
    return world


@pytest.fixture(scope="module")
def waiting(crowded_world: World) -> list[str]:
    """The runs that wait, the oldest first."""
    return crowd(crowded_world, "asking", PAGE + BEHIND)


@pytest.fixture
def crowded(crowded_world: World, waiting: list[str], browser: Browser) -> Iterator[Site]:
    with Server(crowded_world) as server, signed_in(server, browser) as site:
        yield site


def rows(page: Page) -> Locator:
    return page.locator(".inbox-row")


def row(page: Page, place: int) -> Locator:
    return rows(page).nth(place)


def answer(page: Page, place: int, run_id: str, option: str) -> None:
    row(page, place).locator(".row-button").click()
    card = page.locator("article", has=page.locator(f"a[href='/runs/{run_id}']"))
    card.get_by_role("button", name=option).click()
    expect(page.locator(".sent-row", has=page.locator(f"a[href='/runs/{run_id}']"))).to_be_visible()


def expect_count(page: Page, count: int) -> None:
    """The same number in the tab's title, beside the menu and below the heading."""
    expect(page).to_have_title(f"({count}) Inbox · Askback")
    expect(page.locator("#inbox-count")).to_have_text(str(count))
    expect(page.locator("#inbox-summary")).to_have_text(f"{count} pending questions: deadlines first, then the oldest.")


def test_all_questions_are_counted_and_reached_and_those_behind_the_first_page_live_too(
    crowded: Site, waiting: list[str]
) -> None:
    page, other = crowded.open("/"), crowded.open("/")
    expect(rows(page)).to_have_count(PAGE)
    expect_count(page, len(waiting))
    expect(page.get_by_text(f"Showing {PAGE} of {len(waiting)}.")).to_be_visible()
    page.get_by_role("button", name="Show more").click()
    expect(rows(page)).to_have_count(len(waiting))
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    expect(row(page, PAGE).locator(".row-button")).to_be_focused()

    # One of those behind is answered elsewhere, one here, and a new one comes, which only the second page has.
    last, behind, first = waiting.pop(), waiting.pop(-2), waiting.pop(0)
    assert wire.reply(crowded.api, last, "red").status_code == 202
    expect(rows(page)).to_have_count(len(waiting) + 2)
    expect_count(page, len(waiting) + 2)
    answer(page, PAGE + 1, behind, "red")
    expect(rows(page)).to_have_count(len(waiting) + 1)
    expect_count(page, len(waiting) + 1)
    waiting.append(wire.waiting(crowded.api))
    expect(rows(page)).to_have_count(len(waiting) + 1)

    # Who has only the first page open: what slides into it is nothing new.
    expect(rows(other)).to_have_count(PAGE)
    expect_count(other, len(waiting) + 1)
    answer(other, 0, first, "blue")
    expect_count(other, len(waiting))
    expect(rows(other)).to_have_count(PAGE)
    expect(other.locator(".toast", has_text=re.compile("New question"))).to_have_count(0)


@pytest.mark.long
def test_an_answer_is_counted_at_once_while_the_stream_is_away(crowded: Site, waiting: list[str]) -> None:
    crowded.context.route("**/v1/inbox", lambda route: route.abort())
    page = crowded.open("/")
    expect(rows(page)).to_have_count(PAGE)
    answer(page, 0, waiting.pop(0), "blue")
    expect(page.locator("#inbox-summary")).to_contain_text(f"{len(waiting)} pending questions")
    expect(page.get_by_text(f"Showing {PAGE - 1} of {len(waiting)}.")).to_be_visible()
    page.close()
    crowded.mistakes.clear()
