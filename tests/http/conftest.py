"""One server for most tests of HTTP: a child program with skills that ask, finish, hang and leave files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from support.api import calling
from support.data_folder import ASK, FINISH, World
from support.server import Server

FORM = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
}
FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
FINISH_RED = {"finish": {"colour": "red"}}


def furnish(world: World) -> World:
    world.skill([ASK], [{"write": {"path": "artifacts/deep/a b.txt", "text": "{{reply}}\n"}}, FINISH], name="asking")
    world.skill([{"ask": {**ASK["ask"], "kind": "form", "response_schema": FORM}}], [FINISH_RED], name="form")
    world.skill([{"ask": {**ASK["ask"], "kind": "secret"}}], [FINISH_RED], name="secretive")
    world.skill(
        [{"ask": {"interaction_id": "colour", "prompt": "Which plan?", "kind": "file"}}], [FINISH], name="filing"
    )
    world.skill([FINISH_RED], name="quick")
    world.skill([{"say": "here"}, {"wait_for": "never"}, FINISH_RED], name="endless")
    world.skill([FINISH_RED], name="reading", schemas={"input": FILE})
    world.skill([{"misbehave": "auth"}], name="failing")
    world.skill(
        [{"finish": {"a": "{{input.a|}}"}}],
        name="open",
        output=None,
        schemas={"input": {"type": "object"}, "parameter": {"type": "object"}},
        runner={"id": "open", "version": "1.0.0", "execution_modes": ["auto"], "engines": ["scripted"]},
    )
    return world


@pytest.fixture(scope="session")
def furnished_at() -> Callable[[Path], World]:
    """Makes a world with these skills in a folder."""
    return lambda folder: furnish(World(folder))


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> World:
    return furnish(World(tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="session")
def server(furnished: World) -> Iterator[Server]:
    with Server(
        furnished, env={"ASKBACK_SLOTS": "8", "ASKBACK_LIMITS__BODY": "2", "ASKBACK_LIMITS__UPLOAD": "4"}
    ) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with calling(server.url, server.token) as client:
        yield client


@pytest.fixture
def own_world(tmp_path: Path) -> World:
    """A data folder of the test's own, with the same skills."""
    return furnish(World(tmp_path))
