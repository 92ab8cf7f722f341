"""The limit of an MCP call, in real time."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from askback.mcp.envelope import MAX_WAIT_SEC
from support.data_folder import ASK, FINISH, World
from support.mcp_client import Door, key, run
from support.program import ASKBACK
from support.server import Server

LIMIT_SEC = 45
PATIENCE_SEC = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="asking")
    world.skill([{"say": "here"}, {"wait_for": "never"}, FINISH], name="endless")
    with Server(world) as server:
        yield server


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.long
@pytest.mark.contract("F-1")
def test_real_calls_return_within_their_limit(server: Server, silent: str) -> None:
    """At once: a run that goes on, a form that nobody answers, and a server that never answers."""

    async def nobody(context: Any, params: Any) -> types.ElicitResult:
        await asyncio.sleep(PATIENCE_SEC)
        return types.ElicitResult(action="cancel")

    async def timed(client: Client, skill: str) -> tuple[float, bool]:
        began = time.monotonic()
        arguments = {"skill": skill, "engine": "scripted", "idempotency_key": key(), "wait_sec": MAX_WAIT_SEC}
        result = await client.call_tool("run_skill", arguments)
        return time.monotonic() - began, bool(result.is_error)

    async def test() -> None:
        env = {"ASKBACK_URL": silent, "ASKBACK_TOKEN": "none"}
        unanswered = StdioServerParameters(command=ASKBACK[0], args=[*ASKBACK[1:], "mcp"], env=env)
        async with AsyncExitStack() as stack:
            door = Door(server=server, transport="stdio", mode="legacy")
            clients = [await stack.enter_async_context(door.opened(nobody)) for _ in range(2)]
            clients.append(await stack.enter_async_context(Client(unanswered, mode="legacy")))
            skills = ("endless", "asking", "asking")
            took = await asyncio.gather(*(timed(*each) for each in zip(clients, skills, strict=True)))
        assert [failed for _, failed in took] == [False, False, True]
        assert max(seconds for seconds, _ in took) < LIMIT_SEC

    run(test)
