"""What the page offers for a run: follow it up, answer a question differently, delete it; and where a run came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect
from site_pages import Site, press, signed_in

import support.api as wire
from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope
from support.data_folder import ASK, World
from support.server import Server

RUN_PAGE = re.compile(r"/runs/[0-9a-z]{16}$")
SIZE = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
FINISH = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
TOPIC = {"type": "object", "required": ["topic"], "properties": {"topic": {"type": "string"}}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("continued"))
    world.skill([ASK], [SIZE], [FINISH], [FINISH], output=ANY, name="twice")
    runner = {"id": "topical", "execution_modes": ["auto", "interactive"]}
    again = {"finish": {"colour": "{{input.topic}}"}}
    world.skill([again], [again], output=ANY, name="topical", schemas={"input": TOPIC}, runner=runner)
    world.skill([ASK], [{"misbehave": "other_session"}, FINISH], output=ANY, name="forgetful")
    secret = {"ask": {"interaction_id": "password", "kind": "secret", "prompt": "Password?"}}
    world.skill([secret], [ASK], [FINISH], output=ANY, name="secretive")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture
def site(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser) as site:
        yield site


def finished(api: httpx.Client, skill: str = "twice", *answers: str) -> str:
    """A run whose questions were answered so, and that is over."""
    run_id = wire.start(api, skill, options={"turn_timeout_sec": 600})
    for answer in answers:
        asked = wire.reach(api, run_id, "waiting_user")["pending_interaction"]
        assert wire.reply(api, run_id, answer, asked["interaction_id"]).status_code == 202
    wire.over(api, run_id)
    return run_id


@pytest.mark.contract("J-4")
def test_an_answered_question_is_answered_differently_in_another_run(site: Site) -> None:
    source = finished(site.api, "twice", "red", "large")
    page = site.open(f"/runs/{source}")
    expect(page.get_by_role("button", name="Answer differently")).to_have_count(2)
    page.locator(".asked", has_text="Which size?").get_by_role("button", name="Answer differently").click()
    expect(page.get_by_role("dialog")).to_contain_text("This run stays as it is")
    page.get_by_role("button", name="Ask again").click()
    page.wait_for_url(lambda url: RUN_PAGE.search(url) is not None and source not in url)
    expect(page.locator("#state")).to_have_text("Waiting for you")
    expect(page.locator(".run-from")).to_have_text(f"Forked at question “size” of run {source}")
    fork = page.url.rpartition("/")[2]
    page.get_by_role("textbox", name="Which size?").fill("small")
    press(page.get_by_role("button", name="Send"))
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator("#result")).to_contain_text("small")
    assert site.api.get(f"/v1/runs/{fork}/result").json()["data"] == {"colour": ["red", "small"]}
    assert site.api.get(f"/v1/runs/{source}/result").json()["data"] == {"colour": ["red", "large"]}
    page.locator(".run-from").get_by_role("link", name=source).click()
    page.wait_for_url(f"**/runs/{source}")


@pytest.mark.contract("J-3")
def test_a_run_that_ends_while_it_is_watched_can_be_followed_up(site: Site) -> None:
    run_id = wire.start(site.api, "twice")
    page = site.open(f"/runs/{run_id}")
    expect(page.locator("#state")).to_have_text("Waiting for you")
    expect(page.get_by_role("link", name="Follow up")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    press(page.get_by_role("button", name="blue"))
    expect(page.get_by_role("textbox", name="Which size?")).to_be_visible()
    expect(page.get_by_role("button", name="Answer differently")).to_have_count(1)
    page.get_by_role("textbox", name="Which size?").fill("large")
    press(page.get_by_role("button", name="Send"))
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    page.get_by_role("link", name="Follow up").click()
    page.wait_for_url(f"**follow={run_id}")
    told = page.locator(".again")
    expect(told).to_contain_text("Follows up run")
    expect(told).to_contain_text("scripted")
    expect(page.get_by_role("radio", name="scripted")).to_have_count(0)
    expect(page.get_by_label("Value")).to_have_value("")
    page.get_by_label("Value").fill("And now the ceiling.")
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/v1/runs")) as sent:
        page.get_by_role("button", name="Start run").click()
    assert sent.value.post_data_json["input"] == {"request": "And now the ceiling."}
    assert sent.value.post_data_json["from_run"] == {"run_id": run_id, "files": "workspace", "session": True}
    page.wait_for_url(lambda url: RUN_PAGE.search(url) is not None and run_id not in url)
    expect(page.locator(".run-from")).to_have_text(f"Continues run {run_id}")
    expect(page.locator("#state")).to_have_text("Succeeded")
    follow_up = page.url.rpartition("/")[2]
    assert site.api.get(f"/v1/runs/{follow_up}/result").json()["data"] == {"colour": ["blue", "large"]}


@pytest.mark.long
def test_a_skill_with_a_schema_is_followed_up_with_its_form(site: Site) -> None:
    run_id = wire.start(site.api, "topical", mode="auto", input={"topic": "walls"})
    wire.over(site.api, run_id)
    page = site.open(f"/new?skill=topical&follow={run_id}")
    expect(page.get_by_label("Topic")).to_have_value("walls")
    page.get_by_label("Topic").fill("ceilings")
    page.get_by_role("button", name="Start run").click()
    page.wait_for_url(RUN_PAGE)
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator("#input")).to_contain_text("ceilings")


def test_a_run_is_deleted_only_after_a_confirmation(site: Site) -> None:
    run_id = finished(site.api, "twice", "red", "large")
    page = site.open(f"/runs/{run_id}")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("This cannot be undone")
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert site.api.get(f"/v1/runs/{run_id}").status_code == 200
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete run").click()
    page.wait_for_url("**/runs")
    assert site.api.get(f"/v1/runs/{run_id}").status_code == 404


@pytest.mark.long
def test_a_deleted_source_is_named_but_not_linked(site: Site) -> None:
    source = finished(site.api, "twice", "red", "large")
    origin = {"run_id": source, "files": "artifacts"}
    run_id = wire.start(site.api, "topical", input={"topic": "x"}, from_run=origin)
    page = site.open(f"/runs/{run_id}")
    expect(page.locator(".run-from")).to_have_text(f"Began with the files of run {source}")
    assert site.api.delete(f"/v1/runs/{source}").status_code == 204
    page.reload()
    expect(page.locator(".run-from")).to_have_text(f"Began with the files of run {source} (deleted)")
    expect(page.locator(".run-from").get_by_role("link")).to_have_count(0)


@pytest.mark.long
def test_a_session_with_a_secret_answer_is_not_offered(site: Site) -> None:
    run_id = finished(site.api, "secretive", "hunter2-hunter2", "red")
    page = site.open(f"/runs/{run_id}")
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.get_by_role("link", name="Run again")).to_be_visible()
    expect(
        page.locator(".asked", has_text="Password?").get_by_role("button", name="Answer differently")
    ).to_be_visible()
    expect(page.get_by_role("button", name="Answer differently")).to_have_count(1)
    expect(page.get_by_role("link", name="Follow up")).to_have_count(0)


def test_who_may_only_read_is_offered_nothing(site: Site, server: Server, world: World) -> None:
    run_id = finished(site.api, "twice", "red", "large")
    tokens = Tokens(world.records, now)
    session = server.session(tokens.make("reader", (AccessScope.READ,), None))
    with httpx.Client(base_url=server.url, headers={"accept": "text/html"} | session) as client:
        for address in (f"/runs/{run_id}", f"/runs/{run_id}/actions"):
            shown = client.get(address).text
            assert not any(word in shown for word in ("follow=", "again=", 'id="delete"', "data-fork"))
        assert client.get("/new", params={"skill": "twice", "follow": run_id}).status_code == 403


@pytest.mark.contract("J-5")
def test_a_rebuilt_session_is_told_with_its_meaning(site: Site) -> None:
    run_id = wire.waiting(site.api, "forgetful", options={"on_lost_session": "rebuild"})
    page = site.open(f"/runs/{run_id}")
    press(page.get_by_role("button", name="red"))
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator(".alert-warn")).to_contain_text("The engine had lost its session")
    expect(page.locator(".alert-warn")).to_contain_text("CONTEXT_REBUILT: turn 2 could not resume the session")
    expect(page.get_by_role("heading", name="Turn 3, in a new session")).to_be_visible()
    assert [each["code"] for each in wire.get(site.api, run_id)["warnings"]] == ["CONTEXT_REBUILT"]
    expect(page.get_by_role("button", name="Answer differently")).to_have_count(0)
    expect(page.get_by_role("link", name="Follow up")).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.long), 390])
def test_the_actions_fit_the_window(site: Site, tmp_path: Path, language: str, width: int) -> None:
    source = finished(site.api, "twice", "red", "large")
    page = site.open(f"/runs/{source}")
    page.set_viewport_size({"width": width, "height": 900})
    page.context.add_cookies([{"name": "askback_language", "value": language, "url": page.url}])
    page.reload()
    expect(page.locator(".fork:not([hidden])")).to_have_count(2)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
