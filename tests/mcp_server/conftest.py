"""One server for the tests of MCP, with skills that ask, finish, hang and leave files."""

from __future__ import annotations

from collections.abc import Iterator

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
FINISH_RED = {"finish": {"colour": "red"}}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("mcp"))
    world.skill([ASK], [{"write": {"path": "artifacts/deep/a b.txt", "text": "{{reply}}\n"}}, FINISH], name="asking")
    world.skill([{"ask": {**ASK["ask"], "kind": "form", "response_schema": FORM}}], [FINISH_RED], name="form")
    world.skill([{"ask": {**ASK["ask"], "kind": "secret", "options": []}}], [FINISH_RED], name="secretive")
    partly = {**ASK["ask"], "kind": "form", "options": [], "response_schema": PART_SECRET}
    world.skill([{"ask": partly}], [FINISH_RED], name="partly-secret")
    world.skill([FINISH_RED], name="quick", schemas={"input": INPUT})
    world.skill([{"say": "here"}, {"wait_for": "never"}, FINISH_RED], name="endless")
    world.skill([{"misbehave": "auth"}], name="failing")
    return world


@pytest.fixture(scope="session")
def server(world: World) -> Iterator[Server]:
    with Server(world, env={"ASKBACK_SLOTS": "16", "ASKBACK_MCP__SKILL_TOOLS": "true"}) as server:
        yield server


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
