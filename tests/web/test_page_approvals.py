"""An approval on the page: the command or the change as code, with every character visible, and nothing of it rendered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from site_pages import Site, signed_in

from askback.client import Client
from support.data_folder import World
from support.program import until
from support.server import Server

COMMAND = "git push\u200b <b>bold</b> **x** ```\n# \u0430bc"
PUSH = {"tool": {"name": "shell", "input": {"command": COMMAND}, "append": "artifacts/pushed"}}
DONE = {"finish": {"colour": "blue"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("approvals"))
    world.skill([PUSH, {"say": "I wait."}], [PUSH, DONE], name="pushing")
    with Server(world) as server:
        yield server


@pytest.fixture
def site(server: Server, browser: Browser) -> Iterator[Site]:
    with signed_in(server, browser) as site:
        yield site


@pytest.mark.contract("G-2", "G-3")
def test_an_approval_is_shown_as_code_and_answered(server: Server, site: Site, tmp_path: Path) -> None:
    with Client(server.url, server.token) as desk:
        run = desk.wait(desk.create_run("pushing", engine="scripted", mode="interactive", permissions="careful").id)
        page = site.open(f"/runs/{run.id}")
        call = page.locator(".approval pre.call").first
        expect(call).to_have_text("git push<U+200B> <b>bold</b> **x** ```\n# \u0430bc")
        expect(page.locator(".approval b, .approval strong")).to_have_count(0)
        expect(page.locator(".approval").first).to_contain_text("CYRILLIC SMALL LETTER A")
        if folder := os.environ.get("ASKBACK_TEST_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/approval.png", full_page=True)
        page.get_by_role("button", name="Approve once").click()
        ended = until(lambda: (now := desk.get_run(run.id)).state.final and now)
        assert ended is not None
        assert ended.state == "succeeded"
        assert [each.path for each in desk.artifacts(run.id)] == ["pushed"]
