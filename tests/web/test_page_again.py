"""Run again: the form comes filled as it was, but for files and secrets, and only for those who may read the run."""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect
from site_pages import FurnishedServer, Site

import support.api as wire
from askback.access.tokens import Tokens
from askback.app import now
from askback.core.access import AccessScope

SECRET = "hunter-2-hunter"


def once(site: Site) -> str:
    file = site.api.post("/v1/uploads", files={"file": ("notes.txt", b"text")}).json()["upload_id"]
    given = {"document": {"upload_id": file}, "count": 3, "kind": "short"}
    run_id = wire.start(
        site.api,
        "reads",
        input=given,
        parameter={"language": "French", "api_key": SECRET},
        options={"turn_timeout_sec": 600},
    )
    wire.over(site.api, run_id)
    return run_id


def again(site: Site, run_id: str) -> Page:
    page = site.open(f"/runs/{run_id}")
    page.get_by_role("link", name="Run again").click()
    page.wait_for_url(f"**again={run_id}")
    return page


def test_the_form_is_filled_as_it_was_but_for_files_and_secrets(site: Site) -> None:
    run_id = once(site)
    page = again(site, run_id)
    expect(page.get_by_role("spinbutton", name="Count")).to_have_value("3")
    expect(page.get_by_label("short")).to_be_checked()
    expect(page.get_by_label("Language")).to_have_value("French")
    expect(page.get_by_label("Api key")).to_have_value("")
    expect(page.get_by_role("radio", name="May ask questions")).to_be_checked()
    expect(page.get_by_role("radio", name="scripted")).to_be_checked()
    expect(page.get_by_label("Time for a turn, in seconds")).to_have_value("600")
    told = page.locator(".again")
    expect(told).to_contain_text("Files and secrets are not copied")
    expect(told).to_contain_text("api_key, document")
    expect(told.get_by_role("link", name=run_id)).to_be_visible()
    assert SECRET not in page.content()
    page.get_by_role("button", name="Document").set_input_files(
        {"name": "other.txt", "mimeType": "text/plain", "buffer": b"other"}
    )
    expect(page.get_by_text("other.txt, 5 B")).to_be_visible()
    with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/v1/runs")) as sent:
        page.get_by_role("button", name="Start run").click()
    body = sent.value.post_data_json
    del body["input"]["document"]
    assert body == {
        "skill": "reads",
        "engine": "scripted",
        "mode": "interactive",
        "input": {"count": 3, "kind": "short"},
        "parameter": {"language": "French"},
        "options": {"turn_timeout_sec": 600},
    }
    page.wait_for_url(re.compile(r"/runs/[0-9a-z]{16}$"))


@pytest.mark.long
def test_a_plain_skill_gets_its_named_texts_back(site: Site) -> None:
    file = site.api.post("/v1/uploads", files={"file": ("notes.txt", b"text")}).json()["upload_id"]
    given = {"request": "Paint it\nred", "times": 3, "wall": {"upload_id": file}}
    page = again(site, wire.start(site.api, "plain", mode="auto", input=given))
    names = page.get_by_label("Name").evaluate_all("(inputs) => inputs.map((input) => input.value)")
    values = page.get_by_label("Value").evaluate_all("(inputs) => inputs.map((input) => input.value)")
    assert dict(zip(names, values, strict=True)) == {"request": "Paint it\nred", "times": "3"}
    expect(page.locator(".again")).to_contain_text("wall")


def test_only_who_may_read_and_submit_may_run_again(site: Site, furnished_server: FurnishedServer) -> None:
    run_id = once(site)
    tokens = Tokens(furnished_server.world.records, now)
    seen: dict[str, list[bool]] = {}
    for scope in (AccessScope.READ, AccessScope.SUBMIT):
        session = furnished_server.session(tokens.make(f"again-{scope}", (scope,), None))
        with httpx.Client(base_url=furnished_server.url, headers={"accept": "text/html"} | session) as client:
            filled = client.get("/new", params={"skill": "reads", "again": run_id})
            assert (filled.status_code, "French" in filled.text) == (403, False)
            shown = client.get(f"/runs/{run_id}")
            seen[scope] = [shown.status_code == 200, "again=" in shown.text]
    assert seen == {"read": [True, False], "submit": [False, False]}
    missing = site.api.get("/new", params={"skill": "reads", "again": "nothing"}, headers={"accept": "text/html"})
    assert missing.status_code == 404
