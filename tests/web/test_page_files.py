"""A run's files on its page: unfolded in place as what they really are, renewed as they grow, and there without scripts."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from site_pages import FurnishedServer, Site, signed_in

import support.api as wire
from support.data_folder import World

PWN = "<script>window.__pwned = 1</script><img src=x onerror='window.__pwned = 1'>"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FILES = {
    "blob.bin": bytes(range(256)),
    "deep/a b&c?.md": f"# Painted\n\n{PWN}\n\n[away](javascript:window.__pwned=1)".encode(),
    "data.json": b'{"b":[1]}',
    "page.html": PWN.encode(),
    "photo.png": PNG,
    "drawing.svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="window.__pwned = 1"></svg>',
}
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


def left(world: World, run_id: str) -> None:
    """The files, as the run's engine could have left them."""
    for name, content in FILES.items():
        path: Path = world.data_dir / "runs" / run_id / "work" / "artifacts" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def unfold(page: Page, name: str) -> Locator:
    row = page.locator("#files > li", has=page.locator(".file-name", has_text=name))
    row.locator("summary").click()
    return row.locator(".file-look")


def test_a_file_unfolds_in_place_and_nothing_of_it_is_run(site: Site, furnished_server: FurnishedServer) -> None:
    run_id = wire.waiting(site.api, "writing")
    left(furnished_server.world, run_id)
    site.context.add_init_script(_WATCH)
    page = site.open(f"/runs/{run_id}")
    expect(unfold(page, "data.json").locator("pre")).to_have_text('{\n  "b": [\n    1\n  ]\n}', use_inner_text=True)
    for name in ("page.html", "drawing.svg"):
        expect(unfold(page, name).locator("pre")).to_have_text(FILES[name].decode())
    expect(unfold(page, "photo.png").locator("img")).to_have_js_property("naturalWidth", 1)
    expect(unfold(page, "blob.bin")).to_contain_text("neither text nor an image")
    painted = unfold(page, "deep/a b&c?.md")
    expect(painted.get_by_role("heading", name="Painted")).to_be_visible()
    expect(painted).to_contain_text(PWN)
    assert painted.locator("script, img, [href^=javascript]").count() == 0
    assert page.evaluate("[window.__pwned, window.violations]") == [None, []]
    page.locator("#files > li", has_text="deep/a b&c?.md").get_by_role("link", name="on its own page").click()
    expect(page.get_by_role("heading", name="deep/a b&c?.md")).to_be_visible()


def test_the_list_is_renewed_while_what_is_unfolded_stays_so(site: Site) -> None:
    run_id = wire.waiting(site.api, "writing")
    page = site.open(f"/runs/{run_id}")
    look = unfold(page, "b.txt")
    expect(look).to_have_text("small")
    assert wire.reply(site.api, run_id, "red").status_code == 202
    expect(page.locator(".file-name")).to_have_text(["a.txt", "b.txt"])
    expect(look).to_have_text("it has grown")
    expect(page.locator("#files details[open]")).to_have_count(1)
    asked = wire.reach(site.api, run_id, "waiting_user")["pending_interaction"]["interaction_id"]
    page.locator("summary", has_text="a.txt").focus()
    assert wire.reply(site.api, run_id, "red", asked).status_code == 202
    expect(page.locator("#state")).to_have_text("Succeeded")
    expect(page.locator("#connection")).to_have_attribute("data-state", "over")
    expect(page.locator("summary", has_text="a.txt")).to_be_focused()


@pytest.mark.long
def test_what_cannot_be_loaded_says_so_and_is_tried_again(site: Site) -> None:
    run_id = wire.waiting(site.api, "writing")
    page = site.open(f"/runs/{run_id}")
    page.route("**/preview?path=*", lambda route: route.abort())
    look = unfold(page, "b.txt")
    expect(look.get_by_role("alert")).to_have_text("The preview could not be loaded. Close it and try again.")
    page.unroute("**/preview?path=*")
    page.locator("summary", has_text="b.txt").click()
    expect(look).to_have_count(0)
    page.locator("summary", has_text="b.txt").click()
    expect(look).to_have_text("small")
    site.mistakes.clear()


@pytest.mark.long
def test_without_scripts_the_list_is_there_and_each_file_by_its_link(
    furnished_server: FurnishedServer, browser: Browser
) -> None:
    with signed_in(furnished_server, browser, by_page=True, java_script_enabled=False) as site:
        run_id = wire.waiting(site.api, "writing")
        page = site.open(f"/runs/{run_id}")
        page.locator("summary", has_text="b.txt").click()
        page.get_by_role("link", name="Open b.txt on its own page").click()
        expect(page.locator("pre")).to_have_text("small")
