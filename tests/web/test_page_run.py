"""A run's page in a browser: the conversation as it happens, each event once, and what the run leaves."""

from __future__ import annotations

import base64
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from site_pages import Site, press, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

TOOLS = 5_000
FINISH_RED = {"finish": {"colour": "red"}}
LOOK = {"tool": {"name": "look", "detail": "the wall", "output": "it is bare"}}
BREAK = {"tool": {"name": "break", "detail": "the vase", "output": "ouch", "ok": False}}
TELL = {"usage": {"input_tokens": 1200, "output_tokens": 310, "cached_tokens": 900, "total_tokens": 1510}}
NOTE = {"write": {"path": "artifacts/deep/note.md", "text": "# Painted\n\n**{{reply}}** it is."}}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {
    "data.json": b'{"b":[1,2]}',
    "page.html": b"<script>window.__pwned = 1</script>",
    "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.__pwned = 1"></svg>',
    "photo.png": PNG,
    "liar.png": b"<script>window.__pwned = 1</script>",
    "liar.txt": PNG,
    "blob.bin": bytes(range(256)),
}


def furnish(folder: Path) -> World:
    world = World(folder)
    world.skill([{"say": "I look."}, LOOK, BREAK, ASK], [{"say": "Thanks."}, NOTE, TELL, FINISH], name="asking")
    world.skill([*([LOOK] * TOOLS), FINISH_RED], name="busy")
    world.skill([{"say": "I begin."}, {"wait_for": "never"}, FINISH_RED], name="endless")
    world.skill([{"misbehave": "auth"}], name="failing")
    long = [{"say": f"line {place}\n" * 8} for place in range(30)]
    steps = [*long, {"wait_for": "first"}, {"say": "late one"}, {"wait_for": "second"}, {"say": "late two"}, FINISH_RED]
    world.skill(steps, name="slow")
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return furnish(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


@pytest.fixture
def running(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser) as site:
        yield site


def state(page: Page) -> str:
    return page.locator("#state").inner_text()


def shown(page: Page) -> list[int]:
    """The numbers of the events that have an element, as they stand on the page."""
    found: list[int] = page.evaluate(
        "[...document.querySelectorAll('[data-seq]')].map((each) => Number(each.dataset.seq))"
    )
    return found


def test_a_question_is_answered_on_its_page_and_the_result_comes_up(running: Site) -> None:
    page = running.open(f"/runs/{wire.start(running.api)}")
    expect(page.get_by_text("I look.", exact=True)).to_be_visible()
    expect(page.locator("#state")).to_have_text("Waiting for you")
    page.locator(".tool summary", has_text="the wall").click()
    expect(page.get_by_text("it is bare")).to_be_visible()
    expect(page.locator(".tool", has_text="break").get_by_text("failed")).to_be_visible()
    press(page.get_by_role("button", name="blue"))
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator("#result")).to_contain_text("blue")
    expect(page.get_by_text("Answered by main, on the page")).to_be_visible()
    expect(page.locator(".reply")).to_have_text("blue")
    expect(page.locator("#facts")).to_contain_text("1,200 in (900 cached), 310 out")
    expect(page.get_by_role("img", name="Waiting, turn 1")).to_be_visible()
    expect(page.get_by_role("link", name="Download all files")).to_be_visible()
    expect(page.locator("#connection")).to_have_attribute("data-state", "over")
    page.get_by_role("button", name="Show as JSON").click()
    expect(page.locator("#result")).to_have_text('{\n  "colour": "blue"\n}', use_inner_text=True)
    expect(page.locator("#files").get_by_role("heading", name="Painted")).to_be_visible()
    page.get_by_role("link", name="Open deep/note.md on its own page").click()
    page.wait_for_url("**/preview?path=deep/note.md")
    expect(page.get_by_role("heading", name="Painted")).to_be_visible()


def test_nothing_is_missed_or_doubled_when_the_server_dies_in_the_middle(tmp_path: Path, browser: Browser) -> None:
    world = furnish(tmp_path)
    with Server(world) as server, signed_in(server, browser) as site:
        run_id = wire.waiting(site.api)
        page = site.open(f"/runs/{run_id}")
        expect(page.get_by_role("button", name="blue")).to_be_visible()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        server.kill(signal.SIGKILL)
        expect(page.get_by_text("Connection lost")).to_be_visible()
        press(page.get_by_role("button", name="blue"))
        expect(page.get_by_role("alert").filter(has_text="The server does not respond")).to_be_visible()
        with Server(world, port=server.port):
            expect(page.get_by_text("Live", exact=True)).to_be_visible()
            press(page.get_by_role("button", name="blue"))
            expect(page.locator("#state")).to_have_text("Succeeded")
            expect(page.locator("#connection")).to_have_attribute("data-state", "over")
            events = site.api.get(f"/v1/runs/{run_id}/events").json()["items"]
            expect(page.locator("#progress")).to_have_text(f"{len(events)} events")
            assert shown(page) == sorted(set(shown(page)))
            assert page.get_by_text("Thanks.", exact=True).count() == 1
            assert page.locator(".asked").count() == 1
            page.close()
        site.mistakes.clear()


