"""The dashboard with a past of 300 runs: charts, failures, tokens, answers, what waits; and the list of those runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from accessibility import complaints
from history import past
from playwright.sync_api import Browser, Page, expect
from site_pages import Site, furnish, signed_in

from support.data_folder import World
from support.server import Server

RUNS = 300
WAITING = 7
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def old_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("old"))
    furnish(world)
    past(world, RUNS, waiting=WAITING)
    with Server(world, env={"PATH": f"{signed_out_codex(world.folder)}:/usr/bin:/bin"}) as server:
        yield server


def signed_out_codex(folder: Path) -> Path:
    """A folder with a program that looks like an installed Codex."""
    place = folder / "bin"
    place.mkdir()
    program = place / "codex"
    program.write_text("#!/bin/sh\necho 'codex-cli 0.120.0'\necho 'Usage: codex exec resume [SESSION_ID]'\n")
    program.chmod(0o755)
    return place


@pytest.fixture
def old_site(old_server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(old_server, browser) as site:
        yield site


def numbers(page: Page, chart: str) -> list[list[str]]:
    """The rows of the table that belongs to a chart."""
    table = page.locator(f"details[data-keep={chart}]")
    table.get_by_text("Show as a table").click()
    cells: list[list[str]] = table.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return cells


def test_runs_are_charted_by_day_and_the_table_has_the_same_numbers(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    stats = old_site.api.get("/v1/stats").json()
    expect(page.get_by_role("img", name=re.compile("Runs that ended, by day.*From .* to"))).to_be_visible()
    assert page.locator("svg.chart-columns").first.locator("g.chart-day").count() == 30
    told = [row[1:] for row in numbers(page, "runs")]
    assert told == [[str(day[kind]) for kind in ("succeeded", "failed", "canceled")] for day in reversed(stats["days"])]
    expect(page.locator("#runs-heading + p")).to_contain_text(f"{RUNS} ended")
    failed = sum(day["failed"] for day in stats["days"])
    page.locator(".legend").get_by_role("link", name="Failed").click()
    expect(page.get_by_role("link", name=f"Failed {failed}")).to_have_attribute("aria-current", "true")


@pytest.mark.long
def test_the_period_is_chosen_and_stays_in_the_address(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    expect(page.get_by_role("link", name="30 days")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="14 days").click()
    page.wait_for_url("**/dashboard?days=14")
    expect(page.locator("svg.chart-columns").first.locator("g.chart-day")).to_have_count(14)
    page.goto(f"{old_site.url}/dashboard?days=5000")
    expect(page.get_by_role("link", name="30 days")).to_have_attribute("aria-current", "true")


def test_failures_are_told_by_their_reason_and_lead_to_their_runs(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    reason = page.locator(".failures li", has_text="Rate limit or quota reached")
    expect(reason.get_by_role("img", name="Rate limit or quota reached, by day")).to_be_visible()
    count = int(reason.locator("strong").text_content() or "")
    reason.get_by_role("link").click()
    page.wait_for_url("**/runs?state=failed&q=ENGINE_RATE_LIMITED")
    expect(page.locator(".run-row")).to_have_count(count)
    expect(page.locator(".run-row").first).to_contain_text("Rate limit or quota reached")


@pytest.mark.long
def test_tokens_are_told_by_day_skill_and_engine(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    stats = old_site.api.get("/v1/stats").json()
    told = [row[1:] for row in numbers(page, "tokens")]
    usages = [day["usage"] for day in reversed(stats["days"])]
    assert told == [[str(each["input_tokens"]), str(each["output_tokens"])] for each in usages]
    for heading, found in (("By skill", stats["skills"]), ("By engine", stats["engines"])):
        most = max(found, key=lambda each: each["usage"]["input_tokens"] + each["usage"]["output_tokens"])
        expect(page.locator(".ranking", has_text=heading).locator("li").first).to_contain_text(most["name"])


def test_answers_and_what_waits_are_told_plainly(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    answers = old_site.api.get("/v1/stats").json()["answers"]["count"]
    expect(page.locator(".figure", has_text="Time to answer")).to_contain_text(
        re.compile(rf"Median of {answers} answers\. One in ten took longer than \d+\s\w+")
    )
    expect(page.locator(".figure", has_text="Waiting for an answer")).to_contain_text(str(WAITING))
    expect(page.locator(".waiting li")).to_have_count(5)
    expect(page.locator(".waiting li").first).to_contain_text("1 day ago")
    expect(page.get_by_role("link", name=f"All {WAITING}")).to_have_attribute("href", "/")


@pytest.mark.long
def test_an_open_table_stays_open_when_the_numbers_change(old_site: Site) -> None:
    page = old_site.open("/dashboard")
    numbers(page, "runs")
    page.locator("details[data-keep=runs] > summary").focus()
    waits = page.locator(".figure", has_text="Waiting for an answer").locator(".figure-number")
    old_site.api.post("/v1/runs", json={"skill": "asking", "engine": "scripted", "mode": "interactive"})
    expect(waits).to_have_text(str(WAITING + 1))
    expect(page.locator("details[data-keep=runs] table")).to_be_visible()
    expect(page.locator("details[data-keep=runs] > summary")).to_be_focused()
    [asked] = [each for each in old_site.api.get("/v1/inbox").json()["items"] if each["prompt"] == "Which colour?"]
    old_site.api.post(f"/v1/runs/{asked['run_id']}/cancel")
    expect(waits).to_have_text(str(WAITING))


@pytest.mark.parametrize(
    ("theme", "language"), [pytest.param("light", "en-GB", marks=pytest.mark.long), ("dark", "zh-CN")]
)
def test_pages_with_a_past_can_be_read_by_everybody_and_fit_a_phone(
    old_server: Server, browser: Browser, theme: str, language: str
) -> None:
    found: dict[str, list[str]] = {}
    with signed_in(old_server, browser, color_scheme=theme, locale=language) as site:
        for path in ("/dashboard", "/runs?state=failed", "/skills", "/skills/trip-planner", "/engines"):
            page = site.open(path)
            page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
            found[path] = complaints(page)
            page.set_viewport_size(PHONE)
            found[path] += ["wider than a phone"] * page.evaluate("document.documentElement.scrollWidth > innerWidth")
            page.close()
    assert {path: each for path, each in found.items() if each} == {}


# The list of runs.


@pytest.mark.long
def test_rows_tell_the_input_and_how_long_a_run_took(old_site: Site) -> None:
    page = old_site.open("/runs?state=succeeded")
    row = page.locator(".run-row").first
    expect(row).to_contain_text(re.compile(r"(Lisbon|Oslo|Kyoto|Quito|Riga) · \d"))
    expect(row.locator(".run-took")).to_have_text(re.compile(r"^\d+\s(s|min|h|d)"))
    assert page.get_by_text("May ask questions").count() == 0


def test_chips_count_what_the_other_filters_leave(old_site: Site) -> None:
    page = old_site.open("/runs?skill=plain&engine=codex")
    total = len(
        old_site.api.get("/v1/runs", params={"skill": "plain", "engine": "codex", "limit": 200}).json()["items"]
    )
    expect(page.get_by_role("link", name=f"All {total}", exact=True)).to_be_visible()
    page.get_by_role("link", name=re.compile(r"^Failed \d")).click()
    page.wait_for_url("**/runs?state=failed&skill=plain&engine=codex")
    expect(page.get_by_label("Skill", exact=True)).to_have_value("plain")
    page.get_by_label("Engine", exact=True).select_option("claude")
    page.wait_for_url("**/runs?state=failed&skill=plain&engine=claude")


# Skills and engines.


@pytest.mark.long
def test_a_skill_tells_its_last_run_and_how_often_it_succeeds(old_site: Site) -> None:
    page = old_site.open("/skills/trip-planner")
    [last] = old_site.api.get("/v1/runs", params={"skill": "trip-planner", "limit": 1}).json()["items"]
    facts = page.locator(".facts")
    expect(facts.locator(f"a[href='/runs/{last['id']}']")).to_be_visible()
    expect(facts).to_contain_text(re.compile(r"\d+%: \d+ of the last \d+ runs"))
    page.goto(f"{old_site.url}/skills/gated")
    expect(page.locator(".facts")).to_contain_text("Never run")


@pytest.mark.long
def test_engines_say_at_a_glance_what_they_need_and_the_command_is_copied(old_site: Site) -> None:
    old_site.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = old_site.open("/engines")
    expect(page.locator(".page-head")).to_contain_text(re.compile(r"Ready 1.*Not signed in 1.*Not installed \d"))
    codex = page.locator(".engine", has_text="Codex")
    expect(codex).to_contain_text("Sign in on the server's machine:")
    codex.get_by_role("button", name="Copy the command for Codex").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "codex login"
    expect(page.locator(".engine", has_text="Claude Code").locator("code").first).to_contain_text("npm install -g")
    expect(codex.get_by_text("0.120.0").last).to_be_hidden()
    codex.get_by_text("Details").click()
    expect(codex.get_by_text("The program offers exec resume SESSION_ID.")).to_be_visible()
    tops = page.locator(".engine").evaluate_all(
        "(cards) => cards.slice(0, 3).map((card) => card.getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 1


@pytest.mark.long
def test_a_signed_out_default_engine_is_told_on_the_form(old_site: Site) -> None:
    page = old_site.open("/new?skill=trip-planner")
    automatic = page.locator("label.pick", has_text="Choose automatically")
    expect(automatic).to_contain_text("Now: codex.")
    expect(automatic).to_contain_text("Not signed in")
    expect(page.locator("code", has_text="codex login")).to_be_visible()


# Chinese.


@pytest.mark.long
def test_chinese_pages_tell_durations_advice_and_errors_in_chinese(old_server: Server, browser: Browser) -> None:
    with signed_in(old_server, browser, locale="zh-CN") as site:
        page = site.open("/dashboard")
        expect(page.locator(".figure", has_text="回答用时")).to_contain_text(re.compile(r"\d+\s(秒|分|小时)"))
        expect(page.locator(".failures")).to_contain_text("达到频率限制或额度上限")
        page.goto(f"{site.url}/engines")
        expect(page.locator(".engine", has_text="Codex")).to_contain_text("在服务器所在的机器上登录：")
        expect(page.locator("main")).not_to_contain_text("install it with")
        page.goto(f"{site.url}/runs?state=failed")
        expect(page.locator(".run-row").first.locator(".run-took")).to_have_text(re.compile(r"^\d+\s(秒|分|小时|天)"))
        told = page.evaluate("async () => [0.25, 286, 7500].map((await import('/static/time.js')).duration)")
        assert told == ["250 毫秒", "4 分 46 秒", "2 小时 5 分"]
        page.goto(f"{site.url}/runs/nothing")
        expect(page.get_by_text("没有这个运行。")).to_be_visible()
        told = page.evaluate(
            "async () => (await import('/static/api.js')).get('/v1/runs/nothing').catch((error) => error.message)"
        )
        assert re.match(r"没有这个运行。（there is no run", told)


# The frame.


@pytest.mark.long
def test_the_menu_fits_a_phone_whole(old_server: Server, browser: Browser) -> None:
    for language in ("en-GB", "zh-CN"):
        with signed_in(old_server, browser, viewport=PHONE, locale=language) as site:
            page = site.open("/runs")
            expect(page.locator("#inbox-count")).to_be_visible()
            assert page.locator(".site-nav ul").evaluate("(menu) => menu.scrollWidth <= menu.clientWidth")


@pytest.mark.long
def test_the_chosen_state_is_in_sight_on_a_phone(old_server: Server, browser: Browser) -> None:
    with signed_in(old_server, browser, viewport=PHONE) as site:
        chip = site.open("/runs?state=canceled").locator(".chips [aria-current]")
        expect(chip).to_be_in_viewport(ratio=1)


def test_the_sign_in_has_the_mark_and_one_way_in(old_server: Server, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{old_server.url}/runs")
    expect(page.get_by_role("heading", name="Sign in", exact=True)).to_be_visible()
    expect(page.locator(".brand svg")).to_be_visible()
    assert page.locator("a").count() == 0
    context.close()
