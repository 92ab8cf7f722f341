"""Several questions in one ask on the page: one form with one button in the inbox, on the run's page and behind a link."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, be_patient, press, signed_in

from askback.client import Client
from support.data_folder import World
from support.program import until
from support.server import Server

ANY: dict[str, Any] = {"type": "object"}
QUESTIONS = [
    {"id": "pace", "prompt": "What pace?", "options": [{"label": "Relaxed", "value": "slow"}, "packed"]},
    {"id": "nights", "prompt": "How many nights?", "response_schema": {"type": "integer", "minimum": 1}, "default": 2},
    {"id": "dog", "prompt": "With a dog?", "kind": "confirm"},
    {"id": "pin", "prompt": "Which PIN?", "kind": "secret"},
    {"id": "note", "prompt": "Anything else?", "context": "We read it.", "required": False},
]
FORM = {"ask": {"interaction_id": "trip", "prompt": "About your trip", "questions": QUESTIONS}}
FINISH = {"finish": {"pace": "{{reply_json.pace}}", "nights": "{{reply_json.nights}}", "dog": "{{reply_json.dog}}"}}
PIN = "hunter2-hunter2"
RESULT = {"pace": "slow", "nights": 3, "dog": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("forms"))
    world.skill([FORM], [FINISH], name="trip", output=ANY)
    with Server(world) as server:
        yield server


@pytest.fixture
def site(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser) as site:
        yield site


@pytest.fixture
def desk(server: Server) -> Iterator[Client]:
    with Client(server.url, server.token) as client:
        yield client


def waiting(desk: Client) -> str:
    return desk.wait(desk.create_run("trip", engine="scripted", mode="interactive").id).id


def fill(form: Locator) -> None:
    form.get_by_role("radio", name="Relaxed").check()
    form.get_by_label("How many nights?").fill("3")
    form.get_by_role("radiogroup", name="With a dog?").get_by_role("radio", name="No").check()
    form.get_by_label("Which PIN?").fill(PIN)


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("ASKBACK_TEST_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@pytest.mark.contract("N-6")
def test_the_inbox_asks_all_questions_in_one_form(site: Site, desk: Client) -> None:
    run_id = waiting(desk)
    page = site.open("/")
    card = page.locator("article.question")
    expect(card.get_by_role("heading", name="About your trip")).to_be_visible()
    expect(page.locator(".row-about").first).to_contain_text("5 questions")
    form = card.locator("form.answer")
    expect(form.get_by_label("Which PIN?")).to_have_attribute("type", "password")
    expect(form.get_by_label("How many nights?")).to_have_value("2")
    picture(page, "inbox")
    send = form.get_by_role("button", name="Send")
    expect(send).to_have_count(1)
    send.click()
    expect(form.locator(".field-wrong")).to_have_count(3)
    picture(page, "inbox-problems")
    fill(form)
    expect(form.locator(".field-wrong")).to_have_count(0)
    send.click()
    until(lambda: desk.get_run(run_id).state == "succeeded")
    assert desk.result(run_id).data == RESULT
    page.goto(f"{site.url}/answered")
    said = page.locator(".answered-row").first
    expect(said).to_contain_text("What pace? Relaxed · How many nights? 3 · With a dog? No")
    expect(said).to_contain_text("Which PIN? (secret)")
    assert PIN not in page.content()


@pytest.mark.contract("N-6")
def test_the_run_shows_the_questions_and_each_answer(site: Site, desk: Client) -> None:
    run_id = waiting(desk)
    page = site.open(f"/runs/{run_id}")
    form = page.locator(".pinned form.answer")
    expect(page.locator(".form-questions li")).to_have_count(5)
    fill(form)
    picture(page, "run")
    page.reload()
    expect(form.get_by_role("radio", name="Relaxed")).to_be_checked()
    expect(form.get_by_label("Which PIN?")).to_have_value("")
    fill(form)
    press(form.get_by_role("button", name="Send"))
    answers = page.locator(".form-answers")
    expect(answers).to_contain_text("Relaxed")
    expect(answers.locator("dd")).to_have_text(["Relaxed", "3", "No", "not shown", "No answer"])
    picture(page, "run-answered")
    assert PIN not in page.content()
    assert desk.wait(run_id).state == "succeeded"
    assert desk.result(run_id).data == RESULT


@pytest.mark.contract("N-6")
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 360])
def test_a_link_opens_one_form_for_all_questions(server: Server, browser: Browser, desk: Client, width: int) -> None:
    run_id = waiting(desk)
    context = browser.new_context(locale="en-GB", viewport={"width": width, "height": 740})
    be_patient(context)
    page = context.new_page()
    page.goto(desk.link(run_id).url)
    form = page.locator("form.answer")
    expect(form.get_by_label("Anything else?")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, f"link-{width}")
    fill(form)
    press(form.get_by_role("button", name="Send"))
    expect(page.get_by_role("heading", name="Answered")).to_be_visible()
    expect(page.locator(".form-answers dd")).to_have_text(["Relaxed", "3", "No", "not shown", "No answer"])
    picture(page, f"link-answered-{width}")
    assert PIN not in page.content()
    assert desk.wait(run_id).state == "succeeded"
    assert desk.result(run_id).data == RESULT
    context.close()


@pytest.mark.contract("N-6")
def test_a_problem_that_the_server_finds_is_shown_at_its_question(site: Site, desk: Client) -> None:
    run_id = waiting(desk)
    page = site.open(f"/runs/{run_id}")
    form = page.locator(".pinned form.answer")
    fill(form)
    problem = json.dumps(
        {
            "code": "REPLY_INVALID",
            "title": "no",
            "status": 422,
            "problems": ["response.nights: is odd"],
            "errors": [{"path": ["response", "nights"], "code": "invalid", "message": "is odd"}],
        }
    )
    page.route(
        "**/reply", lambda route: route.fulfill(status=422, content_type="application/problem+json", body=problem)
    )
    press(form.get_by_role("button", name="Send"))
    expect(form.locator(".field-wrong")).to_contain_text("How many nights?")
    expect(form.locator(".field-wrong")).to_contain_text("is odd")
    desk.cancel(run_id)