def test_ten_thousand_events_are_all_there(running: Site) -> None:
    run_id = wire.start(running.api, "busy")
    wire.over(running.api, run_id)
    last = last_seq(running.api, run_id)
    assert last > 2 * TOOLS
    page = running.open(f"/runs/{run_id}")
    expect(page.locator("#progress")).to_have_text(f"{last} events")
    assert page.locator("#conversation .tool").count() == TOOLS
    assert shown(page)[-1] > 2 * TOOLS
    # What is folded has no elements yet, and what is out of sight is not laid out.
    assert page.evaluate("document.querySelectorAll('#conversation *').length") < 10 * TOOLS
    assert page.evaluate("getComputedStyle(document.querySelector('.item')).contentVisibility") == "auto"
    page.get_by_role("button", name="Jump to the end").click()
    expect(page.get_by_text("The run succeeded.")).to_be_in_viewport()


def last_seq(api: httpx.Client, run_id: str) -> int:
    after, more = 0, True
    while more:
        events = api.get(f"/v1/runs/{run_id}/events", params={"after": after}).json()
        after = events["items"][-1]["seq"]
        more = events["next_cursor"] is not None
    return int(after)


@pytest.mark.long
def test_the_page_follows_the_end_only_for_a_reader_who_is_there(running: Site, world: World) -> None:
    run_id = wire.start(running.api, "slow")
    page = running.open(f"/runs/{run_id}")
    expect(page.get_by_text("line 29").first).to_be_attached()
    workspace = world.data_dir / "runs" / run_id / "work"
    (workspace / "first").touch()
    expect(page.get_by_text("late one", exact=True)).to_be_attached()
    assert page.evaluate("window.scrollY") == 0
    page.get_by_role("button", name="Jump to the end").click()
    expect(page.get_by_text("late one", exact=True)).to_be_in_viewport()
    (workspace / "second").touch()
    expect(page.get_by_text("late two", exact=True)).to_be_in_viewport()


def test_a_run_is_canceled_after_a_question_whether_one_is_sure(running: Site) -> None:
    run_id = wire.start(running.api, "endless")
    page = running.open(f"/runs/{run_id}")
    expect(page.get_by_text("I begin.", exact=True)).to_be_visible()
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Back").click()
    assert wire.get(running.api, run_id)["state"] == "running"
    page.get_by_role("button", name="Cancel run").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(page.locator("#state")).to_have_text("Canceled")
    expect(page.get_by_role("button", name="Cancel run")).to_be_hidden()
    expect(page.locator("#result")).to_contain_text("The run was canceled")


@pytest.mark.long
def test_a_failure_says_what_it_means_and_what_to_do(running: Site) -> None:
    run_id = wire.start(running.api, "failing")
    error = wire.over(running.api, run_id)["error"]
    page = running.open(f"/runs/{run_id}")
    told = page.get_by_role("alert")
    expect(told).to_contain_text("The Engines page says how to sign in.")
    expect(told).to_contain_text("ENGINE_AUTH_REQUIRED")
    expect(told).to_contain_text(error["detail"])


def test_files_are_shown_as_what_they_really_are(running: Site, world: World) -> None:
    run_id = wire.waiting(running.api)
    for name, content in FILES.items():
        folder = world.data_dir / "runs" / run_id / "work" / "artifacts"
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    page = running.open(f"/runs/{run_id}/preview?path=data.json")
    expect(page.locator("pre")).to_have_text('{\n  "b": [\n    1,\n    2\n  ]\n}', use_inner_text=True)
    for name in ("page.html", "drawing.svg", "liar.png"):
        page.goto(f"{running.url}/runs/{run_id}/preview?path={name}")
        expect(page.locator("pre")).to_have_text(FILES[name].decode())
        assert running.api.get(f"/runs/{run_id}/picture", params={"path": name}).status_code == 404
    for name in ("photo.png", "liar.txt"):
        page.goto(f"{running.url}/runs/{run_id}/preview?path={name}")
        expect(page.locator("main img")).to_have_js_property("naturalWidth", 1)
    page.goto(f"{running.url}/runs/{run_id}/preview?path=blob.bin")
    expect(page.get_by_role("heading", name="No preview")).to_be_visible()
    assert page.evaluate("window.__pwned") is None
    for path in ("../home/x", "/etc/passwd", "", "nothing"):
        assert running.api.get(f"/runs/{run_id}/preview", params={"path": path}).status_code == 404


def test_a_picture_is_served_so_that_it_can_be_nothing_else(running: Site, world: World) -> None:
    run_id = wire.waiting(running.api)
    folder = world.data_dir / "runs" / run_id / "work" / "artifacts"
    folder.mkdir(exist_ok=True)
    (folder / "photo.png").write_bytes(PNG)
    answer = running.api.get(f"/runs/{run_id}/picture", params={"path": "photo.png"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'none'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.content == PNG
