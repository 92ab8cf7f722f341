"""The lists: runs and skills, full and empty, searched and filtered, on a desk and a phone."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import FurnishedServer, Site, signed_in

from support.api import over, reach, reply, start, waiting
from support.data_folder import World
from support.server import Server

EVERY_PAGE = ("/runs", "/new?skill=reads", "/skills", "/skills/trip-planner", "/engines", "/dashboard")
EVIL = "<img src=x onerror=document.title='owned'>"
HOSTILE = f"""---
name: hostile
description: "{EVIL}"
---
# Head {EVIL}

<script>document.title = "owned"</script>
[click](javascript:document.title='owned') and `{EVIL}`

| a | b |
|---|---|
| {EVIL} | 2 |
"""
SCHEMA = (
    '{"type": "object", "properties": {"x": {"type": "string", "description": "</script><script>alert(1)</script>"}}}'
)


_DROP = """(place, bytes) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(bytes)], "dropped.zip", { type: "application/zip" }));
    place.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def zipped(files: dict[str, str]) -> dict[str, Any]:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return {"name": "skill.zip", "mimeType": "application/zip", "buffer": packed.getvalue()}


def rows(page: Page) -> Locator:
    return page.locator(".run-row")


def expect_runs(page: Page, ids: list[str]) -> None:
    """Those and no others, in that order, once the page is there."""
    if ids:
        expect(rows(page).first).to_have_attribute("href", f"/runs/{ids[0]}")
    expect(rows(page)).to_have_count(len(ids))
    found = rows(page).evaluate_all("(rows) => rows.map((row) => row.getAttribute('href'))")
    assert found == [f"/runs/{each}" for each in ids]


@pytest.fixture(scope="module")
def furnished_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FurnishedServer]:
    """One of our own: the lists are compared whole."""
    with FurnishedServer(World(tmp_path_factory.mktemp("lists"))) as server:
        yield server


@pytest.fixture(scope="module")
def runs(furnished_server: FurnishedServer, browser: Browser) -> Iterator[dict[str, str]]:
    """One that waits, one that succeeded after an answer, one that was canceled, the newest last."""
    with signed_in(furnished_server, browser) as site:
        asked = waiting(site.api)
        answered = waiting(site.api)
        assert reply(site.api, answered, "red").status_code == 202
        over(site.api, answered)
        gone = waiting(site.api, "trip-planner", input={"destination": "Oslo", "days": 1})
        site.api.post(f"/v1/runs/{gone}/cancel")
        over(site.api, gone)
        yield {"waits": asked, "done": answered, "gone": gone}


def test_runs_are_filtered_by_state_skill_and_words(site: Site, runs: dict[str, str]) -> None:
    page = site.open("/runs")
    expect_runs(page, [runs["gone"], runs["done"], runs["waits"]])
    expect(rows(page).nth(2)).to_contain_text("Which colour?")
    page.get_by_role("link", name="Succeeded 1", exact=True).click()
    expect_runs(page, [runs["done"]])
    page.get_by_role("link", name="All 3", exact=True).click()
    expect(rows(page)).to_have_count(3)
    page.wait_for_load_state()
    page.get_by_label("Skill", exact=True).select_option("trip-planner")
    page.wait_for_url("**/runs?skill=trip-planner")
    expect_runs(page, [runs["gone"]])
    page.goto(f"{site.url}/runs")
    page.get_by_role("searchbox").fill(f"COLOUR {runs['waits'][-5:]}")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=*")
    expect_runs(page, [runs["waits"]])
    page.get_by_role("searchbox").fill("zebra")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", name="No matching runs")).to_be_visible()
    page.get_by_role("link", name="Show all runs").click()
    expect(rows(page)).to_have_count(3)


@pytest.mark.long
def test_a_list_of_runs_changes_with_the_inbox(site: Site, runs: dict[str, str]) -> None:
    page = site.open("/runs?state=waiting_user")
    expect_runs(page, [runs["waits"]])
    expect(page.locator("#inbox-count")).to_have_text("1")
    more = waiting(site.api)
    expect(page.locator(f"a[href='/runs/{more}']")).to_be_visible()
    site.api.post(f"/v1/runs/{more}/cancel")
    expect(rows(page)).to_have_count(1)


