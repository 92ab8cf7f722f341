"""After a crash or a stop: nothing lost, nothing doubled, and nobody's turn taken from a living program."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from askback.app import now, opened
from askback.cluster import instances as locked
from askback.cluster import recovery
from askback.core.errors import Conflict, ErrorCode, RefusalCode, Unavailable
from askback.core.events import EventType
from askback.core.interactions import Question
from askback.core.outcomes import AskUser
from askback.core.runs import Run, RunState
from askback.core.signals import SlotAcquired, TurnEnded
from askback.process.locks import InstanceLocks
from askback.process.tree import MARK, Tree
from askback.store.base import move
from askback.store.pages import RunFilter
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting

SERVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.data_folder import World
async def main():
    async with World(Path(sys.argv[2])).working(serving=True):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


class Server:
    """A separate server on the data folder: restarts the runs of dead programs, and executes runs."""

    def __init__(self, world: World) -> None:
        tests = str(Path(__file__).resolve().parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, tests, str(world.folder)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


Start = Callable[[World], Awaitable[Server]]


@pytest.fixture
def start_server() -> Iterator[Start]:
    """Starts servers; none of them outlives its test."""
    servers: list[Server] = []

    async def start(world: World) -> Server:
        servers.append(await asyncio.to_thread(Server, world))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.mark.databases
@pytest.mark.contract("B-1")
def test_waiting_stays_waiting_and_queued_stays_queued_over_a_kill(tmp_path: Path, start_server: Start) -> None:
    world = World(tmp_path)
    asks = world.skill([ASK], [FINISH], name="asks")
    blocks = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "x"}}], name="blocks")

    async def main() -> None:
        server = await start_server(world)
        async with world.client() as app:
            asked = await waiting(app, (await submit(app, asks)).id)
            slots = app.settings.slots
            blocking = [await submit(app, blocks) for _ in range(slots)]
            for run in blocking:
                work = app.workspaces.of(run.id).cwd
                await until(lambda work=work: (work / "started").exists())
            queued = await submit(app, blocks)
            await asyncio.to_thread(server.kill)
            assert (await app.service.store.get(asked.id)).state is RunState.WAITING_USER
            assert (await app.service.store.get(queued.id)).state is RunState.QUEUED
            for run in (*blocking, queued):
                app.workspaces.of(run.id).cwd.mkdir(parents=True, exist_ok=True)
                (app.workspaces.of(run.id).cwd / "go").touch()
            again = await start_server(world)
            for run in (*blocking, queued):
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
            await app.service.reply(asked.id, "red")
            assert (await over(app, asked.id)).state is RunState.SUCCEEDED
            await asyncio.to_thread(again.kill)

    run_async(main)


@pytest.mark.databases
@pytest.mark.contract("B-1", "H-12")
def test_a_reply_turn_that_was_cut_off_has_the_reply_in_the_session_once(tmp_path: Path, start_server: Start) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"touch": "{{session_id}}.second"}, {"wait_for": "go"}, FINISH])

    async def main() -> None:
        server = await start_server(world)
        async with world.client() as app:
            run = await waiting(app, (await submit(app, skill)).id)
            work = app.workspaces.of(run.id).cwd
            await app.service.reply(run.id, "the answer is red")
            await until(lambda: bool(list(work.glob("*.second"))))
            assert "the answer is red" in world.prompts(run.id)[-1]
            await asyncio.to_thread(server.kill)
            (work / "go").touch()
            again = await start_server(world)
            ended = await over(app, run.id)
            await asyncio.to_thread(again.kill)
            assert ended.state is RunState.SUCCEEDED
            assert ended.handle == run.handle
            delivered = [prompt for prompt in world.prompts(run.id) if "the answer is red" in prompt]
            assert len(delivered) == 1
            interrupted = [
                e
                for e in await events_of(app, run.id)
                if e.type is EventType.TURN_ENDED and e.data["outcome"] == "interrupted"
            ]
            assert len(interrupted) == 1

    run_async(main)


@pytest.mark.contract("B-1")
def test_a_turn_is_taken_up_three_times_and_then_given_up(tmp_path: Path, start_server: Start) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"misbehave": "hang"}])

    async def main() -> None:
        async with world.client() as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            for _ in range(4):
                server = await start_server(world)
                await until(lambda: (work / "started").exists())
                await asyncio.to_thread(server.kill)
                (work / "started").unlink()
            assert (await app.service.store.get(run.id)).state is RunState.RUNNING
            last = await start_server(world)
            ended = await over(app, run.id)
            await asyncio.to_thread(last.kill)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.ORCHESTRATOR_RESTART_INTERRUPTED
            assert Tree(mark=run.id).members() == set()
            starts = [e for e in await events_of(app, run.id) if e.type is EventType.TURN_STARTED]
            assert len(starts) == 4

    run_async(main)


def test_what_outlived_a_killed_program_is_ended_before_its_turn_starts_again(
    tmp_path: Path, start_server: Start
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.client() as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            server = await start_server(world)
            await until(lambda: (work / "started").exists())
            await asyncio.to_thread(server.kill)
            # The guardian leaves nothing; where it was killed as well, something like this may live.
            stray = await asyncio.create_subprocess_exec("sleep", "600", env={MARK: run.id}, start_new_session=True)
            await until(lambda: stray.pid in Tree(mark=run.id).members())
            again = await start_server(world)
            await reach(app, run.id, RunState.RUNNING)
            assert await stray.wait() == -signal.SIGKILL
            (work / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            await asyncio.to_thread(again.kill)

    run_async(main)


def test_a_planned_stop_puts_turns_back_and_does_not_count(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        for _ in range(5):
            async with world.working(serving=True) as app:
                runs = (await app.service.store.list_runs(RunFilter())).items
                run = runs[0] if runs else await submit(app, skill)
                work = app.workspaces.of(run.id).cwd
                await until(lambda work=work: (work / "started").exists())
                (work / "started").unlink()
            assert Tree(mark=run.id).members() == set()
        async with world.working(serving=True) as app:
            stopped = await app.service.store.get(run.id)
            assert stopped.restarts == 0
            (work / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_two_programs_never_take_each_others_turns(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working() as one, world.working() as two, world.working(serving=True) as server:
            runs = {app: [await submit(app, skill) for _ in range(4)] for app in (one, two, server)}
            for app, own in runs.items():
                for run in own:
                    assert (await over(app, run.id)).state is RunState.SUCCEEDED
            workers = {
                app: {
                    e.data.get("worker")
                    for run in own
                    for e in await events_of(app, run.id)
                    if e.type is EventType.TURN_STARTED
                }
                for app, own in runs.items()
            }
            assert all(len(names) == 1 for names in workers.values())
            assert len(set.union(*workers.values())) == 3

    run_async(main)


def test_a_run_of_a_living_program_cannot_be_taken_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as mine:
            run = await waiting(mine, (await submit(mine, skill)).id)
            async with world.working() as other:
                with pytest.raises(Conflict) as refused:
                    await other.service.take_over(run.id)
                assert refused.value.code is RefusalCode.RUN_HELD
                # Its question may be answered from anywhere; its owner executes it.
                await other.service.reply(run.id, "red")
                assert (await over(mine, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_run_whose_program_is_gone_goes_on_where_it_is_answered(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as first:
            run = await waiting(first, (await submit(first, skill)).id)
        async with world.working() as second:
            await second.service.reply(run.id, "red")
            assert (await over(second, run.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("B-1", "B-2")
@pytest.mark.parametrize(
    ("left", "becomes"),
    [
        ("running", RunState.SUCCEEDED),
        ("running, to be canceled", RunState.CANCELED),
        ("waiting with its process", RunState.FAILED),
    ],
)
def test_what_a_program_leaves_is_taken_up_by_a_server_that_runs_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str, becomes: RunState
) -> None:
    monkeypatch.setattr(recovery, "_CHECK_SEC", 0.05)
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])
    options = {"interactive_profile": "sticky_process" if "process" in left else "resumable"}

    async def main() -> None:
        async with world.working(serving=True) as server, asyncio.timeout(20):
            async with opened(world.settings()) as gone:
                run = await submit(gone, skill, options=options)
                run = await move(gone.store, run.id, SlotAcquired(worker=run.owner, at=now()), seen=run)
                if "waiting" in left:
                    asked = AskUser(question=Question(prompt="Which?"))
                    await move(gone.store, run.id, TurnEnded(epoch=run.epoch, outcome=asked, at=now()))
                if "canceled" in left:
                    await server.service.cancel(run.id)
            assert (await over(server, run.id)).state is becomes

    run_async(main)


@pytest.mark.contract("W-12")
def test_a_deadline_is_kept_by_a_server_when_its_program_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "_CHECK_SEC", 0.05)
    world = World(tmp_path)
    skill = world.skill([ASK], [{"finish": {"colour": "red"}}])
    options = {"interactive_require_user_reply": False, "session_timeout_sec": 2}

    async def main() -> None:
        async with world.working(serving=True) as server, asyncio.timeout(20):
            async with world.working() as gone:
                run = await waiting(gone, (await submit(gone, skill, options=options)).id)
            assert (await over(server, run.id)).state is RunState.SUCCEEDED

    run_async(main)


@pytest.mark.contract("B-1")
def test_a_run_that_was_taken_up_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """Between reading the runs of a dead program and restarting them, another program may have restarted their turns."""
    world = World(tmp_path)
    skill = world.skill([{"touch": "started"}, {"wait_for": "go"}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(serving=True) as app:
            run = await submit(app, skill)
            work = app.workspaces.of(run.id).cwd
            await until(lambda: (work / "started").exists())
            run = await reach(app, run.id, RunState.RUNNING)
            before = run.evolve(worker="program-dead", epoch=run.epoch - 1)
            assert (await app.recovery.restart(before)).worker == run.worker
            (work / "go").touch()
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            started = [event for event in await events_of(app, run.id) if event.type is EventType.TURN_STARTED]
            assert len(started) == 1

    run_async(main)


@pytest.mark.contract("B-1")
def test_a_run_that_a_living_program_took_over_meanwhile_is_not_taken_from_it(tmp_path: Path) -> None:
    """Between reading what a dead program kept and adopting it, somebody may have said `--continue`."""
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working() as gone:
            run = await waiting(gone, (await submit(gone, skill)).id)
        async with opened(world.settings(), serving=True) as server, opened(world.settings()) as living:
            owned_by = server.store.owned_by

            async def late(owner: str) -> Sequence[Run]:
                kept = await owned_by(owner)
                await living.service.take_over(run.id)
                return kept

            server.store.owned_by = late  # type: ignore[method-assign]
            await server.recovery.restart_all()
            assert not await living.service.owned_elsewhere(await living.service.store.get(run.id))

    run_async(main)


def test_a_program_that_hangs_while_it_restarts_runs_does_not_block_others_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locked, "_LOCK_WAIT_SEC", 0.01)
    world = World(tmp_path)
    skill = world.skill([FINISH])

    async def main() -> None:
        async with opened(world.settings()) as gone:
            run = await submit(gone, skill)
            run = await move(gone.store, run.id, SlotAcquired(worker=run.owner, at=now()), seen=run)
        async with opened(world.settings(), serving=True) as app, asyncio.timeout(20):
            stopped = InstanceLocks(world.data_dir / "programs").take_exclusive()
            assert stopped is not None
            with pytest.raises(Unavailable, match="too long; end it"):
                await app.recovery.restart_all()
            stopped.release()
            await app.recovery.restart_all()
            assert (await app.service.store.get(run.id)).state is RunState.QUEUED

    run_async(main)
