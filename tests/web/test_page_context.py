"""What a question is about: the input of its run, wherever the run or its question is shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from site_pages import Site, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

HOSTILE = "<img src=x onerror='window.__pwned=1'> **Lisbon**"
PIN = "hunter-2-hunter"
TRIP = {
    "type": "object",
    "properties": {
        "destination": {"type": "string"},
        "pin": {"type": "string", "format": "password"},
        "map": {"type": "string", "x-input-source": "file"},
        "days": {"type": "integer"},
    },
}


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Site]:
    world = World(tmp_path_factory.mktemp("context"))
    runner = {"summary": "{{input.destination}}, {{input.days}} days{{input.pin}}"}
    world.skill([ASK], [FINISH], name="trip", schemas={"input": TRIP}, runner=runner)
    with Server(world) as server, signed_in(server, browser) as site:
        yield site


def test_the_input_of_a_run_is_shown_as_text_and_without_its_secrets(desk: Site) -> None:
    upload = desk.api.post("/v1/uploads", files={"file": ("map.txt", b"text")}).json()["upload_id"]
    given = {"destination": HOSTILE, "pin": PIN, "map": {"upload_id": upload}, "days": 3}
    run_id = wire.waiting(desk.api, "trip", input=given)
    shown = wire.get(desk.api, run_id)
    summary = f"{HOSTILE}, 3 days[redacted]"
    assert shown["summary"] == summary
    assert shown["input"] == given | {"pin": "[redacted]", "map": "inputs/map/map.txt"}
    listed = desk.api.get("/v1/runs").json()["items"][0]
    assert listed["summary"] == summary
    assert "input" not in listed
    assert desk.api.get("/v1/inbox").json()["items"][0]["summary"] == summary

    link = desk.api.post(f"/v1/runs/{run_id}/interaction/link", json={}).json()["url"]
    for address in ("/", "/runs", f"/runs/{run_id}", link):
        page = desk.open(address) if address.startswith("/") else desk.context.new_page()
        if not address.startswith("/"):
            page.goto(address)
        if address == link:
            # Its page has nothing but the question.
            expect(page.get_by_role("heading", name="A question for you")).to_be_visible()
            expect(page.get_by_text(summary)).to_have_count(0)
        else:
            expect(page.get_by_text(summary).first).to_be_visible()
        assert PIN not in page.content()
        assert page.evaluate("window.__pwned") is None
    card = desk.open(f"/runs/{run_id}").get_by_role("region", name="Input")
    for text in (HOSTILE, "[redacted]", "inputs/map/map.txt", "3"):
        expect(card.get_by_text(text, exact=True)).to_be_visible()
    found = desk.open("/runs?q=lisbon").locator(".run-row")
    expect(found).to_have_count(1)
