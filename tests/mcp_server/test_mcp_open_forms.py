"""Forms of the older era that nobody answers: one for each question, and a limited number for each caller."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import mcp_types as types
import pytest

from askback.mcp.caller import OpenForms
from support.data_folder import FINISH, World
from support.mcp_client import LIMIT_SEC, Door, called, key, run, started
from support.server import Server

MANY_OBJECTS: list[Any] = [{}] * 15_000
"""45 KB in a question, and more than a megabyte for every copy of it that a server holds."""


def test_a_client_has_one_open_form_for_a_question(server: Server) -> None:
    """The newest one, whose answer counts."""

    async def test() -> None:
        open_forms: list[int] = []
        seen: list[int] = []
        answers = asyncio.Event()

        async def slowly(context: Any, params: Any) -> types.ElicitResult:
            number = len(seen)
            seen.append(number)
            open_forms.append(number)
            try:
                await answers.wait()
                return types.ElicitResult(action="accept", content={"answer": "blue"})
            finally:
                open_forms.remove(number)

        async with Door(server=server, transport="stdio", mode="legacy").opened(slowly) as client:
            same = key()
            first = await started(client, "asking", idempotency_key=same, wait_sec=0)
            await called(client, "get_run", run_id=first["run_id"], wait_sec=30)
            while len(seen) < 5:
                asked = await started(client, "asking", idempotency_key=same, wait_sec=1)
                assert asked["state"] == "waiting_user"
            async with asyncio.timeout(30):
                while len(open_forms) > 1:
                    await asyncio.sleep(0.01)
            assert open_forms == [max(seen)]
            answers.set()
            done = asked
            while done["state"] != "succeeded":
                done = await called(client, "get_run", run_id=asked["run_id"], wait_sec=1)
            assert done["data"] == {"colour": "blue"}

    run(test)


@pytest.fixture
def bulky(tmp_path: Path) -> Iterator[Server]:
    world = World(tmp_path)
    ask = {"interaction_id": "colour", "prompt": "Which colour?", "context": MANY_OBJECTS}
    world.skill([{"ask": ask}], [FINISH], name="bulky", output=None)
    with Server(world) as server:
        yield server


def test_the_same_call_again_and_again_takes_no_memory(bulky: Server) -> None:
    """By a client that leaves every form open."""
    accept = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {bulky.token}"}
    about = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"form": {}}},
        "clientInfo": {"name": "test", "version": "1"},
    }
    arguments = {"skill": "bulky", "engine": "scripted", "idempotency_key": uuid.uuid4().hex}
    with httpx.Client(base_url=bulky.url, timeout=LIMIT_SEC, headers=accept) as http:

        def send(method: str, **params: Any) -> httpx.Response:
            message = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
            return http.post("/mcp", json=message)

        http.headers["mcp-session-id"] = send("initialize", **about).headers["mcp-session-id"]

        def ask(times: int, wait_sec: float) -> int:
            """How many forms were opened."""
            forms = 0
            while forms < times:
                called = send("tools/call", name="run_skill", arguments={**arguments, "wait_sec": wait_sec})
                forms += called.text.count("elicitation/create")
            return forms

        ask(1, 20)
        ask(10, 0.2)
        before = _rss_mb(bulky.process.pid)
        ask(60, 0.2)
        assert _rss_mb(bulky.process.pid) - before < 40


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (size_kb,) = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(size_kb) / 1024


def test_a_caller_with_many_questions_has_a_limited_number_of_forms() -> None:
    async def test() -> None:
        forms, never = OpenForms(max_per_caller=3), asyncio.Event()
        asked: dict[tuple[str, str], asyncio.Task[Any]] = {}
        for caller, number in [("b", "0"), *(("a", str(each)) for each in range(10))]:
            asked[caller, number] = asyncio.ensure_future(never.wait())
            forms.add((caller, number, "colour"), asked[caller, number])
        await asyncio.sleep(0)
        still = [name for name, form in asked.items() if not form.done()]
        assert still == [("b", "0"), ("a", "7"), ("a", "8"), ("a", "9")]
        never.set()
        await asyncio.gather(*asked.values(), return_exceptions=True)

    run(test)
