"""The page behind a link to one question: answered without a token, once, and nothing else is to be had with it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, be_patient

from askback.client import RunState

HOSTILE = "</script><img src=x onerror=window.__pwned=1> anna"

pytestmark = pytest.mark.xdist_group("browser")


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
        expect(stranger.get_by_role("status")).to_contain_text("The answer: red")
        expect(stranger.get_by_role("status")).to_contain_text(re.compile(r"20\d\d"))
        expect(stranger.get_by_text("A question for you")).to_have_count(0)
        assert client.wait(run.id).state is RunState.SUCCEEDED
        assert client.result(run.id).data == {"colour": "red"}
        stranger.reload()
        expect(stranger.get_by_role("heading", name="Answered")).to_be_visible()
        expect(stranger.get_by_role("status")).to_contain_text("The answer: red")
        expect(stranger.get_by_role("status")).to_contain_text(f"By {HOSTILE}, by link")
        assert stranger.locator("form").count() == 0
        stranger.get_by_role("button", name="中文").click()
        expect(stranger.get_by_role("heading", name="已回答")).to_be_visible()
        expect(stranger.get_by_role("status")).to_contain_text(f"回答者：{HOSTILE}（通过链接）")
        assert stranger.evaluate("window.__pwned") is None
    assert mistakes == []


@pytest.mark.contract("N-1")
def test_of_two_answers_the_second_is_told_that_there_is_one(furnished_server: FurnishedServer, stranger: Page) -> None:
    with furnished_server.client() as client:
        run = client.wait(client.create_run("asking", engine="scripted", mode="interactive").id)
        stranger.goto(client.link(run.id).url)
        client.reply(run.id, "colour", "blue")
        stranger.get_by_role("button", name="red").click()
        expect(stranger.get_by_role("heading", name="Answered")).to_be_visible()
        expect(stranger.get_by_role("status")).to_contain_text("The answer: blue")
        expect(stranger.get_by_role("status")).to_contain_text("By main, by API")
        client.wait(run.id)
        assert client.result(run.id).data == {"colour": "blue"}


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
