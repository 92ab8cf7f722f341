"""Cancel: in every state that is not final, and only once nothing of the run lives."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import Conflict, RefusalCode
from askback.core.events import EventType
from askback.core.interactions import InteractionOutcome
from askback.core.runs import RunState
from askback.process.tree import Tree
from askback.workspace.versions import LocalArtifacts
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting
from support.processes import lives

STARTED = {"touch": "started"}
HOSTILE: dict[str, list[dict[str, Any]]] = {
    "obedient": [STARTED, {"wait_for": "never"}],
    "ignores TERM": [{"misbehave": "ignore_term"}, STARTED, {"wait_for": "never"}],
    "has a child": [{"misbehave": "spawn_child", "pid_file": "pid"}, STARTED, {"wait_for": "never"}],
    "has a deaf daemon": [
        {"misbehave": "spawn_daemon", "pid_file": "pid", "ignore_term": True},
        STARTED,
        {"wait_for": "never"},
    ],
    "has a daemon without environment": [
        {"misbehave": "spawn_daemon", "pid_file": "pid", "clear_env": True},
        STARTED,
        {"wait_for": "never"},
    ],
    "has a daemon without environment and files": [
        {"misbehave": "spawn_daemon", "pid_file": "pid", "clear_env": True, "close_fds": True, "ignore_term": True},
        STARTED,
        {"wait_for": "never"},
    ],
    "forks on and on": [{"misbehave": "fork_chain"}, STARTED, {"wait_for": "never"}],
    "stopped itself": [STARTED, {"misbehave": "stop_itself"}],
    "closed its pipes": [STARTED, {"misbehave": "close_stdout_and_live"}],
}


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_running_run_is_canceled_once_its_whole_tree_is_dead(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path)
    skill = world.skill(HOSTILE[kind])

    async def main() -> None:
        async with world.working() as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            daemon = int((work / "pid").read_text()) if (work / "pid").exists() else None
            asked = await app.service.cancel(run.id)
            assert asked.state is RunState.RUNNING
            ended = await over(app, run.id)
            assert ended.state is RunState.CANCELED
            assert Tree(mark=run.id).members() == set()
            assert daemon is None or not lives(daemon)

    run_async(main)


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("warm_sec", [0, 600])
def test_a_run_that_asks_while_it_is_canceled_is_over_once_its_process_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm_sec: int
) -> None:
    """The request comes when the worker has decided that the process stays, and before the end of the turn is stored."""
    world = World(tmp_path)
    written = {"write": {"path": "artifacts/note.txt", "text": "one"}}
    skill = world.skill([{"misbehave": "ignore_term"}, written, ASK], [FINISH])

    async def main() -> None:
        async with world.working(f"warm_sec = {warm_sec}\nwarm.min_free_memory = 0\n") as app:
            loop, record = asyncio.get_running_loop(), LocalArtifacts.record

            def canceled_meanwhile(self: LocalArtifacts, *args: Any, **more: Any) -> Any:
                asked = asyncio.run_coroutine_threadsafe(app.service.cancel(run_id), loop).result()
                assert asked.state is RunState.RUNNING
                return record(self, *args, **more)

            run_id = (await submit(app, skill, options={"warm_sec": warm_sec})).id
            monkeypatch.setattr(LocalArtifacts, "record", canceled_meanwhile)
            ended = await over(app, run_id)
            assert Tree(mark=run_id).members() == set()
            assert ended.state is RunState.CANCELED
            types = [event.type for event in await events_of(app, run_id)]
            assert types.count(EventType.TURN_ENDED) == 1

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("B-2", "M-1")
def test_a_queued_run_is_canceled_at_once_and_never_starts(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([STARTED, {"wait_for": "go"}, {"finish": {"colour": "x"}}])

    async def main() -> None:
        async with world.working("slots = 1\n") as app:
            first = await submit(app, skill)
            await reach(app, first.id, RunState.RUNNING)
            second = await submit(app, skill)
            assert (await app.service.cancel(second.id)).state is RunState.CANCELED
            work = app.workspaces.of(first.id).cwd
            await until(lambda: (work / "started").exists())
            (work / "go").touch()
            await over(app, first.id)
            assert [e.type for e in await events_of(app, second.id)] == [
                EventType.RUN_CREATED,
                EventType.RUN_STATE,
                EventType.RUN_STATE,
            ]

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("B-2", "A-4", "M-1")
def test_a_waiting_run_is_canceled_with_its_question(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            assert (await app.service.cancel(run.id)).state is RunState.CANCELED
            (interaction,) = await app.service.store.interactions(run.id)
            assert interaction.outcome is InteractionOutcome.CANCELED
            assert interaction.answered_by is None
            with pytest.raises(Conflict) as refused:
                await app.service.reply(run.id, "red", "colour")
            assert refused.value.code is RefusalCode.INTERACTION_NOT_PENDING

    run_async(main)


@pytest.mark.contract("B-2")
def test_a_final_run_cannot_be_canceled(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            run = await over(app, (await submit(app, skill)).id)
            with pytest.raises(Conflict) as refused:
                await app.service.cancel(run.id)
            assert refused.value.code is RefusalCode.RUN_FINAL

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("B-2", "M-1")
def test_a_cancel_from_another_program_reaches_the_one_that_runs_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([STARTED, {"wait_for": "never"}])

    async def main() -> None:
        async with world.working() as mine, world.working() as other:
            run = await submit(mine, skill)
            work = mine.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            await other.service.cancel(run.id)
            assert (await over(mine, run.id)).state is RunState.CANCELED

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("M-1")
def test_cancel_races_with_the_end_of_a_turn_and_one_of_them_wins(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as app:
            runs = [await submit(app, skill) for _ in range(12)]

            async def cancel(number: int, run_id: str) -> bool:
                await asyncio.sleep(0.012 * number)
                try:
                    await app.service.cancel(run_id)
                except Conflict:
                    return False
                return True

            asked = await asyncio.gather(*(cancel(number, run.id) for number, run in enumerate(runs)))
            ended = [await over(app, run.id) for run in runs]
            for was_asked, run in zip(asked, ended, strict=True):
                assert (run.state is RunState.CANCELED) == was_asked
                assert Tree(mark=run.id).members() == set()

    run_async(main)
