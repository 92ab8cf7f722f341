"""A new run from the page: chosen, filled in, checked before it is sent, started once, answered, finished."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect
from site_pages import FurnishedServer, Site, signed_in

from support.api import over

_DROP = """(zone, [name, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name, { type: "text/plain" }));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        zone.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
    }
}"""


def start(page: Page) -> None:
    page.get_by_role("button", name="Start run").click()


def run_id(page: Page) -> str:
    """The run that the page went to."""
    page.wait_for_url(re.compile(r"/runs/[0-9a-z]{16}$"))
    return page.url.rpartition("/")[2]


def creations(page: Page) -> list[Request]:
    """The requests for a new run from now on."""
    seen: list[Request] = []
    page.on("request", lambda request: seen.append(request) if request.url.endswith("/v1/runs") else None)
    return seen


def tab_to(page: Page, name: str) -> None:
    """Press Tab until that has the focus."""
    wanted = page.get_by_role("textbox", name=name, exact=True).or_(page.get_by_role("link", name=name, exact=True))
    wanted = wanted.or_(page.get_by_role("button", name=name, exact=True)).first
    for _ in range(60):
        if wanted.evaluate("(element) => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{name!r} cannot be reached by the Tab key")


def test_the_whole_story_by_keyboard_alone(site: Site) -> None:
    page = site.open("/")
    tab_to(page, "Skills")
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills")
    tab_to(page, "Run trip-planner")
    page.keyboard.press("Enter")
    page.wait_for_url("**/new?skill=trip-planner")
    tab_to(page, "Destination")
    page.keyboard.type("Lisbon")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    made = run_id(page)
    expect(page.get_by_role("form", name="What pace would you like in Lisbon?")).to_be_visible()
    # A key right after the form has appeared is ignored.
    expect(page.locator("[aria-disabled=true]")).to_have_count(0)
    option = page.get_by_role("button", name="Relaxed: one thing a day")
    option.focus()
    page.keyboard.press("Enter")
    ended = over(site.api, made)
    assert ended["state"] == "succeeded"
    expect(page.get_by_text("Succeeded").first).to_be_visible()
    data = site.api.get(f"/v1/runs/{made}/result").json()["data"]
    assert (data["pace"], len(data["days"])) == ("relaxed", 2)


def test_bad_input_is_told_before_anything_is_sent(site: Site) -> None:
    page = site.open("/new?skill=reads")
    sent = creations(page)
    page.get_by_role("spinbutton", name="Count").fill("11")
    start(page)
    expect(page.get_by_role("group", name="Document")).to_have_accessible_description(re.compile("A file is required."))
    expect(page.get_by_role("spinbutton", name="Count")).to_have_accessible_description("1 to 10 Must be 10 or less.")
    expect(page.get_by_role("button", name="Document")).to_be_focused()
    expect(page.get_by_text("Not started yet: 2 fields need attention.")).to_be_visible()
    page.get_by_role("spinbutton", name="Count").fill("3")
    expect(page.get_by_text("Must be 10 or less.")).to_be_hidden()
    expect(page.get_by_text("Not started yet: one field needs attention.")).to_be_visible()
    assert sent == []


@pytest.mark.long
def test_limits_are_told_ahead_unless_nobody_reaches_them(site: Site) -> None:
    page = site.open("/new?skill=trip-planner")
    expect(page.get_by_label("Days")).to_have_accessible_description(re.compile(r"there are\.\s*1 to 30$"))
    page.get_by_text("More options").click()
    expect(page.get_by_label("Repair turns")).to_have_accessible_description(re.compile("0 to 10$"))
    expect(page.locator("form")).not_to_contain_text("315576000")


def test_a_dropped_file_the_fields_and_the_options_reach_the_run(site: Site, furnished_server: FurnishedServer) -> None:
    page = site.open("/new?skill=reads")
    sent = creations(page)
    page.locator(".drop").evaluate(_DROP, ["notes.txt", "dropped text"])
    expect(page.get_by_text("notes.txt, 12 B")).to_be_visible()
    page.get_by_role("spinbutton", name="Count").fill("3")
    page.get_by_label("short").check()
    page.get_by_label("Language").fill("French")
    page.get_by_label("May ask questions").check()
    page.get_by_text("More options").click()
    page.get_by_label("Time for a turn, in seconds").fill("600")
    page.get_by_label("The engine decides", exact=True).check()
    start(page)
    made = run_id(page)
    assert sent[0].post_data_json == {
        "skill": "reads",
        "engine": "scripted",
        "mode": "interactive",
        "input": {
            "document": {"upload_id": sent[0].post_data_json["input"]["document"]["upload_id"]},
            "count": 3,
            "kind": "short",
        },
        "parameter": {"language": "French"},
        "options": {"turn_timeout_sec": 600, "interactive_require_user_reply": False},
    }
    assert over(site.api, made)["state"] == "succeeded"
    [file] = (furnished_server.world.data_dir / "runs" / made).rglob("notes.txt")
    assert file.read_text() == "dropped text"


@pytest.mark.long
def test_a_plain_skill_takes_named_texts_and_files(site: Site) -> None:
    page = site.open("/new?skill=plain")
    sent = creations(page)
    page.get_by_label("Value").fill("Paint it\nred")
    page.get_by_role("button", name="Add text").click()
    page.keyboard.type("request")
    page.keyboard.press("Tab")
    page.keyboard.type("twice")
    start(page)
    expect(page.get_by_text("This name is used twice.").first).to_be_visible()
    assert sent == []
    page.get_by_label("Name").nth(1).fill("tone")
    start(page)
    run_id(page)
    assert sent[0].post_data_json["input"] == {"request": "Paint it\nred", "tone": "twice"}


def test_what_only_the_server_can_tell_is_put_beside_the_field(site: Site) -> None:
    page = site.open("/new?skill=reads")
    page.locator(".drop").evaluate(_DROP, ["notes.txt", "text"])
    expect(page.get_by_text("notes.txt, 4 B")).to_be_visible()
    page.get_by_role("spinbutton", name="Count").fill("7")
    start(page)
    expect(page.get_by_role("radiogroup", name="Kind")).to_have_accessible_description("is required")
    expect(page.get_by_role("alert")).to_contain_text("Not started yet")
    page.get_by_label("long", exact=True).check()
    start(page)
    assert over(site.api, run_id(page))["state"] == "succeeded"


def test_a_lost_connection_is_told_and_the_same_request_is_sent_again_under_its_key(site: Site) -> None:
    page = site.open("/new?skill=trip-planner")
    keys: list[str | None] = []

    def reach_but_lose_the_answer(route: Route) -> None:
        keys.append(route.request.headers.get("idempotency-key"))
        if len(keys) == 1:
            # Not by the browser, which alone knows where a name below localhost leads.
            url = route.request.url.replace(site.url, site.server.url)
            headers = route.request.all_headers() | {"host": site.url.removeprefix("http://")}
            assert route.fetch(url=url, headers=headers).status == 201
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/runs", reach_but_lose_the_answer)
    page.get_by_label("Destination").fill("Atlantis")
    page.get_by_label("Days").fill("1")
    start(page)
    expect(page.get_by_role("alert")).to_contain_text("The server does not respond")
    site.mistakes.clear()
    start(page)
    made = run_id(page)
    assert len(keys) == 2
    assert keys[0] == keys[1] is not None
    newest = site.api.get("/v1/runs", params={"skill": "trip-planner", "limit": 1}).json()["items"]
    assert [run["id"] for run in newest] == [made]
    assert site.api.post(f"/v1/runs/{made}/cancel").status_code == 202


@pytest.mark.long
def test_the_choice_of_skills_is_searched_while_one_types(site: Site) -> None:
    page = site.open("/new")
    page.wait_for_url("**/skills")
    page.get_by_role("searchbox").press_sequentially("DAY plan")
    expect(page.get_by_role("link", name="trip-planner", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="plain", exact=True)).to_be_hidden()
    page.get_by_role("searchbox").fill("zebra")
    expect(page.get_by_text("No matching skills.")).to_be_visible()


@pytest.mark.long
def test_a_skill_that_is_not_there_or_broken_is_told(site: Site) -> None:
    page = site.open("/new?skill=nowhere")
    expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    page.goto(f"{site.url}/new?skill=broken")
    expect(page.get_by_text("has no front matter")).to_be_visible()
    assert page.get_by_role("button", name="Start run").count() == 0


@pytest.mark.long
def test_the_form_speaks_chinese_on_a_phone(furnished_server: FurnishedServer, browser: Browser) -> None:
    phone: dict[str, Any] = {"locale": "zh-CN", "viewport": {"width": 360, "height": 740}}
    with signed_in(furnished_server, browser, **phone) as site:
        page = site.open("/new?skill=trip-planner")
        expect(page.get_by_role("heading", name="输入")).to_be_visible()
        page.get_by_role("button", name="启动运行").click()
        expect(page.get_by_text("此项必填。").first).to_be_visible()
        page.get_by_label("Destination").fill("里斯本")
        page.get_by_label("Days").fill("1")
        page.get_by_text("更多选项").click()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.get_by_role("button", name="启动运行").click()
        assert site.api.post(f"/v1/runs/{run_id(page)}/cancel").status_code == 202
