"""A server for which the system has no threads for a moment: it refuses what needs one, and lives on."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.api import within
from support.data_folder import World, over, run_async, submit, until


@pytest.mark.databases
def test_a_server_outlives_a_moment_without_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"write": {"path": "artifacts/plan.txt", "text": "the plan"}}, {"finish": {"colour": "red"}}])
    real, refused = threading.Thread.start, threading.Event()

    def start(self: threading.Thread) -> None:
        if refused.is_set():
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)

    async def main() -> None:
        async with within(world) as (app, _, client):
            client.event_hooks = {}
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            bundle = f"/v1/runs/{run.id}/bundle"
            # Nothing has a thread to spare.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            refused.set()
            try:
                refusal = await client.get(bundle)
                assert (refusal.status_code, refusal.json()["code"]) == (503, "RESOURCE_SHORTAGE")
                assert "retry-after" in refusal.headers
                # A loop in the background needs one, too.
                await until(lambda: "can't start new thread" in caplog.text)
            finally:
                refused.clear()
            async with asyncio.timeout(60):
                assert (await client.get(bundle)).status_code == 200
            later = await submit(app, skill, mode="auto")
            assert (await over(app, later.id)).state == "succeeded"

    run_async(main)
