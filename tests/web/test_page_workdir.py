"""A run in a folder of the server's machine, on the page: how it is started, and what it has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from site_pages import Site, press, signed_in

import support.api as wire
from support.data_folder import ASK, FINISH, World
from support.repositories import repository
from support.server import Server


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "code/repo")


@pytest.fixture
def server(tmp_path: Path, repo: Path) -> Iterator[Server]:
    world = World(tmp_path / "askback")
    edits = [{"write": {"path": path, "text": "blue\n"}} for path in ("site.css", "new<b>.txt")]
    world.skill([*edits, {"finish": {"colour": "blue"}}], name="editing")
    world.skill([ASK], [FINISH], [{"finish": {"colour": "done"}}], name="asking")
    with Server(world, env={"ASKBACK_WORKDIRS": str(tmp_path / "code")}) as server:
        yield server


@pytest.mark.contract("J-6")
def test_a_run_is_started_in_a_folder_and_shows_its_changes(
    server: Server, browser: Browser, repo: Path, tmp_path: Path
) -> None:
    with signed_in(server, browser) as site:
        page = site.open("/new?skill=editing")
        folder = page.get_by_label("Work in this folder of the server")
        assert page.locator("#workdirs option").get_attribute("value") == str(tmp_path / "code")
        folder.fill(str(tmp_path))
        page.get_by_role("radio", name="scripted").check()
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#trouble")).to_contain_text("not below a folder in `workdirs`")
        folder.fill(str(repo))
        page.get_by_role("button", name="Start").click()
        page.wait_for_url("**/runs/*")
        shown = page.locator("#changes")
        expect(shown).to_contain_text(f"Changes in {repo}")
        expect(shown).to_contain_text("site.css +1 −1 · changed")
        expect(shown).to_contain_text("new<b>.txt +1 −0 · new")
        expect(shown).to_contain_text("2 files changed, +2 −1")
        expect(page.locator("#facts")).to_contain_text(str(repo))
        page.get_by_role("link", name="Run again").click()
        expect(page.get_by_label("Work in this folder of the server")).to_have_value(str(repo))
        assert site.mistakes == []


@pytest.mark.long
def test_a_folder_without_git_says_why_there_is_no_summary(server: Server, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "code/plain").mkdir()
    with signed_in(server, browser) as site:
        run_id = wire.start(site.api, "editing", workdir=str(tmp_path / "code/plain"))
        wire.over(site.api, run_id)
        page = site.open(f"/runs/{run_id}")
        expect(page.locator("#changes")).to_contain_text("not the top folder of a git repository")


def test_a_server_without_the_setting_offers_no_folder(site: Site) -> None:
    page = site.open("/new?skill=plain")
    expect(page.get_by_role("button", name="Start")).to_be_visible()
    expect(page.locator("#workdir")).to_have_count(0)


@pytest.mark.contract("J-3", "J-4", "J-6")
def test_a_run_is_forked_and_followed_up_in_its_folder(server: Server, browser: Browser, repo: Path) -> None:
    with signed_in(server, browser) as site:
        source = wire.waiting(site.api, workdir=str(repo))
        assert wire.reply(site.api, source, "red").status_code == 202
        wire.over(site.api, source)
        page = site.open(f"/runs/{source}")
        page.get_by_role("button", name="Answer differently").click()
        page.get_by_role("button", name="Ask again").click()
        expect(page.locator(".run-from")).to_contain_text("Forked at question “colour”")
        press(page.get_by_role("button", name="blue"))
        expect(page.locator("#result")).to_contain_text("blue")
        fork = wire.get(site.api, page.url.rpartition("/")[2])
        assert (fork["workdir"], fork["from_run"]) == (
            str(repo),
            {"run_id": source, "session": True, "at": "colour"},
        )
        page.get_by_role("link", name="Follow up").click()
        expect(page.get_by_label("Work in this folder of the server")).to_have_count(0)
        page.get_by_label("Value").fill("And now the ceiling.")
        page.get_by_role("button", name="Start run").click()
        expect(page.locator(".run-from")).to_have_text(f"Continues run {fork['id']}")
        follow_up = wire.over(site.api, page.url.rpartition("/")[2])
        assert (follow_up["state"], follow_up["workdir"]) == ("succeeded", str(repo))
