"""Runs whose files are stored: what was lost on this machine comes back, and nothing is lost while the store is down."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from askback.core.errors import Unavailable
from askback.core.runs import RunState
from askback.files.tree import remove_tree
from support.api import over as api_over
from support.api import start
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting
from support.server import Server

FILE = {"type": "object", "required": ["plan"], "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
FINISH_RED = {"finish": {"colour": "red"}}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_upload_is_used_without_the_machine_that_took_it(world: World) -> None:
    world.skill([FINISH_RED], name="reading", schemas={"input": FILE})
    stored = world.folder / "stored"
    with (
        Server(world, env={"ASKBACK_FILES": str(stored)}) as server,
        httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token}"}, timeout=60) as client,
    ):
        made = client.post("/v1/uploads", files={"file": ("plan.txt", b"the plan")})
        assert made.status_code == 201, made.text
        remove_tree(world.data_dir / "uploads")
        run_id = start(client, "reading", input={"plan": {"upload_id": made.json()["upload_id"]}})
        api_over(client, run_id)
        staged = world.data_dir / "runs" / run_id / "work" / "inputs" / "plan" / "plan.txt"
        assert staged.read_bytes() == b"the plan"
        assert client.delete(f"/v1/runs/{run_id}").status_code == 204
        assert [path for path in stored.rglob("*") if path.is_file()] == []
        # The store is down: nothing is accepted that needs it.
        stored.rename(world.folder / "elsewhere")
        refused = client.post("/v1/uploads", files={"file": ("plan.txt", b"the plan")})
        assert (refused.status_code, refused.json()["code"]) == (503, "FILES_UNAVAILABLE")


def test_inputs_come_back_before_the_next_turn(world: World) -> None:
    skill = world.skill([ASK], [FINISH], schemas={"input": FILE})
    plan = world.folder / "plan.txt"
    plan.write_text("the plan")

    async def main() -> None:
        async with world.working(f'files = "{world.folder / "stored"}"') as app:
            run = await waiting(app, (await submit(app, skill, files={"plan": plan})).id)
            inputs = app.workspaces.of(run.id).cwd / "inputs"
            remove_tree(inputs)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert (inputs / "plan" / "plan.txt").read_text() == "the plan"

    run_async(main)


def test_a_lost_package_is_fetched_before_the_next_turn(world: World) -> None:
    skill = world.skill([ASK], [FINISH])
    config = f'files = "{world.folder / "stored"}"'

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            run = await waiting(app, (await submit(app, skill)).id)
        remove_tree(world.data_dir / "packages")
        async with world.working(config, serving=True) as app:
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert [path.name for path in (world.data_dir / "packages").iterdir()] == [run.skill.digest]

    run_async(main)


def test_no_turn_starts_while_the_store_is_down(world: World) -> None:
    skill = world.skill([ASK], [FINISH])
    stored, elsewhere = world.folder / "stored", world.folder / "elsewhere"

    async def main() -> None:
        async with world.working(f'files = "{stored}"') as app:
            run = await waiting(app, (await submit(app, skill)).id)
            stored.rename(elsewhere)
            await app.service.reply(run.id, "red")
            changes = app.store.changes()
            while (await app.store.get(run.id)).state is not RunState.RUNNING:
                await changes.wait()
            changes.close()
            with pytest.raises(Unavailable):
                await asyncio.to_thread(app.workspaces.of(run.id).fetch_inputs)
            elsewhere.rename(stored)
            ended = await over(app, run.id)
            assert (ended.state, ended.attempt_number) == (RunState.SUCCEEDED, 2)

    run_async(main)
