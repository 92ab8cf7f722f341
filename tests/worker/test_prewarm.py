"""Warm starts: processes that are ready before a run is submitted, and everything that must not be in them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import AskbackError, Invalid
from askback.core.events import EventType
from askback.core.runs import Run, RunState
from askback.engines.scripted import Scripted
from askback.process import tree
from askback.process.child import Child
from askback.store.pages import IdempotencyKey
from askback.worker import warm as prewarm
from askback.worker import warm_pool as pool
from askback.worker.turn import process as turn_process
from askback.worker.turn.context import TurnContext
from askback.worker.warm_pool import DropReason
from support.data_folder import ASK, FINISH, World, events_of, over, run_async, submit, until, waiting
from support.program import askback
from support.server import Server

DONE = {"finish": {"colour": "blue"}}
NAME = ".scripted/auth.json"


def settings(count: int = 1, engine: str = "", **limits: Any) -> str:
    """Settings under which processes are kept ready, however little memory the machine has."""
    kept = {"max_processes": 8, "max_memory": 0, "min_free_memory": 0} | limits
    warm = "\n".join(f"{name} = {value}" for name, value in kept.items())
    return f"warm_sec = 600\nslots = 4\n[warm]\n{warm}\n[engines.scripted]\nprewarm = {count}\n{engine}"


async def ready(app: App, count: int = 1) -> dict[str, int]:
    """The ids and pids of processes that nobody has yet, once there are so many and each has been measured."""

    def found() -> list[pool.Parked]:
        return [each for each in app.warm.prewarmed if not each.reserved and each.memory_bytes]

    await until(lambda: len(found()) == count)
    return {each.run_id: each.pid for each in found()}


async def processes(app: App, run_id: str) -> list[str]:
    events = await events_of(app, run_id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


def pids(world: World, run_id: str) -> set[int]:
    """Who heard the run's prompts, by the engine's own session file."""
    (session,) = world.sessions(run_id)
    return {entry["pid"] for entry in session if entry["type"] == "prompt"}


def folders(world: World) -> set[str]:
    return {each.name for each in (world.data_dir / "runs").iterdir()}


def notes(world: World) -> set[str]:
    folder = world.data_dir / "prewarmed"
    return {each.name for each in folder.iterdir()} if folder.is_dir() else set()


def nothing_lives(run_id: str) -> bool:
    return not tree.Tree(mark=run_id).members()


@pytest.mark.contract("V-6")
def test_a_run_takes_over_a_process_that_was_ready_and_the_next_one_gets_another(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            ((first, pid),) = (await ready(app)).items()
            run = await waiting(app, (await submit(app, skill)).id)
            assert (run.id, pids(world, run.id)) == (first, {pid})
            ((second, other_pid),) = (await ready(app)).items()
            assert (second != first, other_pid != pid) == (True, True)
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts, done.attempt_number) == (RunState.SUCCEEDED, 0, 2)
            assert (await app.service.result(run.id)).data == {"colour": "crimson"}
            assert await processes(app, run.id) == ["prewarmed", "warm"]
            assert len(world.prompts(run.id)) == 2
            assert nothing_lives(run.id)
            again = await over(app, (await submit(app, world.skill([DONE], name="other"))).id)
            assert (again.id, pids(world, again.id)) == (second, {other_pid})
            assert (app.prewarming.hits, app.prewarming.misses) == (2, 0)

    run_async(main)


@pytest.mark.contract("V-6")
def test_nothing_of_a_run_is_in_a_process_before_it_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    secret = "crimson-secret"
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            await ready(app)
            earlier = await waiting(app, (await submit(app, skill)).id)
            await over(app, (await submit(app, skill, mode="auto", env={"SECRET_WORD": secret})).id)
            ((run_id, pid),) = (await ready(app)).items()
            root = app.workspaces.of(run_id).root
            files = {each.relative_to(root).as_posix() for each in root.rglob("*")}
            assert files - {"home/.scripted"} == {"turn.lock", "home", "work", "work/artifacts", "tmp"}
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert secret.encode() not in environment
            assert earlier.id.encode() not in environment
            assert f"HOME={root}/home".encode() in environment
            opened = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
            inside = {each for each in opened if each.startswith(f"{world.data_dir}/runs/")}
            assert all(each.startswith(f"{root}/") for each in inside)

    run_async(main)


@pytest.mark.contract("V-6")
@pytest.mark.parametrize("seen", [True, False], ids=["seen before", "seen by the unread prompt"])
def test_a_process_that_is_suspended_before_its_run_is_submitted_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    monkeypatch.setattr(turn_process, "READ_SEC", 0.2)

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            ((run_id, pid),) = (await ready(app)).items()
            os.kill(pid, signal.SIGSTOP)
            await until(lambda: tree.is_stopped(pid))
            if not seen:
                # As in a sandbox, where the process that stops is not the one that was started.
                monkeypatch.setattr(Child, "is_stopped", False)
            run = await waiting(app, (await submit(app, skill)).id)
            assert (run.id, run.restarts) == (run_id, 0)
            assert pid not in pids(world, run.id)
            assert await processes(app, run.id) == ["prewarmed", "new"]
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert ["crimson" in each for each in world.prompts(run.id)] == [False, True]
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("V-6")
def test_runs_in_parallel_never_share_a_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate = tmp_path / "gate"
    skill = world.skill([{"wait_for": str(gate)}, DONE])

    async def main() -> None:
        async with world.working(settings(2), serving=True) as app:
            before = await ready(app, 2)
            runs = await asyncio.gather(*(submit(app, skill) for _ in range(4)))
            assert {run.id for run in runs} > before.keys()
            gate.touch()
            done = [await over(app, run.id) for run in runs]
            assert {run.state for run in done} == {RunState.SUCCEEDED}
            used = [pids(world, run.id) for run in done]
            assert [len(each) for each in used] == [1] * 4
            assert len(set.union(*used)) == 4
            assert all(pids(world, run_id) == {pid} for run_id, pid in before.items())
            kinds = Counter([kind for run in runs for kind in await processes(app, run.id)])
            assert kinds == {"prewarmed": 2, "new": 2}

    run_async(main)


@pytest.mark.contract("V-6")
@pytest.mark.parametrize(
    "differs",
    [
        {"options": {"model": "other"}},
        {"options": {"effort": "high"}},
        {"options": {"warm_sec": 0}},
        {"options": {"interactive_profile": "sticky_process"}},
        {"mode": "auto"},
        {"env": {"SECRET_WORD": "crimson-secret"}},
        {"workdir": True},
    ],
    ids=lambda each: json.dumps(each),
)
def test_a_run_that_would_start_otherwise_gets_a_new_process(tmp_path: Path, differs: dict[str, Any]) -> None:
    world = World(tmp_path)
    skill = world.skill([DONE])
    if "workdir" in differs:
        (tmp_path / "own").mkdir()
        differs = {"workdir": str(tmp_path / "own")}

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            before = await ready(app)
            done = await over(app, (await submit(app, skill, **differs)).id)
            assert done.state is RunState.SUCCEEDED
            assert await processes(app, done.id) == ["new"]
            assert await ready(app) == before

    run_async(main)


@pytest.mark.contract("V-6")
def test_what_decides_is_the_comparison_when_the_process_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the quick look at submission took any process for fit."""
    world = World(tmp_path)
    skill = world.skill([DONE])

    def any_run(self: TurnContext, run: Run) -> bool:
        return True

    monkeypatch.setattr(TurnContext, "may_take_prewarmed", any_run)

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            for differs in ({"options": {"model": "other"}}, {"env": {"WORD": "crimson-secret"}}, {"mode": "auto"}):
                ((run_id, pid),) = (await ready(app)).items()
                done = await over(app, (await submit(app, skill, **differs)).id)
                assert (done.id, done.state, done.restarts) == (run_id, RunState.SUCCEEDED, 0)
                assert await processes(app, done.id) == ["prewarmed", "new"]
                assert pid not in pids(world, done.id)
            assert app.prewarming.hits == 0

    run_async(main)


