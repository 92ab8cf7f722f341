"""A real CLI as an MCP client: it starts a skill, gets its question, answers it and gets the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clis import Station
from double import Kind, ModelDouble, Request, Step, call_tool, say

from support.data_folder import ASK, FINISH, World
from support.program import askback
from support.server import Server

CONFIGURATIONS = {"claude": ".claude/.claude.json"}
WORDS = {
    "claude": ("-p", "Run the skill.", "--dangerously-skip-permissions"),
}
RUN_ID = re.compile(r'run_id\\*": ?\\*"([0-9a-z]{16})')


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    world = World(tmp_path / "served")
    world.skill([ASK], [FINISH], name="asking")
    with Server(world) as server:
        yield server


def tool(request: Request, name: str, arguments: dict[str, Any]) -> Step:
    """Calls one of our tools, by the name that this CLI gives it."""
    named = [each for each in request.asked.tools if each.endswith(name)]
    assert named, f"{name} is not offered; offered: {', '.join(request.asked.tools)}"
    return call_tool(named[0], arguments)


def results(request: Request) -> list[str]:
    return [each.text for each in request.asked.transcript if each.kind is Kind.TOOL_RESULT]


def start(request: Request) -> Step:
    return tool(request, "run_skill", {"skill": "asking", "engine": "scripted"})


def answer(request: Request) -> Step:
    told = results(request)[-1]
    found = RUN_ID.search(told)
    assert found, told
    return tool(request, "answer_question", {"run_id": found[1], "interaction_id": "colour", "answer": "blue"})


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_real_client_runs_a_skill_and_passes_its_question_on(
    name: str, station: Callable[[str], Station], double: ModelDouble, server: Server, tmp_path: Path
) -> None:
    client = station(name)
    # On a busy machine, the program that it starts needs more time than it usually gets.
    client = replace(client, env={**client.env, "MCP_TIMEOUT": "120000"})
    file = client.home / CONFIGURATIONS[name]
    world = World(tmp_path / "served")
    ran = askback(world, "mcp", "--data-dir", str(world.data_dir), "install", name, "--file", str(file), "--json")
    assert ran.json["written"] is True
    double.play(start, answer, say("All done."))
    ended = client.run(*WORDS[name], timeout_sec=240)
    assert ended.exit_code == 0, ended.stderr + ended.stdout
    first, second = results(double.requests[-1])[-2:]
    assert "Which colour?" in first
    assert "waiting_user" in first
    assert '"colour":"blue"' in re.sub(r"[\\\s]", "", second)
    with server.client() as api:
        (run,) = api.list_runs()
        (question,) = api.interactions(run.id)
        assert run.state == "succeeded"
        assert question.answered_with is not None
        assert question.answered_with.via == "mcp"