@pytest.mark.long
def test_pages_of_runs_follow_each_other(site: Site, runs: dict[str, str]) -> None:
    made = [start(site.api, "plain", mode="auto") for _ in range(52)]
    page = site.open("/runs?skill=plain")
    expect_runs(page, made[:1:-1])
    page.get_by_role("link", name="Older runs").click()
    page.wait_for_url("**cursor=*")
    expect_runs(page, made[1::-1])
    page.get_by_role("link", name="Back to the newest").click()
    expect(rows(page)).to_have_count(50)
    for each in made:
        over(site.api, each)


def test_no_length_of_time_has_sixty_of_a_unit(site: Site) -> None:
    told = site.open("/dashboard").evaluate(
        "async () => [9.96, 59.6, 119.7, 7190].map((await import('/static/time.js')).duration)"
    )
    assert told == ["10 s", "1 min", "2 min", "2 h"]


def test_a_list_of_runs_and_the_dashboard_change_with_every_run_and_keep_the_focus(
    site: Site, furnished_server: FurnishedServer, runs: dict[str, str]
) -> None:
    page, queue, dashboard = site.open("/runs"), site.open("/runs?state=queued"), site.open("/dashboard")
    gated = start(site.api, "gated", mode="auto")
    row = page.locator(f"a[href='/runs/{gated}']")
    expect(row).to_contain_text("Running")
    slots = dashboard.get_by_role("img", name=re.compile(r"1 of \d+ slots in use"))
    expect(slots).to_be_visible()
    ended = dashboard.locator("#runs-heading + p")
    before = ended.text_content()
    row.focus()
    (furnished_server.world.data_dir / "runs" / gated / "work" / "go").touch()
    expect(row).to_contain_text("Succeeded")
    expect(row).to_be_focused()
    expect(slots).to_have_count(0)
    expect(ended).not_to_have_text(before or "")
    expect(queue.get_by_role("heading", name="No matching runs")).to_be_visible()


@pytest.mark.long
def test_a_list_is_renewed_only_for_runs_that_concern_it(site: Site, runs: dict[str, str]) -> None:
    fetched: list[str] = []
    site.context.on("response", lambda response: fetched.append(response.url) if "/runs?" in response.url else None)
    page = site.open("/runs?skill=gated&state=canceled")
    expect(page.get_by_role("heading", name="No matching runs")).to_be_visible()
    for _ in range(4):
        over(site.api, start(site.api, "plain", mode="auto"))
    gone = start(site.api, "gated", mode="auto")
    reach(site.api, gone, "running")
    site.api.post(f"/v1/runs/{gone}/cancel")
    expect(page.locator(f"a[href='/runs/{gone}']")).to_contain_text("Canceled")
    # The page itself, once more when the stream had begun, and for the one run that belongs there.
    assert len([url for url in fetched if "/v1/" not in url]) <= 3


def test_a_skill_shows_its_text_and_its_schemas(site: Site) -> None:
    page = site.open("/skills")
    page.get_by_role("searchbox").fill("trip")
    expect(page.get_by_role("link", name="plain", exact=True)).to_be_hidden()
    page.get_by_role("link", name="trip-planner", exact=True).click()
    expect(page.get_by_role("heading", name="Steps")).to_be_visible()
    days = page.get_by_role("row", name="days required integer")
    expect(days.first).to_contain_text("maximum: 30")
    page.get_by_text("Show JSON Schema").first.click()
    expect(page.get_by_text('"minLength": 1').first).to_be_visible()
    page.get_by_role("link", name="Run", exact=True).click()
    page.wait_for_url("**/new?skill=trip-planner")
    page.goto(f"{site.url}/skills")
    page.get_by_role("link", name="Run trip-planner").click()
    page.wait_for_url("**/new?skill=trip-planner")


def test_a_skill_is_installed_from_a_zip_and_removed(site: Site) -> None:
    page = site.open("/skills")
    drop = page.get_by_role("button", name="Install a skill")
    drop.set_input_files(zipped({"bad/SKILL.md": "no front matter"}))
    expect(page.get_by_role("alert")).to_contain_text("front matter")
    drop.set_input_files(zipped({"hostile/SKILL.md": HOSTILE, "hostile/assets/input.schema.json": SCHEMA}))
    page.wait_for_url("**/skills/hostile")
    assert page.locator("main script[src], main img, main a[href^=javascript]").count() == 0
    expect(page.get_by_text(EVIL).first).to_be_visible()
    page.goto(f"{site.url}/new?skill=hostile")
    expect(page.get_by_text("</script><script>alert(1)</script>")).to_be_visible()
    assert "owned" not in page.title()
    page.goto(f"{site.url}/skills/hostile")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_url("**/skills")
    assert page.get_by_role("link", name="hostile", exact=True).count() == 0