def test_a_process_that_dies_before_it_is_taken_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill([DONE])
    monkeypatch.setattr(prewarm, "_PAUSE_SEC", 0.0)

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            ((run_id, pid),) = (await ready(app)).items()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: app.warm.find(run_id) is None and run_id not in folders(world))
            ((another, pid),) = (await ready(app)).items()
            # Dead, and perhaps nobody knows it yet.
            os.kill(pid, signal.SIGKILL)
            done = await over(app, (await submit(app, skill)).id)
            assert done.state is RunState.SUCCEEDED
            assert (await processes(app, done.id))[-1] == "new" or done.id != another
            assert pid not in pids(world, done.id)

    run_async(main)


def test_a_process_that_dies_while_its_run_is_queued_costs_only_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate = tmp_path / "gate"
    skill = world.skill([DONE])
    blocker = world.skill([{"wait_for": str(gate)}, DONE], name="blocker")
    config = settings().replace("slots = 4", "slots = 1")

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            await ready(app)
            blocking = await submit(app, blocker, mode="auto")
            await until(lambda: app.slots.taken == 1)
            ((run_id, pid),) = (await ready(app)).items()
            run = await submit(app, skill)
            assert run.id == run_id
            os.kill(pid, signal.SIGKILL)
            await until(lambda: app.warm.find(run_id) is None)
            gate.touch()
            assert (await over(app, blocking.id)).state is RunState.SUCCEEDED
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await processes(app, run.id) == ["new"]

    run_async(main)


