"""Labels on the page: set in the form, shown as texts, and chosen as filters."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from site_pages import Site

from support.api import over, reply, start, waiting

pytestmark = pytest.mark.contract("N-5")

EVIL = "<img src=x onerror=document.title='owned'> & \"quoted\""


def test_a_label_of_the_form_is_a_filter_everywhere(site: Site) -> None:
    other = waiting(site.api, "asking", labels={"customer": "other"})
    page = site.open("/new?skill=asking")
    page.locator("details.more summary").click()
    page.get_by_label("Labels").fill(f"customer={EVIL}\n\nplan : a:b")
    page.get_by_text("May ask questions").click()
    page.get_by_role("button", name="Start run").click()
    label = page.locator("a.label").first
    expect(label).to_have_text(f"customer={EVIL}")
    run_id = page.url.rpartition("/")[2]
    assert site.api.get(f"/v1/runs/{run_id}").json()["labels"] == {"customer": EVIL, "plan": "a:b"}
    expect(page.locator("#pending form")).to_be_visible()
    label.click()
    expect(page.locator(".run-row")).to_have_count(1)
    expect(page.locator(".run-row .label")).to_have_text([f"customer={EVIL}", "plan=a:b"])
    page.get_by_role("link", name=f"customer:{EVIL}").click()
    expect(page.locator(f".run-row[href='/runs/{other}']")).to_be_visible()
    page.get_by_label("Label, such as customer:4711").fill("customer:other")
    page.keyboard.press("Enter")
    expect(page.locator(f".run-row[href='/runs/{other}']")).to_be_visible()
    expect(page.locator(f".run-row[href='/runs/{run_id}']")).to_have_count(0)
    assert page.title() != "owned"
    assert site.mistakes == []


@pytest.mark.long
def test_labels_of_programs_are_not_on_the_page(site: Site) -> None:
    run_id = waiting(site.api, "asking", labels={"number": "internal", "mcp_call": "1a2b", "acp-session": "3c4d"})
    page = site.open("/?label=number:internal")
    expect(page.locator(".question .label")).to_have_text(["number=internal"])
    expect(page.locator(".inbox-row .row-label")).to_have_text(["number=internal"])
    page.goto(f"{site.url}/runs?label=number:internal")
    expect(page.locator(".run-row .label")).to_have_text(["number=internal"])
    page.goto(f"{site.url}/runs/{run_id}")
    expect(page.locator("a.label")).to_have_text(["number=internal"])
    page.goto(f"{site.url}/new?skill=asking&again={run_id}")
    assert page.locator("#labels").input_value().strip() == "number=internal"
    assert reply(site.api, run_id, "red").status_code == 202
    over(site.api, run_id)
    page.goto(f"{site.url}/answered?label=number:internal")
    expect(page.locator(".answered-row .label")).to_have_text(["number=internal"])
    assert site.mistakes == []


def test_the_inbox_shows_and_filters_labels(site: Site) -> None:
    labels = {"customer": EVIL, "number": "inbox"}
    mine = waiting(site.api, "asking", labels=labels)
    waiting(site.api, "asking", labels={"number": "elsewhere"})
    page = site.open("/?label=number:inbox")
    expect(page.locator(".inbox-row")).to_have_count(1)
    expect(page.locator(".question .label")).to_have_text([f"customer={EVIL}", "number=inbox"])
    page.locator(".question .label").first.click()
    expect(page.locator("#inbox-labels .chip")).to_have_count(1)
    expect(page.locator(".inbox-row").first).to_be_visible()
    page.goto(f"{site.url}/?label=number:inbox")
    page.locator("#inbox-labels .chip").click()
    expect(page.locator("#inbox-labels")).to_be_hidden()
    expect(page.locator(".inbox-row")).not_to_have_count(1)
    assert "label" not in page.url
    assert reply(site.api, mine, "red").status_code == 202
    over(site.api, mine)
    page.goto(f"{site.url}/answered?label=number:inbox")
    expect(page.locator(".answered-row")).to_have_count(1)
    expect(page.locator(".answered-row .label")).to_have_text([f"customer={EVIL}", "number=inbox"])
    assert page.title() != "owned"
    assert site.mistakes == []


@pytest.mark.long
def test_running_again_copies_the_labels(site: Site) -> None:
    run_id = start(site.api, "plain", mode="auto", labels={"customer": "again"})
    over(site.api, run_id)
    page = site.open(f"/new?skill=plain&again={run_id}")
    page.locator("details.more summary").click()
    expect(page.get_by_label("Labels")).to_have_value("customer=again\n")
    page.get_by_label("Labels").fill("no colon")
    page.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("alert")).to_contain_text("'no colon' is not a name")
    assert site.mistakes == []
