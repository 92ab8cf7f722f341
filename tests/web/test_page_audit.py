"""The audit log on the page: for administrators, with filters and pages, and safe with hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hostile_texts import PWN
from playwright.sync_api import Browser, expect
from site_pages import FurnishedServer, Site, signed_in

import support.api as wire
from support.data_folder import World

HOSTILE = f"</li><img src=x onerror={PWN}> eve"


@pytest.fixture
def watched(tmp_path: Path, browser: Browser) -> Iterator[Site]:
    with FurnishedServer(World(tmp_path)) as server, signed_in(server, browser) as site:
        yield site


@pytest.mark.contract("N-7")
def test_an_administrator_sees_who_wrote_what(watched: Site) -> None:
    run_id = wire.waiting(watched.api)
    link = watched.api.post(f"/v1/runs/{run_id}/interaction/link", json={"recipient": HOSTILE}).json()["url"]
    with wire.calling(watched.server.url, None) as holder:
        assert holder.post(link, json={"response": "red"}).status_code == 202
    page = watched.open("/audit")
    expect(page.locator(".audit-row").first).to_contain_text("Question answered")
    expect(page.locator(".audit-row").first).to_contain_text(f"{HOSTILE}, by link")
    for number in range(60):
        watched.api.post("/v1/tokens", json={"name": f"person-{number}", "scopes": ["answer"]})
    page.goto(page.url.replace("/audit", "/"))
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
    rows = page.locator(".audit-row")
    expect(rows).to_have_count(50)
    expect(rows.first).to_contain_text("Token created person-59")
    expect(rows.first).to_contain_text("main, by API")
    page.get_by_role("link", name="Older entries").click()
    expect(page).to_have_url(re.compile("cursor="))
    # Before its script runs, the page does not notice a choice.
    page.wait_for_load_state()
    expect(rows.filter(has_text="Run submitted")).to_contain_text(f"Run {run_id}")
    page.get_by_label("Action").select_option(label="Run submitted")
    expect(page).to_have_url(re.compile("action=run.submit"))
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name=f"Run {run_id}").click()
    expect(page).to_have_url(re.compile(f"/runs/{run_id}$"))
    assert page.evaluate("window.__pwned") is None


@pytest.mark.contract("N-7")
def test_the_log_is_for_administrators_alone(watched: Site, browser: Browser) -> None:
    made = watched.api.post("/v1/tokens", json={"name": "reader", "scopes": ["read", "answer", "submit"]}).json()
    with wire.calling(watched.server.url, made["token"]) as reader:
        wire.refused(reader.get("/v1/audit"), 403, "SCOPE_MISSING")
    session = watched.server.session(made["token"]) | {"accept": "text/html"}
    page = httpx.get(f"{watched.server.url}/audit", headers=session)
    assert (page.status_code, "audit-row" in page.text) == (403, False)
    inbox = httpx.get(watched.server.url, headers=session)
    assert inbox.status_code == 200
    assert 'href="/audit"' not in inbox.text