@pytest.mark.long
def test_a_skill_is_installed_by_a_file_dropped_anywhere_on_the_page(site: Site) -> None:
    page = site.open("/skills")
    bad = zipped({"bad/SKILL.md": "no front matter"})["buffer"]
    good = zipped({"dropped/SKILL.md": "---\nname: dropped\ndescription: From a drop.\n---\nDo it.\n"})["buffer"]
    for packed in (bad, good):
        page.locator("main").evaluate(_DROP, [*packed])
        if packed is bad:
            expect(page.get_by_role("alert")).to_contain_text("dropped.zip was not installed.")
            expect(page.get_by_role("alert")).to_contain_text("front matter")
            expect(page.locator("#install-status")).to_be_hidden()
    page.wait_for_url("**/skills/dropped")
    assert site.api.delete("/v1/skills/dropped").status_code == 204


def test_no_page_is_wider_than_a_phone_and_each_has_its_landmarks(
    furnished_server: FurnishedServer, browser: Browser, runs: dict[str, str]
) -> None:
    with signed_in(furnished_server, browser, locale="zh-CN", viewport={"width": 360, "height": 740}) as site:
        page = site.open("/runs")
        for path in EVERY_PAGE:
            page.goto(site.url + path)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert page.evaluate("document.documentElement.lang") == "zh", path
            marks = [page.locator(mark).count() for mark in ("main", "h1", "header nav", "a.skip-link")]
            assert marks == [1, 1, 1, 1], path
            unnamed = "input:not([aria-label]):not([id]):not(label input), button:not([aria-label]):empty"
            assert page.locator(unnamed).count() == 0, path


@pytest.fixture(scope="module")
def empty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Nothing there but an engine that is taken without being named."""
    world = World(tmp_path_factory.mktemp("empty"))
    with Server(world, env={"ASKBACK_DEFAULT_ENGINE": "scripted"}) as server:
        yield server


@pytest.mark.long
def test_empty_places_say_what_they_are_for(empty_server: Server, browser: Browser) -> None:
    with signed_in(empty_server, browser) as site:
        page = site.open("/runs")
        expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
        page.get_by_role("link", name="Start the first run").click()
        expect(page.get_by_role("heading", name="No skills yet")).to_be_visible()
        expect(page.get_by_role("button", name="Install a skill")).to_be_visible()
        page.goto(f"{site.url}/dashboard")
        for text in ("No run ended in the last 30 days.", "No answers in this period.", "No question is waiting."):
            expect(page.get_by_text(text).first).to_be_visible()


@pytest.mark.long
def test_the_demo_skill_is_one_click_away_where_there_is_none(empty_server: Server, browser: Browser) -> None:
    with signed_in(empty_server, browser) as site:
        page = site.open("/new")
        page.get_by_role("button", name="Try the demo skill").click()
        page.wait_for_url("**/new?skill=trip-planner")
        expect(page.get_by_role("heading", name="trip-planner")).to_be_visible()
        assert site.api.delete("/v1/skills/trip-planner").status_code == 204


@pytest.mark.long
def test_a_skill_that_was_just_installed_runs_on_the_engine_it_chooses(empty_server: Server, browser: Browser) -> None:
    with signed_in(empty_server, browser, viewport={"width": 360, "height": 740}) as site:
        page = site.open("/skills")
        tiny = "---\nname: tiny\ndescription: Small.\n---\nDo it.\n"
        turns = '{"turns": [[{"say": "ok"}]]}'
        page.get_by_role("button", name="Install a skill").set_input_files(
            zipped({"SKILL.md": tiny, "assets/scripted.json": turns})
        )
        page.get_by_role("link", name="Run", exact=True).click()
        engine = page.get_by_role("radio", name=re.compile("Choose automatically.*Now: scripted"))
        expect(engine).to_be_checked()
        page.get_by_label("Value").fill("Please")
        with page.expect_request("**/v1/runs") as sent:
            page.get_by_role("button", name="Start run").click()
        assert sent.value.post_data_json == {"skill": "tiny", "mode": "auto", "input": {"request": "Please"}}
        page.wait_for_url(re.compile(r"/runs/\w{16}$"))
