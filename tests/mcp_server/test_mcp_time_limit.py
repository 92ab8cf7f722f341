"""Every call returns within 45 s, even if the server behind it never answers. And nothing is polled meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from askback.client import AsyncClient
from askback.mcp.caller import MAX_LINKS, Caller, OpenForms, Remembered
from askback.mcp.envelope import CALL_SEC, MAX_WAIT_SEC
from askback.mcp.server import make_server, state_security
from support.mcp_client import Door, run, started
from support.server import Server

LIMIT_SEC = 45
PATIENCE_SEC = 120
ABOUT = {"run_id": "0" * 16}
CALLS: dict[str, dict[str, Any]] = {
    "run_skill": {"skill": "asking"},
    "get_run": ABOUT,
    "answer_question": {**ABOUT, "interaction_id": "colour", "answer": "red"},
    "cancel_run": ABOUT,
    "list_questions": {},
    "list_skills": {},
    "skill_asking": {},
}


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.contract("F-1")
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_a_server_that_never_answers_holds_no_call(silent: str, mode: str) -> None:
    """With a shorter limit than the real one; the limit itself is a constant."""
    assert MAX_WAIT_SEC < CALL_SEC < LIMIT_SEC

    async def test() -> None:
        async with AsyncClient(silent, timeout_sec=PATIENCE_SEC) as api:
            caller = Caller(client=api, identity="", urls=Remembered[str](MAX_LINKS), forms=OpenForms())
            sealed = state_security(None, None)
            server = make_server(lambda ctx: caller, skills_as_tools=True, security=sealed, call_sec=0.2)
            async with Client(server, mode=mode) as client:
                tools = [each.name for each in (await client.list_tools()).tools]
                assert tools == [each for each in CALLS if not each.startswith("skill_")]
                for name, arguments in CALLS.items():
                    result = await client.call_tool(name, arguments)
                    assert result.is_error
                    (told,) = [each.text for each in result.content if isinstance(each, types.TextContent)]
                    assert told.startswith("SERVER_UNREACHABLE: the server has not answered within 0.2 seconds")
                with pytest.raises(MCPError, match=r"within 0\.2 seconds"):
                    await client.read_resource("askback://runs/0000000000000000/artifacts/a")

    run(test)


class Watched(httpx.AsyncBaseTransport):
    """Passes requests on, and remembers them."""

    def __init__(self) -> None:
        self._inner = httpx.AsyncHTTPTransport()
        self.seen: list[httpx.Request] = []
        self.waiting = asyncio.Event()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if "wait" in request.url.params:
            self.waiting.set()
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def test_an_answer_elsewhere_is_awaited_by_the_server_and_not_polled(server: Server) -> None:
    async def progress(seconds: float, message: str) -> None:
        pass

    async def test() -> None:
        watched = Watched()
        async with (
            Door(server=server, transport="http", mode="legacy").opened() as client,
            server.async_client() as api,
            AsyncClient(server.url, server.token, timeout_sec=PATIENCE_SEC, transport=watched) as own,
        ):
            asked = await api.get_run((await started(client, "asking"))["run_id"])
            caller = Caller(client=own, identity="", urls=Remembered[str](MAX_LINKS), forms=OpenForms())
            until = time.monotonic() + PATIENCE_SEC
            waiting = asyncio.ensure_future(caller.closed(asked, "colour", until, progress))
            await watched.waiting.wait()
            await api.reply(asked.id, "colour", "red")
            assert (await waiting).state != "waiting_user"
        first, *rest = watched.seen
        assert "if-none-match" not in first.headers
        assert all("wait" in each.url.params and "if-none-match" in each.headers for each in rest)

    run(test)
