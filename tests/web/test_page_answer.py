"""The page behind a link to one question: answered without a token, once, and nothing else is to be had with it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import httpx
import pytest
from accessibility import complaints
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, be_patient

from askback.client import RunState

HOSTILE = "</script><img src=x onerror=window.__pwned=1> anna"


@pytest.fixture
def stranger(browser: Browser) -> Iterator[Page]:
    """Somebody on a phone, who has no token."""
    context = browser.new_context(locale="en-GB", viewport={"width": 360, "height": 740})
    be_patient(context)
    yield context.new_page()
    context.close()


def test_a_link_leads_to_a_page_where_its_holder_answers(furnished_server: FurnishedServer, stranger: Page) -> None:
    mistakes: list[str] = []
    stranger.on("pageerror", lambda error: mistakes.append(str(error)))
    with furnished_server.client() as client:
        run = client.wait(client.create_run("asking", engine="scripted", mode="interactive").id)
        link = client.link(run.id, recipient=HOSTILE)
        stranger.goto(link.url)
        stranger.wait_for_url("**/answers/*")
        expect(stranger.get_by_role("heading", name="A question for you")).to_be_visible()
        expect(stranger.get_by_text("Which colour?")).to_be_visible()
        assert stranger.evaluate("document.documentElement.scrollWidth <= innerWidth")
        stranger.get_by_role("button", name="red").click()
        expect(stranger.get_by_role("heading", name="Answered")).to_be_visible()
        expect(stranger.locator("#answered")).to_contain_text("The answer: red")
        expect(stranger.locator("#answered time")).to_have_attribute("title", re.compile(r"20\d\d"))
        expect(stranger.get_by_text("A question for you")).to_have_count(0)
        assert client.wait(run.id).state is RunState.SUCCEEDED
        assert client.result(run.id).data == {"colour": "red"}
        stranger.reload()
        expect(stranger.get_by_role("heading", name="Already answered")).to_be_visible()
        expect(stranger.locator("#answered")).to_contain_text("The answer: red")
        expect(stranger.locator("#answered")).to_contain_text(f"by {HOSTILE}, by link")
        assert stranger.locator("form").count() == 0
        stranger.get_by_role("button", name="中文").click()
        expect(stranger.get_by_role("heading", name="已有人回答")).to_be_visible()
        expect(stranger.locator("#answered")).to_contain_text(f"回答者：{HOSTILE}（通过链接）")
        assert stranger.evaluate("window.__pwned") is None
    assert mistakes == []


@pytest.mark.contract("N-1")
def test_of_two_answers_the_second_is_told_that_there_is_one(furnished_server: FurnishedServer, stranger: Page) -> None:
    with furnished_server.client() as client:
        run = client.wait(client.create_run("asking", engine="scripted", mode="interactive").id)
        stranger.goto(client.link(run.id).url)
        client.reply(run.id, "colour", "blue")
        stranger.get_by_role("button", name="red").click()
        expect(stranger.get_by_role("heading", name="Already answered")).to_be_visible()
        expect(stranger.locator("#answered")).to_contain_text("The answer: blue")
        expect(stranger.locator("#answered")).to_contain_text("by main, by API")
        taken = stranger.get_by_role("alert")
        expect(taken).to_have_text("Already answered by main, by API. Your answer was not used.")
        expect(stranger.locator(".unsent pre")).to_have_text("red")
        assert stranger.get_by_text("The answer was sent.").count() == 0
        client.wait(run.id)
        assert client.result(run.id).data == {"colour": "blue"}


@pytest.mark.contract("N-1")
def test_an_open_page_notices_that_somebody_else_has_answered(
    furnished_server: FurnishedServer, stranger: Page
) -> None:
    mistakes = heard(stranger)
    run_id, page = page_of(furnished_server, "trip-form")
    stranger.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stranger.goto(page)
    stranger.get_by_label("city").fill("Porto")
    stranger.get_by_label("days").fill("3")
    with furnished_server.client() as client:
        client.reply(run_id, "trip", {"city": "Lisbon"})
    expect(stranger.get_by_role("alert")).to_have_text("Already answered by main, by API. Your answer was not used.")
    expect(stranger.locator("#answered")).to_contain_text("Lisbon")
    expect(stranger.locator(".unsent")).to_contain_text("You had written this; it was not sent:")
    expect(stranger.locator(".unsent pre")).to_have_text("City: Porto\nDays: 3")
    assert stranger.locator("form").count() == 0
    picture(stranger, "link-taken")
    stranger.get_by_role("button", name="Copy").click()
    expect(stranger.get_by_role("button", name="Copied")).to_be_visible()
    assert stranger.evaluate("navigator.clipboard.readText()") == "City: Porto\nDays: 3"
    assert fits(stranger)
    assert mistakes == []


def test_a_secret_that_was_too_late_is_not_shown(furnished_server: FurnishedServer, stranger: Page) -> None:
    run_id, page = page_of(furnished_server, "secret")
    stranger.goto(page)
    stranger.locator("input[type=password]").fill("hunter-2-hunter")
    with furnished_server.client() as client:
        client.reply(run_id, "colour", "another-secret")
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.locator("#taken")).to_contain_text("Your answer was not used.")
    expect(stranger.locator("#answered")).to_contain_text("The answer is not shown.")
    assert stranger.locator(".unsent").count() == 0
    assert "hunter-2-hunter" not in stranger.content()


@pytest.mark.long
def test_a_page_that_comes_back_into_view_says_that_the_run_was_canceled(
    furnished_server: FurnishedServer, stranger: Page
) -> None:
    run_id, page = page_of(furnished_server, "asking")
    stranger.goto(page)
    expect(stranger.get_by_role("button", name="red")).to_be_visible()
    with furnished_server.client() as client:
        client.cancel(run_id)
    stranger.evaluate("window.dispatchEvent(new Event('focus'))")
    expect(stranger.get_by_role("heading", name="This question is closed")).to_be_visible()
    assert stranger.get_by_role("alert").count() == 0
    assert stranger.locator("form").count() == 0


def page_of(server: FurnishedServer, skill: str) -> tuple[str, str]:
    """A run of this skill that waits, and the page of a link to its question."""
    with server.client() as client:
        run = client.wait(client.create_run(skill, engine="scripted", mode="interactive").id)
        return run.id, client.link(run.id).url.replace("/v1/answers/", "/answers/")


def heard(page: Page) -> list[str]:
    """What goes wrong in the scripts of the page from now on."""
    mistakes: list[str] = []
    page.on("pageerror", lambda error: mistakes.append(str(error)))
    return mistakes


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("ASKBACK_TEST_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_a_link_with_a_choice_asks_for_one_tap_and_answers_nothing_by_itself(
    furnished_server: FurnishedServer, stranger: Page
) -> None:
    mistakes = heard(stranger)
    run_id, page = page_of(furnished_server, "asking")
    stranger.goto(f"{page}?choose=1")
    send = stranger.get_by_role("button", name="Send this answer")
    expect(send).to_be_visible()
    expect(stranger.locator(".chosen-label")).to_have_text("blue")
    expect(stranger.get_by_role("button", name="red")).to_be_hidden()
    assert fits(stranger)
    with furnished_server.client() as client:
        assert client.get_run(run_id).state is RunState.WAITING_USER
        send.click()
        expect(stranger.locator("#answered")).to_contain_text("The answer: blue")
        client.wait(run_id)
        assert client.result(run_id).data == {"colour": "blue"}
    assert mistakes == []


@pytest.mark.long
def test_another_answer_than_the_chosen_one_can_be_given(furnished_server: FurnishedServer, stranger: Page) -> None:
    run_id, page = page_of(furnished_server, "asking")
    for nonsense in ("9", "-1", "x", "1.5", ""):
        stranger.goto(f"{page}?choose={nonsense}")
        expect(stranger.get_by_role("button", name="red")).to_be_visible()
    stranger.goto(f"{page}?choose=1")
    stranger.get_by_role("button", name="Choose another answer").click()
    expect(stranger.get_by_role("button", name="red")).to_be_focused()
    stranger.get_by_role("button", name="red").click()
    expect(stranger.locator("#answered")).to_contain_text("The answer: red")
    with furnished_server.client() as client:
        assert client.wait(run_id).state is RunState.SUCCEEDED


def test_a_file_is_sent_as_the_answer(furnished_server: FurnishedServer, stranger: Page) -> None:
    mistakes = heard(stranger)
    run_id, page = page_of(furnished_server, "filing")
    stranger.goto(page)
    stranger.locator("input[type=file]").set_input_files(
        {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"by train"}
    )
    expect(stranger.locator(".drop-status")).to_contain_text("plan.txt")
    stranger.get_by_role("button", name="Send").first.click()
    expect(stranger.locator("#answered")).to_contain_text("The answer: the file plan.txt")
    with furnished_server.client() as client:
        assert client.wait(run_id).state is RunState.SUCCEEDED
    (copy,) = (furnished_server.world.data_dir / "runs" / run_id / "work").rglob("plan.txt")
    assert copy.read_bytes() == b"by train"
    assert mistakes == []


@pytest.mark.long
def test_a_form_is_filled_in_with_its_context_beside_it(furnished_server: FurnishedServer, stranger: Page) -> None:
    mistakes = heard(stranger)
    run_id, page = page_of(furnished_server, "trip-form")
    stranger.goto(page)
    expect(stranger.locator(".context strong")).to_have_text("train")
    expect(stranger.get_by_text("From the skill trip-form")).to_be_visible()
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.locator(".problem:visible")).to_have_count(1)
    stranger.get_by_label("city").fill("Lisbon")
    assert fits(stranger)
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.locator("#answered")).to_contain_text("Lisbon")
    with furnished_server.client() as client:
        assert client.interactions(run_id)[0].response == {"city": "Lisbon"}
    assert mistakes == []


def test_a_secret_answer_is_not_shown_again(furnished_server: FurnishedServer, stranger: Page) -> None:
    _, page = page_of(furnished_server, "secret")
    stranger.goto(page)
    stranger.locator("input[type=password]").fill("hunter-2-hunter")
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.locator("#answered")).to_contain_text("The answer was sent.")
    stranger.reload()
    expect(stranger.get_by_role("heading", name="Already answered")).to_be_visible()
    expect(stranger.locator("#answered")).to_contain_text("by main")
    assert "hunter-2-hunter" not in stranger.content()


def test_without_a_connection_the_page_says_so_and_keeps_what_was_entered(
    furnished_server: FurnishedServer, stranger: Page
) -> None:
    run_id, page = page_of(furnished_server, "trip-form")
    stranger.goto(page)
    stranger.get_by_label("city").fill("Porto")
    stranger.context.set_offline(True)
    expect(stranger.locator("#offline")).to_be_visible()
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.get_by_role("alert")).to_contain_text("The server does not respond")
    stranger.context.set_offline(False)
    expect(stranger.locator("#offline")).to_be_hidden()
    expect(stranger.get_by_label("city")).to_have_value("Porto")
    stranger.get_by_role("button", name="Send").click()
    expect(stranger.locator("#answered")).to_contain_text("Porto")
    with furnished_server.client() as client:
        assert client.wait(run_id).state is RunState.SUCCEEDED


@pytest.mark.long
def test_a_link_that_was_revoked_while_its_page_was_open_says_so(
    furnished_server: FurnishedServer, stranger: Page
) -> None:
    run_id, page = page_of(furnished_server, "asking")
    stranger.goto(page)
    with furnished_server.client() as client:
        client.revoke_links(run_id)
        stranger.get_by_role("button", name="red").click()
        expect(stranger.get_by_role("alert")).to_contain_text("no longer valid")
        stranger.reload()
        expect(stranger.get_by_role("heading", name="This link does not work")).to_be_visible()
        stranger.get_by_role("button", name="中文").click()
        expect(stranger.get_by_role("heading", name="此链接无法使用")).to_be_visible()
        picture(stranger, "link-invalid")
        assert fits(stranger)
        client.cancel(run_id)


@pytest.mark.parametrize("width", [360, pytest.param(1280, marks=pytest.mark.long)])
@pytest.mark.parametrize(("theme", "language"), [("light", "en-GB"), ("dark", "zh-CN")])
def test_the_page_can_be_read_and_used_by_everybody(
    furnished_server: FurnishedServer, browser: Browser, width: int, theme: Literal["light", "dark"], language: str
) -> None:
    found: dict[str, list[str]] = {}
    context = browser.new_context(locale=language, color_scheme=theme, viewport={"width": width, "height": 800})
    be_patient(context)
    for skill, query in (("asking", ""), ("asking", "?choose=0"), ("trip-form", ""), ("filing", "")):
        run_id, address = page_of(furnished_server, skill)
        page = context.new_page()
        page.goto(address + query)
        expect(page.locator("#question form")).to_be_visible()
        # There is no menu: a link leads to one question.
        found[skill + query] = [each for each in complaints(page) if "nav.site-nav" not in each]
        assert fits(page)
        with furnished_server.client() as client:
            client.cancel(run_id)
        page.reload()
        expect(page.locator("#answered")).to_be_visible()
        found[skill + query] += [each for each in complaints(page) if "nav.site-nav" not in each]
        page.close()
    context.close()
    assert {name: each for name, each in found.items() if each} == {}


def test_the_page_of_a_link_has_nothing_but_its_question(furnished_server: FurnishedServer) -> None:
    with furnished_server.client() as client:
        created = client.create_run("asking", engine="scripted", mode="interactive", labels={"margin": "internal-80"})
        run = client.wait(created.id)
        url = client.link(run.id).url
        text = httpx.get(url.replace("/v1/answers/", "/answers/"), headers={"Accept": "text/html"}).text
        found = re.search(r'id="first">(.*?)</script>', text)
        assert found is not None
        given = json.loads(found[1])
        shown = {"reply_required", "wait_deadline_at", "interactive_profile"}
        assert given.keys() - shown == httpx.get(url).json().keys()
        assert given["interactive_profile"].keys() == {"kind"}
        assert "internal-80" not in text
        assert run.id not in text
        client.cancel(run.id)


def test_a_link_opens_nothing_but_its_question(furnished_server: FurnishedServer) -> None:
    with furnished_server.client() as client:
        run = client.wait(client.create_run("asking", engine="scripted", mode="interactive").id)
        url = client.link(run.id).url.replace("/v1/answers/", "/answers/")
        page = {"Accept": "text/html"}
        assert httpx.get(url, headers=page).status_code == 200
        assert httpx.get(f"{url}/static/app.css").status_code == 200
        assert httpx.get(f"{url}x", headers=page).status_code == 401
        assert httpx.get(f"{url}/static/../../../v1/runs").status_code in (401, 404)
        for path in ("/", "/runs", f"/runs/{run.id}", "/static/app.css", "/v1/runs"):
            assert httpx.get(furnished_server.url + path).status_code == 401
        client.cancel(run.id)
