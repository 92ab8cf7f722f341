"""People and tokens on the page: made and revoked there, and a device that is invited, at a desk and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from site_pages import FurnishedServer, Site, be_patient, signed_in

import support.api as wire

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def phone(browser: Browser) -> Iterator[BrowserContext]:
    """Somebody's phone, on which nobody is signed in."""
    context = browser.new_context(locale="en-GB", viewport=PHONE, has_touch=True)
    be_patient(context)
    yield context
    context.close()


def add(page: Page, name: str, *further: str) -> None:
    form = page.get_by_role("form", name="Add a person or a program")
    form.get_by_label("Name").fill(name)
    for each in further:
        form.get_by_label(each).check()
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name=f"For {name}")).to_be_visible()


def link_of(page: Page) -> str:
    return page.get_by_role("textbox", name="Sign-in link").input_value()


def person(page: Page, name: str) -> Page:
    return page.locator(f'[data-name="{name}"]')  # type: ignore[return-value]


def test_a_person_is_added_signs_a_phone_in_and_is_revoked(site: Site, phone: BrowserContext) -> None:
    page = site.open("/people")
    expect(person(page, "main")).to_contain_text("Main token")
    expect(person(page, "main").get_by_role("button")).to_have_count(0)
    add(page, "anna", "View runs")
    token = page.get_by_role("textbox", name="Token for programs").input_value()
    assert token.startswith("askback_")
    expect(page.locator("#handed")).to_contain_text("works on this machine alone")
    expect(person(page, "anna")).to_contain_text("Answer questions · View runs")
    expect(person(page, "anna")).to_contain_text("never")
    expect(page.locator("#invitations")).to_contain_text("anna")

    mistakes: list[str] = []
    hers = phone.new_page()
    hers.on("pageerror", lambda error: mistakes.append(str(error)))
    hers.goto(link_of(page))
    expect(hers.get_by_role("heading", name="Sign in as anna?")).to_be_visible()
    assert hers.evaluate("document.documentElement.scrollWidth <= innerWidth")
    hers.get_by_role("button", name="Sign in as anna").click()
    hers.wait_for_url(re.compile(r"^http://\w+\.localhost:\d+/$"))
    expect(hers.get_by_role("link", name="Runs")).to_be_visible()
    hers.goto(hers.url + "people")
    expect(hers.get_by_role("heading", name="No access with this token")).to_be_visible()

    page.reload()
    expect(page.locator("#handed")).to_be_hidden()
    assert token not in page.content()
    expect(person(page, "anna")).to_contain_text(re.compile(r"Signed-in devices\s*1"))
    expect(person(page, "anna")).to_contain_text("page")
    page.get_by_role("button", name="Revoke the token of anna").click()
    expect(page.get_by_role("dialog")).to_contain_text("Signed-in devices that are signed out: 1.")
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(person(page, "anna")).to_have_count(0)
    hers.goto(hers.url.replace("people", ""))
    expect(hers.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    assert mistakes == []


@pytest.mark.long
def test_an_invitation_is_withdrawn_and_a_device_is_signed_out_alone(site: Site, phone: BrowserContext) -> None:
    with wire.calling(site.server.url, site.server.token) as api:
        assert api.post("/v1/tokens", json={"name": "ben", "scopes": ["answer"]}).status_code == 201
    page = site.open("/people")
    page.get_by_role("button", name="Add a device for ben").click()
    first = link_of(page)
    expect(page.get_by_role("textbox", name="Token for programs")).to_have_count(0)
    page.get_by_role("button", name="Withdraw the invitation for ben").click()
    expect(page.locator("#waiting")).to_be_hidden()
    his = phone.new_page()
    his.goto(first)
    expect(his.get_by_role("heading", name="This invitation does not work")).to_be_visible()
    page.get_by_role("button", name="Add a device for ben").click()
    expect(page.get_by_role("textbox", name="Sign-in link")).not_to_have_value(first)
    his.goto(link_of(page))
    his.get_by_role("button", name="Sign in as ben").click()
    his.wait_for_url(re.compile(r"^http://\w+\.localhost:\d+/$"))
    sessions = site.open("/sessions")
    card = sessions.locator(".session-list li", has_text="Stays signed in").filter(has_text="ben")
    card.get_by_role("button").click()
    expect(card).to_have_count(0)
    his.reload()
    expect(his.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()


@pytest.mark.long
def test_what_is_missing_is_said_before_anything_is_sent(site: Site) -> None:
    page = site.open("/people")
    expect(person(page, "main")).to_be_visible()
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#name-problem")).to_contain_text("that starts with a letter or digit")
    page.get_by_label("Name").fill("Askback")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#name-problem")).to_contain_text("is not “askback”")
    page.get_by_label("Name").fill("anna maria")
    page.get_by_label("Answer questions").uncheck()
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#name-problem")).to_be_visible()
    expect(page.locator("#scope-problem")).to_have_text("Choose at least one.")
    page.get_by_label("Name").fill("main")
    page.get_by_label("View runs").check()
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#name-problem")).to_contain_text("There is already a token with this name.")
    expect(page.get_by_label("Name")).to_be_focused()
    expect(page.get_by_label("Name")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#trouble")).to_be_hidden()


@pytest.mark.long
def test_the_time_until_something_expires_is_rounded(site: Site) -> None:
    page = site.open("/people")
    page.get_by_label("Name").fill("quarter")
    page.get_by_label("Valid for").select_option("90")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#handed")).to_contain_text("stays signed in for 365 days, or until it is not used for 90 days")
    expect(person(page, "quarter")).to_contain_text("in 3 months")
    expect(page.locator("#invitations li", has_text="quarter")).to_contain_text("in 24 hours")
    page.get_by_role("button", name="Withdraw the invitation for quarter").click()
    expect(page.locator("#invitations li", has_text="quarter")).to_have_count(0)


@pytest.mark.parametrize(
    ("language", "title"), [("en-GB", "People and tokens"), pytest.param("zh-CN", "人员与令牌", marks=pytest.mark.long)]
)
def test_the_page_fits_a_phone_in_every_language(
    furnished_server: FurnishedServer, browser: Browser, language: str, title: str, tmp_path: Path
) -> None:
    with signed_in(furnished_server, browser, locale=language, viewport=PHONE) as site:
        page = site.open("/people")
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(person(page, "main")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
