"""Markdown of an engine, in its messages and in the context of a question, and a long context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect
from site_pages import Site, signed_in

import support.api as wire
from support.data_folder import FINISH, World
from support.server import Server

TEXT = """# Plan

I compared **three** *quiet* hotels, see [the map](https://maps.example/a_b) and [this](javascript:alert(1)).
Second line with `a * b` and snake_case_name and 2 * 3 * 4.

- one
- two
  - inner
1. first

> quoted

| hotel | price |
|---|---:|
| Alfama | 90 |

```sh
ls -l  # <b>**
```
"""
CONTEXT = {"reason": "EUR 240 **above** the order", "lines": [f"line {number}" for number in range(40)]}
FENCED = "Look:\n```\nGET /invoice\n```\ninside"
ASK = {"ask": {"interaction_id": "pay", "prompt": "Pay?", "kind": "confirm", "context": CONTEXT | {"log": FENCED}}}
SHORT = {"ask": {"interaction_id": "pay", "prompt": "Pay?", "context": "EUR **240** above the order"}}


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    world = World(tmp_path_factory.mktemp("markdown"))
    world.skill([{"say": TEXT}, ASK], [SHORT], [FINISH], name="paying")
    with Server(world) as server, signed_in(server, browser) as site:
        yield site


def assert_whole(part: Locator) -> None:
    """Nothing of the part is cut off: what does not fit is reached by scrolling around it."""
    assert part.evaluate("each => each.scrollHeight <= each.clientHeight + 1")


def check_message(message: Locator) -> None:
    for name, text in [("strong", "three"), ("em", "quiet"), ("blockquote", "quoted"), ("th", "hotel"), ("td", "90")]:
        expect(message.locator(name, has_text=text)).to_be_visible()
    expect(message.get_by_role("heading", name="Plan")).to_be_visible()
    expect(message.locator("pre code")).to_have_text("ls -l  # <b>**")
    expect(message.locator("li li")).to_have_text("inner")
    expect(message.locator("ol > li")).to_have_text("first")
    expect(message.locator("p code")).to_have_text("a * b")
    expect(message.get_by_text("snake_case_name and 2 * 3 * 4.")).to_be_visible()
    (link,) = message.get_by_role("link").all()
    assert link.get_attribute("href") == "https://maps.example/a_b"
    expect(message.get_by_text("[this](javascript:alert(1))")).to_be_visible()


def test_markdown_is_shown_and_a_long_context_is_whole_above_the_answer(desk: Site) -> None:
    run_id = wire.waiting(desk.api, "paying")
    page = desk.open(f"/runs/{run_id}")
    check_message(page.locator(".message").first)
    # The request of the engine belongs to its question, with all of its text.
    expect(page.locator(".structured")).to_have_count(0)
    expect(page.locator(".message")).to_have_count(1)
    page.locator(".pinned").get_by_label("More actions").click()
    page.get_by_role("button", name="Original text of the engine").click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("inside")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    link = desk.api.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
    outside = desk.context.new_page()
    outside.goto(link)
    for each in (desk.open("/"), outside):
        expect(each.locator(".context strong")).to_have_text("above")
        assert_whole(each.locator(".context-body"))
        expect(each.locator(".option").first).to_be_in_viewport(ratio=1)
    assert wire.reply(desk.api, run_id, "yes", "pay").status_code == 202
    wire.reach(desk.api, run_id, "waiting_user")
    page = desk.open("/")
    expect(page.locator(".context strong")).to_have_text("240")


LINKS = """See https://a.example/x_y_z, (https://b.example/q?a=1) and https://c.example/。
![picture](https://d.example/p.png) [mail](mailto:a@b.example) <https://e.example> [no](data:text/html,x) ftp://f.example

1. one
   - https://g.example
     - deeper
"""
WANTED = [
    *("https://a.example/x_y_z", "https://b.example/q?a=1", "https://c.example/", "https://d.example/p.png"),
    *("mailto:a@b.example", "https://e.example", "https://g.example"),
]


def test_links_lead_to_websites_and_mail_only_and_no_picture_is_loaded(desk: Site) -> None:
    page = desk.open("/")
    render = """async (text) => {
        const { markdown } = await import("/static/markdown.js");
        document.body.append(markdown(text));
    }"""
    page.evaluate(render, LINKS)
    shown = page.locator("body > .prose")
    links = shown.locator("a").evaluate_all(
        "all => all.map((each) => [each.getAttribute('href'), each.rel, each.target])"
    )
    assert links == [[each, "noopener noreferrer nofollow", "_blank"] for each in WANTED]
    expect(shown.locator("img")).to_have_count(0)
    expect(shown.locator("ol > li > ul > li > ul > li")).to_have_text("deeper")


HOSTILE = [
    "http://" * 14_000,
    "http://" + "." * 90_000,
    "a|b\n|" + "-" * 99_000 + "x",
    "* " * 49_000 + "x",
    "*" * 99_000,
    "[" * 99_000,
    "`" * 99_000,
    "> " * 49_000,
]


def test_no_message_makes_the_page_hang(desk: Site) -> None:
    page = desk.open("/")
    render = """async (text) => {
        const { markdown } = await import("/static/markdown.js");
        window.rendered = false;
        setTimeout(() => { for (let i = 0; i < 10; i += 1) markdown(text); window.rendered = true; });
    }"""
    for text in HOSTILE:
        page.evaluate(render, text)
        page.wait_for_function("window.rendered === true", timeout=60_000)
