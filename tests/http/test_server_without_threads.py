"""A server for which the system has no threads for a moment: it refuses what needs one, and lives on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import askback
from support.api import within
from support.data_folder import World, over, run_async, submit, until
from support.telegram import ANNA, TOKEN

PACKAGE = str(Path(askback.__file__).parent)
EXPECTED = {
    "Membership",
    "MachineHealth",
    "Health",
    "Recovery",
    "Notifications",
    "Retention",
    "Worker",
    "TelegramBot",
    "McpFace",
}
"""Some of the loops, to see that they are found. All that are found must live on."""
HEADERS = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    """As the system does: `start` of the standard library raises what it raises without threads."""
    real, refused = threading.Thread.start, threading.Event()

    def start(self: threading.Thread) -> None:
        if refused.is_set():
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)

    @contextmanager
    def shortage() -> Iterator[None]:
        # No thread to spare is left in the program, either.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        refused.set()
        try:
            yield
        finally:
            refused.clear()

    return shortage


def own_tasks() -> dict[asyncio.Task[Any], str]:
    """The tasks of the package, by the coroutine that each executes."""
    coroutines = {task: task.get_coro() for task in asyncio.all_tasks()}
    return {
        task: str(getattr(each, "__qualname__", each))
        for task, each in coroutines.items()
        if getattr(each, "cr_code", None) is not None and each.cr_code.co_filename.startswith(PACKAGE)
    }


@pytest.mark.databases
def test_a_server_outlives_a_moment_without_threads(
    tmp_path: Path, without_threads: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"write": {"path": "artifacts/plan.txt", "text": "the plan"}}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with within(world) as (app, _, client):
            client.event_hooks = {}
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            bundle = f"/v1/runs/{run.id}/bundle"
            with without_threads():
                refusal = await client.get(bundle)
                assert (refusal.status_code, refusal.json()["code"]) == (503, "RESOURCE_SHORTAGE")
                assert "retry-after" in refusal.headers
                # A loop in the background needs one, too.
                await until(lambda: "can't start new thread" in caplog.text)
            async with asyncio.timeout(60):
                assert (await client.get(bundle)).status_code == 200
            later = await submit(app, skill, mode="auto")
            assert (await over(app, later.id)).state == "succeeded"

    run_async(main)


@pytest.mark.databases
def test_every_loop_in_the_background_outlives_a_moment_without_threads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    without_threads: Callable[[], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a bot whose API has a name to resolve, and an MCP server that nobody has used before."""
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])
    # Nobody listens there: the bot tries again and again.
    monkeypatch.setenv("ASKBACK_TELEGRAM__API_URL", "http://localhost:9")
    monkeypatch.setenv("ASKBACK_TELEGRAM__TOKEN", TOKEN)
    monkeypatch.setenv("ASKBACK_TELEGRAM__CHATS", json.dumps([{"id": ANNA, "name": "anna"}]))

    async def main() -> None:
        async with within(world) as (app, web, client), asyncio.TaskGroup() as group:
            client.event_hooks = {}
            tasks = [group.create_task(each()) for each in web.tasks]
            await over(app, (await submit(app, skill, mode="auto")).id)
            await until(lambda: "the Bot API cannot be reached" in caplog.text)
            caplog.clear()
            loops = own_tasks()
            assert {name.split(".")[0] for name in loops.values()} >= EXPECTED
            with without_threads():
                asking = group.create_task(client.post("/mcp", json=INITIALIZE, headers=HEADERS, timeout=120))
                await until(lambda: "the MCP server cannot be loaded" in caplog.text)
                await until(lambda: "cannot be reached: this machine is short of resources" in caplog.text)
                assert [name for task, name in loops.items() if task.done()] == []
            assert (await asking).status_code == 200
            await over(app, (await submit(app, skill, mode="auto")).id)
            assert [name for task, name in loops.items() if task.done()] == []
            for each in tasks:
                each.cancel()

    run_async(main)
