"""The Slack guide works as it is printed, with a double of Slack's API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from askback.client import Client
from support.data_folder import World
from support.guide import Reader
from support.held_port import HeldPort
from support.installation import CLIENT, Installation, build_wheel
from support.program import DEADLINE_SEC, until
from support.server import Server
from support.slack import CHANNEL, SIGNING_SECRET, TOKEN, Slack, slack

pytestmark = pytest.mark.xdist_group("slack-guide")
INSTALL = (
    "python3 -m venv ~/slack-bridge/.venv\n~/slack-bridge/.venv/bin/pip install ./clients/python fastapi uvicorn\n"
)
LONG = {
    "interaction_id": "long",
    "prompt": "Which & <!channel>? " + "word " * 2000,
    "options": [{"label": "label " * 50, "value": f"value {number}"} for number in range(30)] + ["x" * 3000],
}


class Bridge:
    """The bridge of the guide between a real server and the double of Slack."""

    def __init__(self, reader: Reader, client: Client, double: Slack, url: str) -> None:
        self.reader = reader
        self.double = double
        self.url = url
        self.client = client

    def message(self, number: int) -> dict[str, Any]:
        return until(lambda: self.double.messages[number:])[0]

    def buttons(self, number: int) -> list[dict[str, Any]]:
        elements: list[dict[str, Any]] = self.message(number)["blocks"][-1]["elements"]
        return elements

    def click(self, number: int, button: int, **changed: str) -> httpx.Response:
        return self.double.click(self.url, self.message(number), self.buttons(number)[button], **changed)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    folder = tmp_path_factory.mktemp("bridge")
    return Installation(folder / "bridge", build_wheel(CLIENT, "askback_client", folder), ["fastapi", "uvicorn"])


@pytest.fixture
def bridge(installed: Installation, tmp_path: Path) -> Iterator[Bridge]:
    """At the end of step 4: Askback and the bridge are running."""
    world, askback, port = World(tmp_path), HeldPort(), HeldPort()
    world.skill([{"ask": LONG}], [{"finish": {"colour": "{{reply}}"}}], name="long")
    url = f"http://127.0.0.1:{port.number}"
    swapped = {"127.0.0.1:8765": f"127.0.0.1:{askback.number}", "127.0.0.1:8010": f"127.0.0.1:{port.number}"}
    reader = Reader("slack.md", world, {**swapped, "--port 8010": f"--port {port.number}"})
    manifest = yaml.safe_load(reader.next("yaml"))
    assert manifest["oauth_config"]["scopes"]["bot"] == ["chat:write"]
    assert manifest["settings"]["interactivity"]["request_url"].endswith("/slack")
    prepare = re.sub(r"^make demo .*\n\. \.venv/bin/activate\n", "", reader.next())
    values = {"xoxb-…": TOKEN, "SIGNING_SECRET=…": f"SIGNING_SECRET={SIGNING_SECRET}", "C0123456789": CHANNEL}
    reader.type(prepare, {**values, INSTALL: f"ln -s {installed.bin.parent} ~/slack-bridge/.venv\n"})
    assert (reader.home / "slack-bridge/environment").stat().st_mode & 0o777 == 0o600
    reader.type(reader.next(), {"\naskback serve\n": "\n"})
    env = {name: value for name, value in reader.env.items() if name.startswith("ASKBACK_")}
    with slack() as double, Server(world, port=askback.number, env=env) as server:
        reader.write_next()
        enter, variables, start = reader.next().splitlines()
        reader.env["SLACK_API"] = f"{double.url}/api"
        reader.type(f"{enter}\n{variables}")
        with server.client() as client, reader.running(start, url):
            yield Bridge(reader, client, double, url)


def test_a_click_in_the_channel_answers_the_run(bridge: Bridge) -> None:
    run_id = json.loads(bridge.reader.type(bridge.reader.next()))["id"]
    message = bridge.message(0)
    assert message["text"] == message["blocks"][0]["text"]["text"] == "What pace would you like in Lisbon?"
    assert message["blocks"][1]["elements"][0]["text"] == "trip-planner: Lisbon, 3 days"
    assert [button["text"]["text"] for button in bridge.buttons(0)][0::3] == [
        "Relaxed: one thing a day",
        "Open the question",
    ]
    assert httpx.get(bridge.buttons(0)[3]["url"], timeout=DEADLINE_SEC).status_code == 200

    assert bridge.click(0, 3).status_code == 200  # the link is a click as well
    assert bridge.click(0, 0).status_code == 200
    # Slack gets its response first, then the answer is delivered.
    (update,) = until(lambda: bridge.double.updates)
    assert bridge.client.wait(run_id).state == "succeeded"
    assert bridge.client.result(run_id).data["pace"] == "relaxed"
    assert update["replace_original"]
    assert update["text"].endswith("\n<@U024BE7LH> answered: Relaxed: one thing a day")

    assert bridge.click(0, 2).status_code == 200
    until(lambda: bridge.double.updates[1:])
    # The message keeps who answered.
    assert bridge.double.updates[1] == {"replace_original": False, "text": "This question is no longer open."}
    bridge.reader.finish()


@pytest.mark.long
def test_forged_and_old_requests_are_refused(bridge: Bridge) -> None:
    run = bridge.client.create_run("trip-planner", engine="scripted", input={"destination": "Oslo", "days": 1})
    forged = ({"x-slack-signature": "v0=00"}, {"x-slack-signature": ""}, {"x-slack-request-timestamp": "1"})
    assert [bridge.click(0, 0, **each).status_code for each in forged] == [401, 401, 401]
    notification = {"webhook-id": "msg_1", "webhook-timestamp": "1", "webhook-signature": "v1,AAAA"}
    assert httpx.post(f"{bridge.url}/askback", headers=notification, json={}, timeout=DEADLINE_SEC).status_code == 401
    assert bridge.client.get_run(run.id).state == "waiting_user"
    assert bridge.double.updates == []


@pytest.mark.long
def test_a_large_question_is_within_the_limits_of_slack(bridge: Bridge) -> None:
    """The double refuses what exceeds a limit, so a message in the channel is valid. A failed attempt is repeated."""
    bridge.double.trouble.append("ratelimited")
    run = bridge.client.create_run("long", engine="scripted", mode="interactive")
    assert len(bridge.buttons(0)) == 25
    assert bridge.double.trouble == []
    assert bridge.message(0)["text"].startswith("Which &amp; &lt;!channel&gt;?")
    assert bridge.click(0, 5).status_code == 200
    until(lambda: bridge.double.updates)
    assert bridge.client.wait(run.id).state == "succeeded"
    assert bridge.client.result(run.id).data == {"colour": "value 5"}
