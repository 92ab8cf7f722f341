"""Turns whose keeper or guardian is killed: lost and restarted, a few times, with nothing left alive."""

import os
import signal
from pathlib import Path

import pytest

from askback.core.errors import ErrorCode
from askback.core.runs import RunState
from askback.core.turns import MAX_RESTARTS
from askback.process.guardian.client import Guardian, available
from askback.process.guardian.messages import boottime
from askback.process.tree import Tree
from support.data_folder import World, over, run_async, submit, until

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

DONE = {"finish": {"colour": "blue"}}


@pytest.mark.contract("B-1")
def test_a_turn_goes_on_when_the_guardian_was_killed_in_its_middle(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, DONE])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            await until((work / "started").exists)
            assert isinstance(app.spawner, Guardian)
            assert app.spawner.pid is not None
            os.kill(app.spawner.pid, signal.SIGKILL)
            (work / "go").touch()
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            assert len(world.prompts(run.id)) == 1
            assert Tree(mark=run.id).members() == set()

    run_async(main)


@pytest.mark.contract("B-1", "B-3")
def test_an_engine_that_kills_its_keeper_each_time_is_given_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"misbehave": "kill_parent"}])

    async def main() -> None:
        async with world.working() as app:
            ended = await over(app, (await submit(app, skill)).id)
            assert ended.state is RunState.FAILED
            assert ended.error is not None
            assert ended.error.code is ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED
            assert Tree(mark=ended.id).members() == set()

    run_async(main)


def test_a_turn_whose_lease_was_over_is_no_result_and_begins_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, DONE])

    async def main() -> None:
        async with world.working() as app:
            app.spawner.extend_lease(boottime() + 3600)
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            for _ in range(MAX_RESTARTS + 1):
                await until((work / "started").exists)
                (work / "started").unlink()
                app.spawner.extend_lease(boottime())
                await until(lambda: Tree(mark=run.id).members() == set())
                app.spawner.extend_lease(boottime() + 3600)
            await until((work / "started").exists)
            (work / "go").touch()
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)

    run_async(main)
