"""A page of another origin drives a run through the TypeScript client, if the settings name its origin."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import sync_playwright

from support.data_folder import ASK, FINISH, World
from support.server import Server

pytestmark = pytest.mark.xdist_group("typescript")

PAGE = """<!doctype html><title>app</title><script type="module">
import { Client } from "/src/index.js";
const { url, token } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const client = new Client(url, { token });
async function drive() {
  const run = await client.createRun({ skill: "asks", engine: "scripted", mode: "interactive" }, { idempotencyKey: "page" });
  const types = [];
  for await (const event of client.events(run.id)) {
    types.push(event.type);
    if (event.type === "interaction.asked") {
      await client.reply(run.id, event.data.interaction_id, "blue");
    }
  }
  const { data } = await client.result(run.id);
  await client.deleteRun(run.id);
  return { data, first: types[0], asked: types.includes("interaction.asked") };
}
window.outcome = await drive().catch((error) => ({ error: error.constructor.name }));
</script>"""


class _App(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the name of the base class
        pass


@pytest.fixture(scope="module")
def app(compiled: Path) -> Iterator[str]:
    """The origin of a small web app: a page and the compiled client, served from a port of its own."""
    (compiled / "index.html").write_text(PAGE)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_App, directory=str(compiled))) as site:
        serving = threading.Thread(target=site.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{site.server_port}"
        site.shutdown()
        serving.join()


def server_for(folder: Path, **env: str) -> Server:
    world = World(folder)
    world.skill([ASK], [FINISH], name="asks")
    return Server(world, env=env)


def outcome_of(app: str, server: Server, chromium: str) -> Any:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{app}/#{json.dumps({'url': server.url, 'token': server.token})}")
        page.wait_for_function("window.outcome !== undefined")
        outcome = page.evaluate("window.outcome")
        browser.close()
    return outcome


def runs_of(server: Server) -> list[Any]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        listed = http.get("/v1/runs", headers={"authorization": f"Bearer {server.token}"})
    found: list[Any] = listed.json()["items"]
    return found


@pytest.mark.long
def test_a_page_of_a_named_origin_drives_a_run(app: str, tmp_path: Path, chromium: str) -> None:
    with server_for(tmp_path, ASKBACK_SERVER__ALLOWED_ORIGINS=json.dumps([app])) as server:
        outcome = outcome_of(app, server, chromium)
        assert runs_of(server) == []
    assert outcome == {"data": {"colour": "blue"}, "first": "run.created", "asked": True}


@pytest.mark.long
@pytest.mark.parametrize("origins", [None, ["http://127.0.0.1:1"]], ids=["off", "another origin"])
def test_a_page_of_any_other_origin_is_refused(
    app: str, tmp_path: Path, chromium: str, origins: list[str] | None
) -> None:
    env = {} if origins is None else {"ASKBACK_SERVER__ALLOWED_ORIGINS": json.dumps(origins)}
    with server_for(tmp_path, **env) as server:
        outcome = outcome_of(app, server, chromium)
        assert runs_of(server) == []
    # The browser hides the response from the page, so it looks like a lost connection.
    assert outcome == {"error": "ServerUnreachable"}
