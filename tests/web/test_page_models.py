"""The page of a new run suggests the models and efforts that the chosen engine lists."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import signed_in

from support.data_folder import ASK, FINISH, World
from support.listing_engine import ListingEngine
from support.server import Server


def field_of(page: Page, label: str) -> Locator:
    return page.get_by_label(re.compile(f"^{label}\\b"))


def suggestions(page: Page, label: str) -> Locator:
    field = field_of(page, label)
    expect(field).to_have_count(1)
    return page.locator(f"datalist#{field.get_attribute('list')} option")


def test_models_of_the_chosen_engine_are_suggested(tmp_path: Path, browser: Browser) -> None:
    listing, world = ListingEngine(tmp_path), World(tmp_path)
    world.skill([ASK], [FINISH], name="asks")
    (tmp_path / "askback.toml").write_text(listing.settings)
    with Server(world, "--config", str(tmp_path / "askback.toml")) as server, signed_in(server, browser) as site:
        page = site.open("/new?skill=asks")
        page.locator("input[name=engine][value=scripted]").check()
        assert listing.starts == []
        page.get_by_text("More options").click()
        models, efforts = suggestions(page, "Model"), suggestions(page, "Effort")
        expect(models).to_have_count(0)
        page.locator("input[name=engine][value=codex]").check()
        expect(models).to_have_count(2)
        assert [each.get_attribute("value") for each in models.all()] == ["big-1", "small-1"]
        expect(efforts).to_have_count(2)
        field_of(page, "Model").fill("small-1")
        field_of(page, "Model").blur()
        expect(efforts).to_have_count(0)
        page.locator("input[name=engine][value=scripted]").check()
        expect(models).to_have_count(0)
        # Any other name can be typed, and is sent.
        field_of(page, "Model").fill("my-own-model")
        with page.expect_request("**/v1/runs") as sent:
            page.get_by_role("button", name="Start run").click()
        assert sent.value.post_data_json["options"] == {"model": "my-own-model"}
        page.wait_for_url("**/runs/*")
    assert len(listing.starts) == 1
