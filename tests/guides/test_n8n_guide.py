"""The n8n guide: the workflow is well-formed, and the calls that it makes, in its order, lead to a result."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.data_folder import World
from support.guide import ROOT, Reader
from support.n8n import NODE, VERSIONS, Execution, Workflow
from support.program import until
from support.receiver import Receiver, receiving
from support.server import Server

FILE = ROOT / "examples/n8n/plan-a-trip.json"
TRIGGER = "When a trip is wanted"
ONCE = ["Wait for Askback", "Look at the run", "Does it ask?"]


class Calls:
    """What reaches n8n: first the trigger, then the notifications, each taken once and in order."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.taken = 0

    def next(self) -> Any:
        until(lambda: self.receiver.came[self.taken :])
        self.taken += 1
        return json.loads(self.receiver.came[self.taken - 1].body)


def test_the_workflow_can_be_imported() -> None:
    workflow = Workflow(FILE)
    assert len(workflow.nodes) == len(workflow.document["nodes"])
    for node in workflow.nodes.values():
        prefix, _, kind = node["type"].partition(".")
        assert (prefix, node["typeVersion"]) == ("n8n-nodes-base", VERSIONS[kind])
        assert ("credentials" in node) == (kind == "httpRequest")
        assert ("webhookId" in node) == (kind in ("webhook", "wait"))
    assert len({node["id"] for node in workflow.nodes.values()}) == len(workflow.nodes)
    targets = {each["node"] for outputs in workflow.connections.values() for output in outputs for each in output}
    assert targets | {TRIGGER} == set(workflow.nodes)
    assert set(workflow.connections) | {"Fetch the result"} == set(workflow.nodes)
    assert workflow.references <= set(workflow.nodes)


def test_the_page_describes_every_node() -> None:
    page = (ROOT / "docs/guides/n8n.md").read_text()
    described = re.findall(r"^\| (?!node |---)(.+?) \|", page, re.MULTILINE)
    assert set(Workflow(FILE).nodes) - set(described) == {"Choose the answer", "Reply"}


@pytest.mark.skipif(NODE is None, reason="there is no Node here, which evaluates the expressions")
def test_the_workflow_answers_the_run_and_fetches_its_result(tmp_path: Path) -> None:
    world = World(tmp_path)
    with receiving(Receiver()) as receiver:
        n8n = f"http://127.0.0.1:{receiver.port}"
        reader = Reader("n8n.md", world, {"http://127.0.0.1:5678": n8n})
        set_up, serve = re.sub(r"^make demo .*\n\. \.venv/bin/activate\n", "", reader.next()).splitlines()
        reader.type(set_up)
        allowed, *command = serve.split()
        assert command == ["askback", "serve"]
        with Server(world, env=dict([allowed.split("=")])) as server:
            token = reader.type(reader.next(), {". .venv/bin/activate\n": ""}).strip()
            calls = Calls(receiver)
            reader.type(reader.next())
            execution = _execution(server, n8n, token, calls)
            result = execution.run(TRIGGER, {"body": calls.next()})
        assert (result["status"], result["data"]["pace"]) == ("succeeded", "balanced")
        asked = [*ONCE, "Choose the answer", "Reply"]
        assert execution.visited == ["Settings", "Start the run", *asked, *ONCE, "Is it over?", "Fetch the result"]
        assert {came.path for came in receiver.came[1:]} == {"/webhook-waiting/231?signature=s"}
        reader.finish()


@pytest.mark.long
@pytest.mark.skipif(NODE is None, reason="there is no Node here, which evaluates the expressions")
def test_refused_and_repeated_notifications_do_no_harm(tmp_path: Path) -> None:
    """n8n refuses with 409 while it does not wait yet. An early notification is sent again, a late one is ignored."""
    world = World(tmp_path)
    with receiving(Receiver(answers=[409])) as receiver:
        n8n = f"http://127.0.0.1:{receiver.port}"
        env = {"ASKBACK_NOTIFICATIONS__ALLOW_PRIVATE": "true"}
        reader = Reader("n8n.md", world)
        reader.type("askback skills install src/askback/skills/demo/trip-planner")
        with Server(world, env=env) as server:
            calls = Calls(receiver)
            execution = _execution(server, n8n, server.token, calls)
            # It wakes with the refused notification and with its repetition: the second finds the question answered.
            result = execution.run(TRIGGER, {"body": {"destination": "Oslo", "days": 1}})
    assert result["status"] == "succeeded"
    assert execution.visited.count("Start the run") == execution.visited.count("Reply") == 1


def _execution(server: Server, n8n: str, token: str, calls: Calls) -> Execution:
    workflow = Workflow(FILE)
    (field,) = workflow.nodes["Settings"]["parameters"]["assignments"]["assignments"]
    assert field["value"] == "http://127.0.0.1:8765"
    field["value"] = server.url
    return Execution(workflow, f"{n8n}/webhook-waiting/231?signature=s", token, calls.next)
