"""Every call ends soon, and what cuts it off never ends the run. The same call finds it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from askback.mcp.envelope import MAX_WAIT_SEC
from support.mcp_client import Door, called, key, refusal, run, started
from support.server import Server


@pytest.mark.contract("F-1")
def test_a_call_waits_no_longer_than_it_may(one_door: Door) -> None:
    async def test() -> None:
        async with one_door.opened() as client:
            assert MAX_WAIT_SEC < 45
            for tool in (await client.list_tools()).tools:
                if "wait_sec" in tool.input_schema["properties"]:
                    assert tool.input_schema["properties"]["wait_sec"]["maximum"] == MAX_WAIT_SEC
                    assert tool.input_schema["properties"]["wait_sec"]["default"] <= MAX_WAIT_SEC
            running = await started(client, "endless", wait_sec=0)
            assert running["state"] in ("queued", "running")
            assert "wait_sec" in await refusal(client, "get_run", run_id=running["run_id"], wait_sec=46)
            await called(client, "cancel_run", run_id=running["run_id"])

    run(test)


@pytest.mark.contract("F-1")
def test_a_long_call_reports_progress_and_returns(one_door: Door) -> None:
    async def test() -> None:
        told: list[str | None] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            told.append(message)

        async with one_door.opened() as client:
            arguments = {"skill": "endless", "engine": "scripted", "idempotency_key": key(), "wait_sec": 12}
            result = await client.call_tool("run_skill", arguments, progress_callback=progress)
            run_id = result.structured_content["run_id"]
            assert any(run_id in (each or "") for each in told)
            await called(client, "cancel_run", run_id=run_id)

    run(test)


@pytest.mark.contract("F-1")
def test_a_call_that_is_cut_off_leaves_its_run_and_is_found_again(door: Door) -> None:
    async def test() -> None:
        arguments: dict[str, Any] = {"skill": "endless", "engine": "scripted", "input": {"call": key()}}
        async with door.opened() as client:
            task = asyncio.ensure_future(client.call_tool("run_skill", arguments))
            run_id = await _appears(door, arguments)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        async with door.opened() as client:
            found = await called(client, "run_skill", **arguments, wait_sec=0)
            assert found["run_id"] == run_id
            assert found["state"] == "running"
            assert "before" in found["message"]
            await called(client, "cancel_run", run_id=run_id)

    run(test)


async def _appears(door: Door, arguments: dict[str, Any]) -> str:
    """The id of the run of a call, when it is running."""
    async with door.server.async_client() as api:
        while True:
            async for each in api.list_runs(skill=arguments["skill"], state="running"):
                shown = await api.get_run(each.id)
                if shown.input == arguments["input"]:
                    return each.id
            await asyncio.sleep(0.1)


@pytest.mark.contract("F-1")
def test_the_same_call_finds_the_same_run(one_door: Door) -> None:
    async def test() -> None:
        arguments = {"skill": "asking", "engine": "scripted", "input": {"call": key()}}
        async with one_door.opened() as client:
            both = await asyncio.gather(*(called(client, "run_skill", **arguments) for _ in range(2)))
            first = both[0]["run_id"]
            assert both[1]["run_id"] == first
            other = await called(client, "run_skill", **{**arguments, "input": {"call": key()}})
            assert other["run_id"] != first
            await called(client, "answer_question", run_id=first, interaction_id="colour", answer="red")
            over = await called(client, "run_skill", **arguments)
            assert (over["run_id"], over["state"]) == (first, "succeeded")
            new = await called(client, "run_skill", **arguments, idempotency_key=key())
            assert new["run_id"] != first

    run(test)


@pytest.mark.contract("F-1")
def test_a_run_outlives_the_program_that_started_it(server: Server) -> None:
    async def test() -> None:
        door = Door(server=server, transport="stdio", mode="legacy")
        arguments = {"skill": "asking", "engine": "scripted", "input": {"call": key()}}
        async with door.opened() as client:
            first = await called(client, "run_skill", **arguments)
        async with door.opened() as client:
            assert (await called(client, "run_skill", **arguments))["run_id"] == first["run_id"]
            about = {"run_id": first["run_id"], "interaction_id": "colour"}
            assert (await called(client, "answer_question", **about, answer="red"))["data"] == {"colour": "red"}

    run(test)


def test_without_a_server_the_tools_say_so(server: Server) -> None:
    async def test() -> None:
        class Gone:
            url, token = "http://127.0.0.1:9", "none"

        door = Door(server=Gone(), transport="stdio", mode="legacy")  # type: ignore[arg-type]
        async with door.opened() as client:
            assert len((await client.list_tools()).tools) == 6
            assert "SERVER_UNREACHABLE" in await refusal(client, "list_skills")

    run(test)
