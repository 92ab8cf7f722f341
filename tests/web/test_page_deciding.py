"""What a user needs to decide is in one place: the question, its context, what led to it, and the answer, all in view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import Site, signed_in

import support.api as wire
from support.data_folder import FINISH, World
from support.server import Server

COMMIT = "1f2e3d4c5b6a"
CONTEXT = f"| check | before | after |\n|---|---|---|\n| commit | {COMMIT} | 9a8b7c6d5e4f |\n" + "\n".join(
    f"| number {number} | low | high |" for number in range(20)
)
ROLL_OUT = {"interaction_id": "roll", "prompt": "Roll out?", "kind": "confirm", "context": CONTEXT}
LONG = "\n".join(f"{number}. Item {number} of the order has not arrived, and nobody knows why." for number in range(30))
TALL = [{"label": f"Policy {number}", "value": number, "description": "When it is lost. " * 12} for number in range(6)]
SIZES = [(375, 800), (1280, 640), (1360, 860), (1920, 1080)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("deciding"))
    written = {"write": {"path": "artifacts/plan.md", "text": "drain"}}
    rewritten = {"write": {"path": "artifacts/plan.md", "text": "drain, migrate"}}
    world.skill(
        [{"say": "I would **wait**."}, written, {"ask": ROLL_OUT}],
        [{"say": "Then I start."}, rewritten, {"ask": {"interaction_id": "where", "prompt": "Where?"}}],
        [FINISH],
        name="rolling",
    )
    world.skill([{"ask": {"interaction_id": "long", "prompt": LONG, "options": TALL}}], [FINISH], name="policies")
    with Server(world) as server:
        yield server


@pytest.fixture
def site(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser) as site:
        yield site


def height_in(page: Page, part: Locator) -> float:
    """How many pixels of it are in the window, and not behind the answer or another part."""
    return float(
        part.evaluate(
            """each => {
              const box = each.getBoundingClientRect();
              let seen = 0;
              for (let y = Math.max(box.top, 0); y < Math.min(box.bottom, innerHeight); y += 4) {
                if (each.contains(document.elementFromPoint(box.left + 20, y))) seen += 4;
              }
              return seen;
            }"""
        )
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_long_prompt_is_readable_beside_tall_options(site: Site, width: int, height: int) -> None:
    run_id = wire.waiting(site.api, "policies")
    for path in (f"/runs/{run_id}", f"/?run={run_id}&question=long"):
        page = site.open(path)
        page.set_viewport_size({"width": width, "height": height})
        prompt = page.locator(".question-text .prompt")
        expect(prompt).to_contain_text("Item 29")
        assert height_in(page, prompt) >= 80, path
        expect(page.locator(".option").first).to_be_visible()
        page.close()


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_whole_context_and_the_answer_are_in_one_pane(site: Site, width: int, height: int) -> None:
    run_id = wire.waiting(site.api, "rolling")
    link = site.api.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
    for address in (f"{site.url}/?run={run_id}&question=roll", f"{site.url}/runs/{run_id}", link):
        page = site.context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address)
        expect(page.locator(".question-text .prompt")).to_have_text("Roll out?")
        body = page.locator(".question-text .context-body").last
        assert body.evaluate("each => each.scrollHeight <= each.clientHeight + 1"), "the context is cut off"
        page.locator(".question-text").last.evaluate("each => each.scrollIntoView({block: 'start'})")
        for option in page.locator(".question-bar .option").all():
            expect(option).to_be_in_viewport(ratio=1)
        lines = page.locator(".question-text td", has_text=COMMIT).last.evaluate(
            "each => { const range = document.createRange(); range.selectNodeContents(each); return range.getClientRects().length; }"
        )
        assert lines == 1, "a word is broken"
        page.close()


def test_the_inbox_shows_what_led_to_a_question(site: Site) -> None:
    run_id = wire.waiting(site.api, "rolling")
    page = site.open(f"/?run={run_id}&question=roll")
    expect(page.locator(".background strong", has_text="wait")).to_be_visible()
    expect(page.locator(".background-files a")).to_have_text("plan.md")
    assert wire.reply(site.api, run_id, "yes", "roll").status_code == 202
    wire.reach(site.api, run_id, "waiting_user")
    page = site.open(f"/?run={run_id}&question=where")
    background = page.locator(".background")
    expect(background.get_by_text("Then I start.")).to_be_visible()
    expect(background.get_by_text("I would wait.")).to_have_count(0)
    expect(background.locator(".background-earlier")).to_contain_text("Roll out?")
    expect(background.locator(".background-earlier .reply")).to_have_text("Yes")
    with page.context.expect_page() as opened:
        background.get_by_role("link", name="plan.md").click()
    expect(opened.value.locator(".change-added")).to_have_text("+drain, migrate")


def test_a_user_who_may_only_answer_sees_what_led_to_a_question_and_no_links(site: Site, browser: Browser) -> None:
    run_id = wire.waiting(site.api, "rolling")
    token = site.api.post("/v1/tokens", json={"name": f"only-{run_id}", "scopes": ["answer"]}).json()["token"]
    context = browser.new_context(locale="en-GB")
    headers = site.server.session(token)
    name, _, value = headers["cookie"].partition("=")
    context.add_cookies([{"name": name, "value": value, "url": f"http://{headers['host']}"}])
    page = context.new_page()
    page.goto(f"http://{headers['host']}/?run={run_id}&question=roll")
    expect(page.locator(".background strong", has_text="wait")).to_be_visible()
    expect(page.locator(".background-files")).to_have_text("plan.md")
    expect(page.locator(".question a")).to_have_count(0)
    context.close()
