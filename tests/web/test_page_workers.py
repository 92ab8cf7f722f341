"""The workers on the page: those of all machines, as they come, are stopped and are gone."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect
from site_pages import Site, signed_in

from support import postgres
from support.api import start
from support.data_folder import World
from support.postgres import databases
from support.program import until, work_folder
from support.server import Server
from support.workers import Worker

pytestmark = pytest.mark.contract("M-3")

EVIL = "<img src=x onerror=document.title='owned'>"


@pytest.fixture
def fleet_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    with databases.chosen(True):
        world = World(tmp_path_factory.mktemp("fleet"))
        world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}], name="held")
        yield world


def test_the_page_shows_the_workers_of_all_machines(fleet_world: World, browser: Browser) -> None:
    with Server(fleet_world, "--no-worker") as server, signed_in(server, browser) as site:
        page = site.open("/engines")
        expect(page.locator("#fleet .alert")).to_contain_text("askback worker")
        with Worker(fleet_world, "--slots", "3", "--label", f"zone={EVIL}") as worker:
            card = page.locator("#workers > li")
            expect(card).to_have_count(1, timeout=60_000)
            expect(card.locator(".badge")).to_have_text("Working")
            expect(card.locator(".label")).to_have_text(f"zone={EVIL}")
            expect(card).to_contain_text("scripted", timeout=60_000)
            run_id = start(site.api, "held")
            until(lambda: (work_folder(fleet_world, run_id) / "started").exists())
            expect(card).to_contain_text("1 / 3", timeout=60_000)
            worker.process.send_signal(signal.SIGTERM)
            expect(card.locator(".badge")).to_have_text("Being stopped", timeout=60_000)
            queued = start(site.api, "held")
            run_page = site.open(f"/runs/{queued}")
            expect(run_page.locator("body")).to_contain_text("No worker has its engine", timeout=60_000)
            page = site.open("/engines")
            (work_folder(fleet_world, run_id) / "go").touch()
            assert worker.process.wait(120) == 0
            expect(page.locator("#fleet .alert")).to_be_visible(timeout=60_000)
        assert page.title() != "owned"
        assert site.mistakes == []


def test_a_server_alone_shows_no_workers(site: Site) -> None:
    page = site.open("/engines")
    expect(page.locator(".engine").first).to_be_visible()
    expect(page.locator("#fleet")).to_have_count(0)
