"""What a client reads about tools and skills."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from askback.client import AsyncClient
from askback.mcp.caller import MAX_LINKS, Caller, OpenForms, Remembered
from askback.mcp.tools import TOOLS, skill_tools
from support.data_folder import FINISH, World
from support.server import Server


def test_hints_name_the_tools_that_end_something_for_good_or_let_an_engine_work() -> None:
    hints = {name: declared.tool(name).annotations for name, declared in TOOLS.items()}
    destroying = [name for name, each in hints.items() if each is not None and each.destructive_hint]
    assert destroying == ["run_skill", "answer_question", "cancel_run"]
    executing = [name for name, each in hints.items() if each is not None and each.open_world_hint]
    assert executing == ["run_skill", "answer_question"]
    reading = [name for name, each in hints.items() if each is not None and each.read_only_hint]
    assert reading == ["get_run", "list_questions", "list_skills"]


def test_a_skill_that_is_removed_after_it_was_listed_does_not_hide_the_others(tmp_path: Path) -> None:
    own_world = World(tmp_path)
    for name in ("first", "second"):
        own_world.skill([FINISH], name=name)

    async def removed(request: httpx.Request) -> httpx.Response:
        path = request.url.path.replace("first", "gone")
        return await network.handle_async_request(httpx.Request("GET", server.url + path, headers=request.headers))

    async def main() -> list[str]:
        async with AsyncClient(server.url, server.token, transport=httpx.MockTransport(removed)) as client:
            caller = Caller(client=client, identity="", urls=Remembered[str](MAX_LINKS), forms=OpenForms())
            return [each.name for each in await skill_tools(lambda: caller)]

    with Server(own_world) as server:
        network = httpx.AsyncHTTPTransport()
        assert asyncio.run(main()) == ["skill_second"]