@pytest.mark.contract("V-6", "B-2")
def test_a_queued_run_that_is_canceled_has_outlived_its_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate = tmp_path / "gate"
    skill = world.skill([DONE])
    blocker = world.skill([{"wait_for": str(gate)}, DONE], name="blocker")
    config = settings().replace("slots = 4", "slots = 1")

    async def main() -> None:
        async with world.working(config, serving=True) as app:
            await ready(app)
            blocking = await submit(app, blocker, mode="auto")
            await until(lambda: app.slots.taken == 1)
            run = await submit(app, skill)
            assert not nothing_lives(run.id)
            assert (await app.service.cancel(run.id)).state is RunState.CANCELED
            assert nothing_lives(run.id)
            await app.service.delete(run.id)
            assert run.id not in folders(world)
            gate.touch()
            assert (await over(app, blocking.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("V-6")
def test_a_refused_submission_returns_the_process_or_ends_it_with_its_files(tmp_path: Path) -> None:
    world = World(tmp_path)
    schema = {"type": "object", "properties": {"file": {"type": "string", "x-input-source": "file"}}}
    skill = world.skill([DONE], schemas={"input": schema})
    given = tmp_path / "given.txt"
    given.write_text("of a run that was refused")

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            before = await ready(app)
            with pytest.raises(AskbackError):
                await submit(app, skill, max_open=0)
            assert await ready(app) == before
            assert notes(world) == set(before)
            with pytest.raises(AskbackError):
                await submit(app, skill, max_open=0, files={"file": given})
            (old,) = before
            assert nothing_lives(old)
            assert old not in folders(world)
            assert (await ready(app)).keys() != before.keys()
            done = await over(app, (await submit(app, skill, files={"file": given})).id)
            assert done.state is RunState.SUCCEEDED
            assert await processes(app, done.id) == ["prewarmed"]
            assert (app.workspaces.of(done.id).cwd / "inputs/file/given.txt").read_text() == given.read_text()

    run_async(main)


@pytest.mark.contract("V-6")
def test_a_repeated_submission_gets_its_run_and_returns_the_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([DONE])
    key = IdempotencyKey(key="once", body_digest="same")

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            await ready(app)
            first = await over(app, (await submit(app, skill, key=key)).id)
            before = await ready(app)
            assert (await submit(app, skill, key=key)).id == first.id
            assert await ready(app) == before

    run_async(main)


@pytest.mark.contract("V-6")
def test_a_stop_leaves_nothing_and_a_killed_server_no_more_than_the_next_one_removes(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH], name="tested")
    started = {
        "ASKBACK_WARM_SEC": "600",
        "ASKBACK_WARM__MIN_FREE_MEMORY": "0",
        "ASKBACK_ENGINES__SCRIPTED__PREWARM": "1",
    }
    with Server(world, env=started) as server:
        with server.client() as client:
            run = client.create_run("tested", engine="scripted", mode="interactive")
            client.wait(run.id)
        run_async(lambda: until(lambda: bool(notes(world) - {run.id})))
        (left,) = notes(world) - {run.id}
        server.kill()

    async def main() -> None:
        await until(lambda: nothing_lives(left) and nothing_lives(run.id))
        assert {left, run.id} <= folders(world)
        async with world.working(settings(0), serving=True) as app:
            assert folders(world) == {run.id}
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
        async with world.working(settings(), serving=True) as app:
            (unused,) = await ready(app)
            other = await waiting(app, (await submit(app, skill)).id)
            assert other.id == unused
            await ready(app)
        assert folders(world) == {run.id, other.id}
        assert notes(world) == set()
        assert nothing_lives(other.id)

    run_async(main)


@pytest.mark.contract("V-6")
def test_the_folder_of_a_stored_run_is_never_taken_for_a_leftover(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(settings(0), serving=True) as app:
            run = await waiting(app, (await submit(app, skill, options={"warm_sec": 0})).id)
            await until(lambda: nothing_lives(run.id))
            for run_id in (run.id, "never-stored"):
                (world.data_dir / "prewarmed").mkdir(exist_ok=True)
                (world.data_dir / "prewarmed" / run_id).write_text("program-that-was-killed")
                (world.data_dir / "runs" / run_id / "work").mkdir(parents=True, exist_ok=True)
            # The run's folder is in use while its home is saved for the next turn, and is looked at again later.
            while notes(world):
                await app.recovery.restart_all()
                await asyncio.sleep(0.05)
            assert folders(world) == {run.id}
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_prewarmed_processes_are_the_first_to_go_when_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    monkeypatch.setattr(pool, "_CHECK_SEC", 10_000.0)
    free = [10**12]
    monkeypatch.setattr(pool, "available_memory", lambda: free[0])

    async def main() -> None:
        async with world.working(settings(min_free_memory=1), serving=True) as app:
            await ready(app)
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: run.id in app.warm.run_ids)
            (unused,) = await ready(app)
            dropped = app.warm.drop_oldest(DropReason.MEMORY)
            assert dropped is not None
            assert dropped.run_id == unused
            free[0] = 0
            await dropped.gone.wait()
            assert nothing_lives(unused)
            assert folders(world) == {run.id}
            assert app.warm.run_ids == {run.id}
            # None is started while memory is short.
            assert not app.warm.has_room()

    run_async(main)


def test_they_count_against_the_cap_and_make_room_for_waiting_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(settings(2, max_processes=2), serving=True) as app:
            await ready(app, 2)
            runs = [await waiting(app, (await submit(app, skill)).id) for _ in range(2)]
            await until(lambda: app.warm.run_ids == {run.id for run in runs})
            assert app.warm.prewarmed == []

    run_async(main)


@pytest.mark.contract("V-6")
def test_a_process_with_an_old_sign_in_or_home_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(Scripted, "credentials", (NAME,))
    source = tmp_path / "user"
    (source / NAME).parent.mkdir(parents=True)
    (source / NAME).write_text('{"token": "old"}')
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, DONE])

    async def main() -> None:
        async with world.working(settings(engine=f'home = "{source}"\n'), serving=True) as app:
            for change in (source / NAME, source / "settings.json"):
                ((run_id, pid),) = (await ready(app)).items()
                assert (app.workspaces.of(run_id).home / NAME).is_file()
                change.write_text('{"token": "new"}')
                run = await submit(app, skill)
                workspace = app.workspaces.of(run.id)
                await until((workspace.cwd / "started").exists)
                assert (workspace.home / change.relative_to(source)).read_text() == '{"token": "new"}'
                (workspace.cwd / "go").touch()
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
                assert (await processes(app, run.id))[-1] == "new"
                assert pid not in pids(world, run.id)
                assert not (workspace.home / NAME).exists()
        assert list((world.data_dir / "sign-ins").iterdir()) == []

    run_async(main)


