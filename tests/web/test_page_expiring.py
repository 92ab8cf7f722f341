"""The announcement of a deadline, on the page of a run that is open at that moment."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from site_pages import signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.server import Server

HOUR = 3600
OPTIONS = {"interactive_require_user_reply": False, "session_timeout_sec": HOUR}


@pytest.mark.contract("N-4")
def test_an_open_page_says_that_its_question_expires(tmp_path: Path, browser: Browser) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    env = {"ASKBACK_NOTIFICATIONS__REMINDERS__BEFORE_DEADLINE_SEC": str(HOUR - 5)}
    with Server(world, env=env) as server, signed_in(server, browser) as site:
        run_id = wire.start(site.api, "asking", mode="interactive", options=OPTIONS)
        page = site.open(f"/runs/{run_id}")
        expect(page.locator("#conversation")).to_contain_text(
            "Still no answer: the question expires at", timeout=60_000
        )
        assert site.mistakes == []
        site.api.post(f"/v1/runs/{run_id}/cancel")
