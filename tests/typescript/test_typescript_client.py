"""The TypeScript client drives a real server, from Node and from a page in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_programs import CLIENT, LIMIT_SEC, ran
from playwright.sync_api import Route, sync_playwright

from askback import __version__
from support.data_folder import ASK, FINISH, World
from support.server import Server

pytestmark = pytest.mark.xdist_group("typescript")
FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("server"))
    world.skill([ASK], [FINISH], name="asks")
    world.skill([{"wait_for": "never"}], name="works", output=None)
    note = {"write": {"path": "artifacts/a note.md", "text": "Done.\n"}}
    world.skill([note, {"finish": {}}], name="reads", output=None, schemas={"input": FILE})
    with Server(world) as started:
        yield started


def test_the_tests_of_the_client_pass_in_node(compiled: Path, node: str, server: Server) -> None:
    files = sorted(map(str, (compiled / "test").glob("*.test.js")))
    shown = ran(node, "--test", *files, ASKBACK_URL=server.url, ASKBACK_TOKEN=server.token)
    passed = re.search(r"^# pass (\d+)$", shown, re.MULTILINE)
    assert passed is not None, shown
    assert int(passed[1]) >= 10


PAGE = """<!doctype html><title>app</title><script type="module">
import { Client } from "/app/src/index.js";
const { token } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const client = new Client(location.origin, { token });
const run = await client.createRun({ skill: "asks", engine: "scripted", mode: "interactive" });
const types = [];
for await (const event of client.events(run.id)) {
  types.push(event.type);
  if (event.type === "interaction.asked") {
    await client.reply(run.id, event.data.interaction_id, "blue");
  }
}
const { data } = await client.result(run.id);
window.outcome = { data, first: types[0], asked: types.includes("interaction.asked") };
</script>"""


@pytest.mark.long
def test_a_page_in_a_browser_drives_a_run(compiled: Path, chromium: str, server: Server) -> None:
    def serve(route: Route) -> None:
        """What an app of the same origin would serve; every call of the API reaches the server."""
        name = route.request.url.partition("/app/")[2].partition("#")[0]
        if name == "":
            route.fulfill(body=PAGE, content_type="text/html")
        else:
            route.fulfill(body=(compiled / name).read_text(), content_type="text/javascript")

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(LIMIT_SEC * 1000)
        page.route("**/app/**", serve)
        page.goto(f"{server.url}/app/#{json.dumps({'token': server.token})}")
        page.wait_for_function("window.outcome !== undefined")
        outcome = page.evaluate("window.outcome")
        browser.close()
    assert outcome == {"data": {"colour": "blue"}, "first": "run.created", "asked": True}


def test_the_package_has_the_version_of_the_server_and_no_dependencies() -> None:
    package = json.loads((CLIENT / "package.json").read_text())
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert (package["version"], lock["version"]) == (__version__, __version__)
    assert "dependencies" not in package
    assert all("resolved" not in each for each in lock["packages"].values())
    assert (CLIENT / "LICENSE").read_text() == (CLIENT.parents[1] / "LICENSE").read_text()
