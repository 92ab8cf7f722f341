"""The real CLIs as MCP clients, each configured by the installer: one starts a skill, gets its question, answers it and gets the result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clis import Station
from double import Kind, ModelDouble, Request, Step, call_tool, say
from mcp_tap import Tap

from support.data_folder import ASK, FINISH, World
from support.server import Server

PROMPT = "Run the skill."
WORDS: Mapping[str, tuple[str, ...]] = {
    "claude": ("-p", PROMPT, "--dangerously-skip-permissions"),
    "codex": ("exec", "--skip-git-repo-check", "--yolo", "-c", "mcp_optional_startup_grace_ms=0", PROMPT),
    "gemini": ("--yolo", "-m", "gemini-2.5-flash", "-p", PROMPT),
    "opencode": ("run", "--auto", PROMPT),
    "qwen": ("--yolo", "--auth-type", "openai", "-p", PROMPT),
}
PATIENCE = {"CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "120000", "MCP_TIMEOUT": "120000"}
"""Without a user, Claude starts its first turn without the tools of a server that takes longer than some seconds to start.
Codex does so after one, unless its `mcp_optional_startup_grace_ms` is 0."""
NOBODY = {"claude": "cancel", "codex": "decline"}
"""How a client that declares elicitation reacts if nobody is there."""
BY_URL = ("codex", "gemini")
"""These pass on only what is named of their environment. The others find the server on the data folder."""
SLOW = ("claude", "gemini", "opencode", "qwen")
RUN_ID = re.compile(r'run_id\\*": ?\\*"([0-9a-z]{16})')


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("mcp-clients"))
    world.skill([ASK], [FINISH], name="asking")
    return world


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Server]:
    with Server(world) as server:
        yield server


def tool(request: Request, name: str, arguments: dict[str, Any]) -> Step:
    """Calls one of our tools, by the name that this CLI gives it."""
    named = [each for each in request.asked.tools if each.endswith(name)]
    assert named, f"{name} is not offered; offered: {', '.join(request.asked.tools)}"
    return call_tool(named[0], arguments)


def start(name: str) -> Step:
    arguments = {"skill": "asking", "engine": "scripted", "input": {"client": name}}
    return lambda request: tool(request, "run_skill", arguments)


def answer(request: Request) -> Step:
    told = results(request)[-1]
    found = RUN_ID.search(told)
    assert found, told
    return tool(request, "answer_question", {"run_id": found[1], "interaction_id": "colour", "answer": "blue"})


def results(request: Request) -> list[str]:
    return [each.text for each in request.asked.transcript if each.kind is Kind.TOOL_RESULT]


def in_tests(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.long) if name in SLOW else name


def reactions(tap: Tap) -> list[str]:
    """How the client reacted to our questions, in both eras of the protocol."""
    found = []
    for message in tap.from_client:
        later = message.get("params", {}).get("inputResponses", {}).values()
        found += [each["action"] for each in (message.get("result", {}), *later) if "action" in each]
    return found


@pytest.mark.parametrize("name", [in_tests(each) for each in WORDS])
def test_a_real_client_runs_a_skill_and_passes_its_question_on(
    name: str, station: Callable[[str], Station], double: ModelDouble, world: World, server: Server, tmp_path: Path
) -> None:
    client, tap = station(name), Tap.at(tmp_path / "tap")
    by_url = name in BY_URL
    access = {"ASKBACK_TOKEN": server.token} if by_url else {}
    client = replace(client, env={**client.env, **PATIENCE, **access})
    where = ("--url", server.url) if by_url else ("--data-dir", str(world.data_dir))
    installed = tap.install(world, name, client.env, *where)
    assert Path(installed["path"]).is_relative_to(client.home)
    assert server.token not in Path(installed["path"]).read_text()

    double.play(start(name), answer, say("All done."))
    ended = client.run(*WORDS[name], timeout_sec=240)
    assert ended.exit_code == 0, ended.stderr + ended.stdout
    first, second = results(double.requests[-1])[-2:]
    assert "Which colour?" in first
    assert "waiting_user" in first
    assert '"colour":"blue"' in re.sub(r"[\\\s]", "", second)
    assert reactions(tap) == ([NOBODY[name]] if name in NOBODY else [])
    run_id = RUN_ID.search(first)
    assert run_id is not None
    with server.client() as api:
        (question,) = api.interactions(run_id[1])
        assert api.get_run(run_id[1]).state == "succeeded"
        assert question.answered_with is not None
        assert question.answered_with.via == "mcp"


@pytest.mark.long
def test_a_refusal_reaches_the_model_of_a_client_that_checks_results(
    station: Callable[[str], Station], double: ModelDouble, world: World, server: Server, tmp_path: Path
) -> None:
    """Gemini takes text that is JSON for the structured result."""
    client, tap = station("gemini"), Tap.at(tmp_path / "tap")
    tap.install(world, "gemini", client.env, "--data-dir", str(world.data_dir))
    double.play(lambda request: tool(request, "run_skill", {"skill": "no-such-skill"}), say("All done."))
    ended = client.run(*WORDS["gemini"], timeout_sec=240)
    assert ended.exit_code == 0, ended.stderr + ended.stdout
    (told,) = results(double.requests[-1])
    assert "SKILL_NOT_FOUND" in told
