"""One server for the tests of MCP, with skills that ask, finish, hang and leave files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.data_folder import ASK, FINISH, World
from support.mcp_client import Door
from support.server import Server

FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
}
INPUT = {"type": "object", "required": ["place"], "properties": {"place": {"type": "string"}}}
PART_SECRET = {
    "type": "object",
    "required": ["user", "password"],
    "properties": {"user": {"type": "string"}, "password": {"type": "string", "format": "password"}},
}
RICH = """---
name: rich
description: >-
  Folded text: with
  two lines
license: Apache-2.0
metadata:
  version: "1.10"
  since: 2026-07-28
  on: yes
---
Do it — with ünïcode.
"""
TYPED = """---
name: typed
description: Values without quotes.
metadata:
  version: 1.10
  many: [1, 0x1F, ~, '1', true, 1e3]
  empty:
---
Do it.
"""
FINISH_RED = {"finish": {"colour": "red"}}
PONDERED = {
    "prompt": "Which colour?",
    "context": {"room": "kitchen", "walls": 4},
    "options": [{"label": "Red", "value": "red", "description": "as a rose"}, {"label": "Blue", "value": "blue"}],
}
CONFIRM = {"kind": "confirm", "prompt": "Paint it?", "default": True}
PICKING = {
    "prompt": "Please.",
    "questions": [
        {"id": "colour", **PONDERED, "context": "Of the walls."},
        {"id": "coats", "prompt": "How many coats?"},
    ],
}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("mcp"))
    world.skill([ASK], [{"write": {"path": "artifacts/deep/a b.txt", "text": "{{reply}}\n"}}, FINISH], name="asking")
    world.skill(
        [{"ask": {**ASK["ask"], "kind": "form", "options": [], "response_schema": FORM}}], [FINISH_RED], name="form"
    )
    world.skill([{"ask": {**ASK["ask"], "kind": "secret", "options": []}}], [FINISH_RED], name="secretive")
    partly = {**ASK["ask"], "kind": "form", "options": [], "response_schema": PART_SECRET}
    world.skill([{"ask": partly}], [FINISH_RED], name="partly-secret")
    asks: dict[str, dict[str, Any]] = {
        "pondering": PONDERED,
        "wordy": {"prompt": "Which colour?", "context": "\x1b[31m" + "x" * 9000},
        "confirming": CONFIRM,
        "free": {"prompt": "Which colour?"},
        "suggesting": {"prompt": "Which colour?", "default": "green"},
        "picking": PICKING,
    }
    for name, ask in asks.items():
        world.skill([{"ask": {"interaction_id": "colour", **ask}}], [FINISH], name=name, output=None)
    world.skill([FINISH_RED], name="quick", schemas={"input": INPUT})
    world.skill([{"say": "here"}, {"wait_for": "never"}, FINISH_RED], name="endless")
    world.skill([{"misbehave": "auth"}], name="failing")
    return world


@pytest.fixture(scope="session")
def server(world: World) -> Iterator[Server]:
    with Server(world, env={"ASKBACK_SLOTS": "16", "ASKBACK_MCP__SKILL_TOOLS": "true"}) as server:
        yield server


@pytest.fixture(scope="session")
def rich_skill(world: World) -> str:
    """The URI of a skill with front matter, names and contents that are easy to spoil on the way."""
    runner = {"id": "Rich.Skill", "version": "1.0.0", "execution_modes": ["auto"]}
    folder = Path(world.skill([FINISH_RED], name="rich", runner=runner))
    (folder / "SKILL.md").write_bytes(RICH.replace("\n", "\r\n").encode())
    odd = folder / "references/a b#ü%41"
    odd.mkdir(parents=True, exist_ok=True)
    (odd / "notes?.md").write_text("notes\n")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "empty.txt").write_bytes(b"")
    return "skill://Rich.Skill/rich/SKILL.md"


@pytest.fixture(scope="session")
def typed_skill(world: World) -> str:
    """The URI of a skill whose metadata are not strings for other readers of YAML."""
    folder = Path(world.skill([FINISH_RED], name="typed"))
    (folder / "SKILL.md").write_text(TYPED)
    return "skill://typed/SKILL.md"


@pytest.fixture(params=["http-legacy", "http-modern", "stdio-legacy", "stdio-modern"])
def door(request: pytest.FixtureRequest, server: Server) -> Door:
    """Both transports, and both eras of the protocol."""
    transport, era = request.param.split("-")
    return Door(server=server, transport=transport, mode="legacy" if era == "legacy" else "2026-07-28")


@pytest.fixture(params=["http-modern", "stdio-legacy"])
def one_door(request: pytest.FixtureRequest, server: Server) -> Door:
    """Each transport and each era once, for what does not depend on their combination."""
    transport, era = request.param.split("-")
    return Door(server=server, transport=transport, mode="legacy" if era == "legacy" else "2026-07-28")
