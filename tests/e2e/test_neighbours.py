"""Several programs on one data folder: each goes its way, and none waits for another."""

from __future__ import annotations

import asyncio
from pathlib import Path

from askback.core.runs import RunState
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting
from support.program import Started, work_folder


def test_two_runs_and_a_server_on_one_folder_do_not_block_each_other(tmp_path: Path) -> None:
    world = World(tmp_path)
    holds = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "held"}}], name="holds")
    asks = world.skill([ASK], [FINISH], name="asks")

    async def main() -> None:
        async with world.working(serving=True) as app:
            with (
                Started(world, "run", holds, "--engine", "scripted") as held,
                Started(world, "run", asks, "--engine", "scripted", "--answer", "red", "--json") as quick,
            ):
                held_id = await asyncio.to_thread(held.run_id)
                served = await submit(app, holds)
                folders = [work_folder(world, run_id) for run_id in (held_id, served.id)]
                await until(lambda: all((folder / "started").exists() for folder in folders))
                ran = await asyncio.to_thread(quick.ended)
                assert (ran.code, ran.json["data"]) == (0, {"colour": "red"})
                beside = await submit(app, asks)
                await waiting(app, beside.id)
                await app.service.reply(beside.id, "blue")
                assert (await over(app, beside.id)).state is RunState.SUCCEEDED
                assert held.process.poll() is None
                for folder in folders:
                    (folder / "go").touch()
                assert (await asyncio.to_thread(held.ended)).code == 0
                assert (await over(app, served.id)).state is RunState.SUCCEEDED

    run_async(main)