def test_after_a_while_a_process_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.skill([DONE])
    monkeypatch.setattr(prewarm, "MAX_AGE_SEC", 0.5)

    async def main() -> None:
        async with world.working(settings(), serving=True) as app:
            (first,) = await ready(app)
            await until(lambda: app.warm.drops[DropReason.EXPIRED] >= 1 and first not in folders(world))
            (second,) = await ready(app)
            assert second != first

    run_async(main)


def test_only_a_server_keeps_processes_ready(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([DONE])

    async def main() -> None:
        async with world.working(settings()) as app:
            assert (await over(app, (await submit(app, skill)).id)).state is RunState.SUCCEEDED
            assert (app.warm.prewarmed, notes(world)) == ([], set())

    run_async(main)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a server keeps 2 ready"),
        ({"ASKBACK_WARM_SEC": "0"}, "has no effect: warm waits are off"),
        ({"ASKBACK_WARM__MAX_PROCESSES": "0"}, "has no effect: warm waits are off"),
        ({"ASKBACK_LIMITS__CPU_SEC": "60"}, "has no effect: limits.cpu_sec"),
    ],
    ids=["on", "no time", "no room", "CPU limit"],
)
def test_the_doctor_says_whether_processes_are_kept_ready(tmp_path: Path, given: dict[str, str], message: str) -> None:
    env = {"ASKBACK_ENGINES__SCRIPTED__PREWARM": "2", "ASKBACK_WARM_SEC": "600", **given}
    findings = askback(World(tmp_path), "doctor", "--json", env=env, warm=False).json["findings"]
    (found,) = (each for each in findings if each["what"] == "prewarm scripted")
    assert found["message"].startswith(message)
    assert (found["ok"] is True) == (not given)


def test_an_engine_that_cannot_be_kept_is_refused_in_the_settings(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        with pytest.raises(Invalid) as refused:
            async with world.working("[engines.iflow]\nprewarm = 1\n", serving=True):
                pass
        assert refused.value.problems[0].startswith("engines.iflow.prewarm: ")

    run_async(main)
