"""The changes in a run's files on its page: the turn of each file, and the difference between two turns."""

from __future__ import annotations

import pytest
from accessibility import complaints
from playwright.sync_api import Browser, Page, expect
from site_pages import FurnishedServer, Site, signed_in

import support.api as wire
from support.data_folder import World


def changed(site: Site) -> str:
    """A run that waits after its second turn, which has changed `b.txt` and written `a.txt`."""
    run_id = wire.waiting(site.api, "writing")
    assert wire.reply(site.api, run_id, "red").status_code == 202
    wire.reach(site.api, run_id, "waiting_user")
    return run_id


def signs(page: Page) -> list[str]:
    return [line.rstrip("\n") for line in page.locator(".changes span").all_text_contents()]


def test_each_file_names_its_turn_and_a_change_opens(site: Site) -> None:
    run_id = wire.waiting(site.api, "writing")
    page = site.open(f"/runs/{run_id}")
    expect(page.locator(".file-turn")).to_have_text(["turn 1"])
    expect(page.get_by_role("link", name="Changes in b.txt")).to_have_count(0)
    assert wire.reply(site.api, run_id, "red").status_code == 202
    expect(page.locator(".file-turn")).to_have_text(["turn 2", "turn 2"])
    page.get_by_role("link", name="Changes in b.txt").click()
    expect(page.get_by_role("heading", name="Changes in b.txt")).to_be_visible()
    no_end = "\\ No newline at end of file"
    assert signs(page) == ["@@ -1,1 +1,1 @@", "-small", no_end, "+it has grown", no_end]
    page.get_by_label("From").select_option("Before the first turn")
    page.get_by_label("to", exact=True).select_option("End of turn 1")
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".change-added")).to_have_text("+small\n")
    expect(page.get_by_label("to", exact=True)).to_have_value("1")
    page.get_by_label("From").select_option("End of turn 1")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="No changes")).to_be_visible()


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        pytest.param("dark", 1280, marks=pytest.mark.long),
        pytest.param("light", 360, marks=pytest.mark.long),
        ("dark", 360),
    ],
)
def test_the_changes_are_for_everybody(
    furnished_server: FurnishedServer, browser: Browser, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 800}
    with signed_in(furnished_server, browser, color_scheme=scheme, viewport=viewport) as site:
        run_id = changed(site)
        for path in (f"/runs/{run_id}", f"/runs/{run_id}/changes?path=b.txt"):
            page = site.open(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert complaints(page) == []
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.long
def test_without_scripts_and_in_chinese_the_changes_are_there(
    furnished_server: FurnishedServer, browser: Browser
) -> None:
    with signed_in(furnished_server, browser, java_script_enabled=False, locale="zh-CN") as site:
        page = site.open(f"/runs/{changed(site)}")
        page.get_by_role("link", name="b.txt 的改动").click()
        expect(page.locator(".change-added")).to_have_text("+it has grown\n")
        page.get_by_role("button", name="比较").click()
        expect(page.locator(".change-removed")).to_have_text("-small\n")


def test_nothing_of_a_file_is_run(site: Site, furnished_server: FurnishedServer) -> None:
    world: World = furnished_server.world
    run_id = changed(site)
    attack = "<script>window.__pwned = 1</script><img src=x onerror='window.__pwned = 1'>"
    (world.data_dir / "runs" / run_id / "work" / "artifacts" / "b.txt").write_text(attack)
    page = site.open(f"/runs/{run_id}/changes?path=b.txt&from=<b>&to=%22")
    expect(page.get_by_role("heading", name="No changes")).to_be_visible()
    page = site.open(f"/runs/{run_id}/changes?path=b.txt")
    expect(page.locator(".change-added")).to_have_text(f"+{attack}\n")
    assert page.evaluate("window.__pwned") is None


@pytest.mark.long
def test_a_file_that_cannot_be_compared_says_so(site: Site, furnished_server: FurnishedServer) -> None:
    run_id = changed(site)
    (furnished_server.world.data_dir / "runs" / run_id / "work" / "artifacts" / "b.txt").write_bytes(b"\0")
    page = site.open(f"/runs/{run_id}/changes?path=b.txt")
    expect(page.get_by_role("heading", name="These versions cannot be compared")).to_be_visible()
    page = site.open(f"/runs/{run_id}/changes?path=missing.txt")
    expect(page.locator("main")).to_contain_text("has no such artifact")
