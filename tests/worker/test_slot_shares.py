"""Slots are shared among tokens: one token can neither take all of them nor keep others waiting behind its queue."""

from pathlib import Path

import pytest

from askback.app import App, opened
from askback.core.access import MAIN
from askback.core.runs import Run, RunState
from support.data_folder import World, over, reach, run_async, submit, until

pytestmark = pytest.mark.databases


def sleeping(world: World, go: Path) -> str:
    """A skill whose turn lasts until the file is there."""
    return world.skill([{"touch": "started"}, {"wait_for": str(go)}, {"finish": {"colour": "x"}}], name="sleeping")


def started(world: World) -> int:
    return len(list(world.data_dir.glob("runs/*/work/started")))


async def reasons(app: App, runs: list[Run]) -> list[str | None]:
    """Why those that are queued do not run yet."""
    found = [await app.store.get(run.id) for run in runs]
    return [app.service.queue_reason(run) for run in found if run.state is RunState.QUEUED]


def test_a_token_with_forty_sleeping_runs_does_not_keep_another_from_its_slot(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill, quick = sleeping(world, tmp_path / "never"), world.skill([{"finish": {"colour": "x"}}], name="quick")

    async def main() -> None:
        async with world.working("slots = 4\n", serving=True) as app:
            greedy = [await submit(app, skill, created_by="greedy") for _ in range(40)]
            await until(lambda: started(world) >= 3)
            run = await submit(app, quick, created_by="other")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert started(world) == 3
            assert await reasons(app, greedy) == ["token_slots"] * 37

    run_async(main)


def test_a_token_with_ten_sleeping_runs_of_one_engine_does_not_keep_another_from_the_engine(tmp_path: Path) -> None:
    """The server has more slots than the engine."""
    world = World(tmp_path)
    skill, quick = sleeping(world, tmp_path / "never"), world.skill([{"finish": {"colour": "x"}}], name="quick")

    async def main() -> None:
        async with world.working("slots = 4\n[engines.scripted]\nslots = 2\n", serving=True) as app:
            greedy = [await submit(app, skill, created_by="greedy") for _ in range(10)]
            await until(lambda: started(world) >= 1)
            run = await submit(app, quick, created_by="other")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert started(world) == 1
            assert await reasons(app, greedy) == ["token_slots"] * 9

    run_async(main)


def test_a_run_that_its_token_holds_back_starts_when_another_of_the_token_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    go = tmp_path / "go"
    first_skill = world.skill([{"wait_for": str(go)}, {"finish": {"colour": "x"}}], name="first")
    skill = sleeping(world, tmp_path / "never")

    async def main() -> None:
        async with world.working("slots = 4\nquotas.running = 1\n", serving=True) as app:
            first = await submit(app, first_skill, created_by="app")
            await reach(app, first.id, RunState.RUNNING)
            second = await submit(app, skill, created_by="app")
            other = await submit(app, skill, created_by="other")
            await reach(app, other.id, RunState.RUNNING)
            assert (await app.store.get(second.id)).state is RunState.QUEUED
            go.touch()
            await reach(app, second.id, RunState.RUNNING)

    run_async(main)


def test_the_servers_own_token_uses_every_slot(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = sleeping(world, tmp_path / "never")

    async def main() -> None:
        async with world.working("slots = 3\n", serving=True) as app:
            runs = [await submit(app, skill, created_by=MAIN) for _ in range(4)]
            await until(lambda: started(world) == 3)
            assert await reasons(app, runs) == ["slots"]

    run_async(main)


def test_the_limit_of_a_token_can_be_set(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = sleeping(world, tmp_path / "never")
    config = "slots = 4\nquotas.running = 1\nquotas.tokens.main.running = 2\n"

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            mine = [await submit(app, skill, created_by=MAIN) for _ in range(3)]
            theirs = [await submit(app, skill, created_by="app") for _ in range(3)]
            await until(lambda: started(world) == 3)
            await until(lambda: app.slots.taken == 3)
            assert await reasons(app, mine) == ["token_slots"]
            assert await reasons(app, theirs) == ["token_slots"] * 2

    run_async(main)


def test_the_limit_holds_across_servers(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = sleeping(world, tmp_path / "never")

    async def main() -> None:
        settings = world.settings("slots = 3\nquotas.running = 2\n")
        async with opened(settings, serving=True) as app, opened(settings, serving=True) as other:
            runs = [await submit((app, other)[n % 2], skill, created_by="app") for n in range(8)]
            async with app.working(), other.working():
                theirs = await submit(app, skill, created_by="other")
                await reach(app, theirs.id, RunState.RUNNING)
                await until(lambda: started(world) == 3)
                states = [(await app.store.get(run.id)).state for run in runs]
                assert states.count(RunState.RUNNING) == 2

    run_async(main)
