"""Warm waits: a resumable run whose process is kept while it waits, and every way in which it is dropped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import ErrorCode
from askback.core.events import EventType
from askback.core.runs import ProfileKind, Run, RunState
from askback.process import tree
from askback.worker import warm_pool as pool
from askback.worker.turn import process as turn_process
from askback.worker.warm_pool import DropReason
from support.data_folder import ASK, FINISH, World, events_of, over, reach, run_async, submit, until, waiting
from support.server import Server

SECOND = {"ask": {"interaction_id": "size", "prompt": "Which size?", "default": "small"}}
LAST = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
WARM = "warm_sec = 600\n"
TALKER = """
import json, os, sys, time
def tell(**words): print(json.dumps(words), flush=True)
if "--version" in sys.argv or "--help" in sys.argv:
    print("scripted 1.0.0 --resume --stay")
    sys.exit()
sys.stdin.readline()
question = {"ask_user": {"interaction_id": "colour", "prompt": "Which colour?"}}
tell(type="session.started", session_id="ses-00000000-0000-4000-8000-000000000000")
tell(type="message", text=json.dumps(question))
tell(type="turn.completed")
while not os.path.exists(sys.argv[2]): time.sleep(0.01)
for _ in range(100_000 if sys.argv[1] == "flood" else 1):
    tell(type="message", text="smuggled __SKILL_DONE__")
tell(type="turn.completed")
if sys.argv[1] == "flood":
    sys.stdin.readline()
"""


def warm(settings: str = "", **limits: Any) -> str:
    """Settings under which processes are kept, however little memory the machine has."""
    kept = {"max_processes": 8, "max_memory": 0, "min_free_memory": 0} | limits
    return WARM + settings + "\n[warm]\n" + "\n".join(f"{name} = {value}" for name, value in kept.items())


def pids(world: World, run_id: str) -> list[int]:
    """Who heard the run's prompts, by the engine's own session file."""
    (session,) = world.sessions(run_id)
    return [entry["pid"] for entry in session if entry["type"] == "prompt"]


def once(world: World, run_id: str, *replies: str) -> bool:
    prompts = "\n".join(world.prompts(run_id))
    return all(prompts.count(reply) == 1 for reply in replies) and len(world.prompts(run_id)) == len(replies) + 1


def nothing_lives(run_id: str) -> bool:
    return not tree.Tree(mark=run_id).members()


async def processes(app: App, run_id: str) -> list[str]:
    """What the events say of each turn that took a slot."""
    events = await events_of(app, run_id)
    return [
        event.data["process"] for event in events if event.type is EventType.TURN_STARTED and "process" in event.data
    ]


async def kept(app: App, run_id: str) -> Run:
    """A run that waits, with a process that is kept and whose home is saved."""
    run = await waiting(app, run_id)
    await until(lambda: (parked := app.warm.find(run_id)) is not None and parked.memory_bytes > 0)
    return run


@pytest.mark.databases
@pytest.mark.contract("V-1", "V-2", "W-2", "W-3", "M-1")
def test_replies_go_into_the_process_that_asked_and_its_slot_is_free_meanwhile(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [SECOND], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(warm("slots = 1")) as app:
            run = await kept(app, (await submit(app, skill)).id)
            assert (run.profile.kind, run.worker, run.process, app.slots.taken) == (
                ProfileKind.RESUMABLE,
                None,
                None,
                0,
            )
            assert run.wait_deadline_at is None
            other = await over(
                app, (await submit(app, world.skill([{"finish": {"colour": 1}}], name="other", output=ANY))).id
            )
            assert other.state is RunState.SUCCEEDED
            await app.service.reply(run.id, "crimson")
            await kept(app, run.id)
            await app.service.reply(run.id, "large")
            done = await over(app, run.id)
            assert (done.state, done.attempt_number, done.restarts) == (RunState.SUCCEEDED, 3, 0)
            assert (await app.service.result(run.id)).data == {"colour": ["crimson", "large"]}
            assert nothing_lives(run.id)
            assert len(set(pids(world, run.id))) == 1
            assert once(world, run.id, "crimson", "large")
            assert await processes(app, run.id) == ["new", "warm", "warm"]
            assert (app.warm.hits, app.warm.misses, app.warm.count) == (2, 0, 0)

    run_async(main)


@pytest.mark.contract("V-2", "V-3", "V-5", "B-4")
def test_a_process_that_is_killed_while_it_waits_costs_only_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            parked = app.warm.find(run.id)
            assert parked is not None
            os.kill(parked.pid, signal.SIGKILL)
            await until(lambda: app.warm.count == 0)
            assert await app.store.get(run.id) == run
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts, done.attempt_number) == (RunState.SUCCEEDED, 0, 2)
            assert await processes(app, run.id) == ["new", "new"]
            assert app.warm.drops == {DropReason.LOST: 1}
            assert (app.warm.hits, app.warm.misses) == (0, 1)
            assert once(world, run.id, "crimson")

    run_async(main)


@pytest.mark.contract("V-2", "V-3", "V-5", "B-4")
@pytest.mark.parametrize("ignores_term", [False, True], ids=["tame", "deaf to signals"])
def test_a_process_that_is_suspended_while_it_waits_costs_only_time(tmp_path: Path, ignores_term: bool) -> None:
    world = World(tmp_path)
    skill = world.skill([*([{"misbehave": "ignore_term"}] if ignores_term else []), ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            parked = app.warm.find(run.id)
            assert parked is not None
            os.kill(parked.pid, signal.SIGSTOP)
            await until(lambda: tree.is_stopped(parked.pid))
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts, done.attempt_number) == (RunState.SUCCEEDED, 0, 2)
            assert await processes(app, run.id) == ["new", "warm", "new"]
            assert once(world, run.id, "crimson")
            assert parked.pid != pids(world, run.id)[-1]
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("V-2", "V-3", "V-5", "B-4")
@pytest.mark.parametrize("length", [1, 500_000], ids=["fits into the pipe", "does not fit"])
def test_a_process_that_no_longer_reads_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK, {"misbehave": "linger"}], [LAST], output=ANY)
    monkeypatch.setattr(turn_process, "READ_SEC", 0.2)
    answer = "crimson" + "!" * length

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            parked = app.warm.find(run.id)
            assert parked is not None
            await app.service.reply(run.id, answer)
            done = await over(app, run.id)
            assert (done.state, done.restarts, done.attempt_number) == (RunState.SUCCEEDED, 0, 2)
            assert await processes(app, run.id) == ["new", "warm", "new"]
            assert once(world, run.id, answer)
            assert parked.pid != pids(world, run.id)[-1]
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("V-2", "V-3", "V-5", "B-4")
def test_a_warm_process_that_prints_nothing_until_the_time_limit_costs_only_time(tmp_path: Path) -> None:
    """It has read the prompt. A new process gets the whole time again."""
    world = World(tmp_path)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    silent = [{"touch": str(begun), "before_session": True}, {"wait_for": str(gate), "before_session": True}]
    skill = world.skill([ASK], [*silent, FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill, options={"turn_timeout_sec": 10})).id)
            parked = app.warm.find(run.id)
            assert parked is not None
            await app.service.reply(run.id, "crimson")
            await until(begun.exists)
            os.kill(parked.pid, signal.SIGSTOP)
            gate.touch()
            done = await over(app, run.id)
            assert (done.state, done.restarts, done.attempt_number) == (RunState.SUCCEEDED, 0, 2)
            assert await processes(app, run.id) == ["new", "warm", "new"]
            assert once(world, run.id, "crimson")
            assert nothing_lives(run.id)

    run_async(main)


@pytest.mark.contract("V-5", "B-4")
def test_a_turn_whose_warm_process_is_killed_starts_again_without_traces_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    skill = world.skill([ASK], [{"say": "Well."}, {"touch": str(begun)}, {"wait_for": str(gate)}, FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            parked = app.warm.find(run.id)
            assert parked is not None
            await app.service.reply(run.id, "crimson")
            await until(begun.exists)
            os.kill(parked.pid, signal.SIGKILL)
            gate.touch()
            done = await over(app, run.id)
            assert (done.state, done.attempt_number) == (RunState.SUCCEEDED, 2)
            assert await processes(app, run.id) == ["new", "warm", "new"]
            assert once(world, run.id, "crimson")
            (session,) = world.sessions(run.id)
            assert [each["text"] for each in session if each["type"] == "message"].count("Well.") == 1

    run_async(main)


@pytest.mark.contract("V-3")
def test_after_its_time_a_process_is_ended_and_the_run_still_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await waiting(app, (await submit(app, skill, options={"warm_sec": 0.2})).id)
            await until(lambda: app.warm.drops[DropReason.EXPIRED] == 1 and nothing_lives(run.id))
            assert await app.store.get(run.id) == run
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert once(world, run.id, "crimson")

    run_async(main)


@pytest.mark.contract("V-1")
@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (warm(), {"warm_sec": 0}),
        (warm(max_processes=0), {"warm_sec": 60}),
        ("", {}),
        ("", {"warm_sec": 60}),
        (WARM + "[engines.scripted]\nwarm_sec = 0\n", {}),
        (WARM + "[engines.scripted]\nwarm_sec = 0\n", {"warm_sec": 60}),
        (WARM + "[limits]\ncpu_sec = 100\n", {}),
    ],
    ids=["run", "pool", "default", "default, and the run asks", "engine", "engine, and the run asks", "CPU limit"],
)
def test_where_it_is_off_nothing_lives_while_a_run_waits(
    tmp_path: Path, settings: str, options: dict[str, Any]
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(settings) as app:
            run = await waiting(app, (await submit(app, skill, options=options)).id)
            await until(lambda: app.slots.taken == 0)
            assert nothing_lives(run.id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await processes(app, run.id) == ["new", "new"]
            assert len(set(pids(world, run.id))) == 2
            assert app.warm.hits == 0

    run_async(main)


@pytest.mark.contract("V-1")
@pytest.mark.parametrize(
    "settings",
    ["warm_sec = 0.2", "warm_sec = 600\nengines.scripted.warm_sec = 0.2"],
    ids=["all engines", "engine"],
)
def test_a_run_is_kept_warm_no_longer_than_the_operator_allows(tmp_path: Path, settings: str) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(f"{settings}\n[warm]\nmin_free_memory = 0\n") as app:
            run = await waiting(app, (await submit(app, skill, options={"warm_sec": 600})).id)
            await until(lambda: app.warm.drops[DropReason.EXPIRED] == 1 and nothing_lives(run.id))
            assert await app.store.get(run.id) == run

    run_async(main)


@pytest.mark.contract("V-1")
def test_one_engine_can_be_warm_where_the_others_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working("engines.scripted.warm_sec = 600\nwarm.min_free_memory = 0\n") as app:
            run = await kept(app, (await submit(app, skill, options={"warm_sec": 60})).id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert app.warm.hits == 1

    run_async(main)


@pytest.mark.contract("V-1", "V-3")
def test_beyond_the_cap_the_oldest_process_is_ended(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm("slots = 1", max_processes=2)) as app:
            runs = [await kept(app, (await submit(app, skill)).id) for _ in range(3)]
            await until(lambda: nothing_lives(runs[0].id))
            assert (app.warm.run_ids, app.warm.drops) == ({runs[1].id, runs[2].id}, {DropReason.ROOM: 1})
            for run in runs:
                await app.service.reply(run.id, "red")
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert (app.warm.hits, app.warm.misses) == (2, 1)

    run_async(main)


@pytest.mark.contract("V-3")
def test_processes_that_use_too_much_memory_together_are_ended_oldest_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm(max_memory=0.001)) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: app.warm.drops[DropReason.MEMORY] == 1 and nothing_lives(run.id))
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert once(world, run.id, "crimson")

    run_async(main)


@pytest.mark.contract("V-3")
def test_when_memory_is_short_warm_processes_are_ended_and_no_run_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    free = [10**12]
    monkeypatch.setattr(pool, "available_memory", lambda: free[0])

    async def main() -> None:
        async with world.working(warm(min_free_memory=1)) as app:
            runs = [await kept(app, (await submit(app, skill)).id) for _ in range(3)]
            free[0] = 0
            await until(lambda: app.warm.count == 0 and all(nothing_lives(run.id) for run in runs))
            assert app.warm.drops == {DropReason.MEMORY: 3}
            # Nothing is kept until there is memory again.
            again = await waiting(app, (await submit(app, skill)).id)
            await until(lambda: nothing_lives(again.id))
            for run in (*runs, again):
                await app.service.reply(run.id, "crimson")
                assert (await over(app, run.id)).state is RunState.SUCCEEDED
                assert once(world, run.id, "crimson")

    run_async(main)


@pytest.mark.contract("V-3")
def test_a_queued_turn_gets_the_room_of_a_warm_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])
    other = world.skill([{"finish": {"colour": "blue"}}], name="other")
    monkeypatch.setattr(pool, "_CHECK_SEC", 10_000.0)
    free = [10**12]
    monkeypatch.setattr(pool, "available_memory", lambda: free[0])

    async def main() -> None:
        async with world.working(warm(min_free_memory=1)) as app:
            run = await kept(app, (await submit(app, skill)).id)
            free[0] = 0
            assert (await over(app, (await submit(app, other)).id)).state is RunState.SUCCEEDED
            assert nothing_lives(run.id)
            assert app.warm.drops == {DropReason.ROOM: 1}
            assert (await app.store.get(run.id)).state is RunState.WAITING_USER

    run_async(main)


@pytest.mark.contract("V-3", "V-5", "B-2", "B-3")
@pytest.mark.parametrize("deaf", [False, True], ids=["tame", "deaf"])
def test_a_canceled_run_has_outlived_its_warm_process(tmp_path: Path, deaf: bool) -> None:
    world = World(tmp_path)
    skill = world.skill([*([{"misbehave": "ignore_term"}] if deaf else []), ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            canceled = await app.service.cancel(run.id)
            assert canceled.state is RunState.CANCELED
            assert nothing_lives(run.id)
            await app.service.delete(run.id)
            assert not (world.data_dir / "runs" / run.id).exists()

    run_async(main)


@pytest.mark.contract("V-5", "B-2", "B-3")
def test_a_cancel_from_another_program_ends_the_warm_process_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm(), serving=True) as app, world.client() as other:
            run = await kept(app, (await submit(app, skill)).id)
            assert (await other.service.cancel(run.id)).state is RunState.CANCELED
            assert nothing_lives(run.id)
            await until(lambda: app.warm.count == 0)

    run_async(main)


@pytest.mark.contract("V-3", "W-10")
def test_a_decision_without_an_answer_goes_into_the_warm_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([SECOND], [{"finish": {"colour": "blue"}}])
    undecided = {"session_timeout_sec": 1, "interactive_require_user_reply": False}

    async def main() -> None:
        async with world.working(warm()) as app:
            done = await over(app, (await submit(app, skill, options=undecided)).id)
            assert done.state is RunState.SUCCEEDED
            assert app.warm.hits + app.warm.misses == 1

    run_async(main)


@pytest.mark.contract("V-3", "V-5", "B-1", "B-3")
def test_a_stop_ends_warm_processes_and_the_next_program_resumes_their_runs(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.working(warm(), serving=True) as app:
            run = await kept(app, (await submit(app, skill)).id)
        assert nothing_lives(run.id)
        assert app.warm.drops == {DropReason.STOP: 1}
        async with world.working(warm(), serving=True) as app:
            assert await app.store.get(run.id) == run
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert once(world, run.id, "crimson")

    run_async(main)


@pytest.mark.contract("V-2", "V-5", "B-4")
def test_a_reply_that_another_program_executes_ends_the_warm_process_first(tmp_path: Path) -> None:
    """The second worker gets the run: the first one has no slot for it, and must not keep what it has of it."""
    world = World(tmp_path)
    gate = tmp_path / "gate"
    skill = world.skill([ASK], [{"say": "Well."}, FINISH])
    blocking = world.skill([{"wait_for": str(gate)}, {"finish": {"colour": "blue"}}], name="blocking")

    async def main() -> None:
        async with world.working(warm("slots = 1"), serving=True) as first:
            run = await kept(first, (await submit(first, skill)).id)
            blocked = await submit(first, blocking)
            await reach(first, blocked.id, RunState.RUNNING)
            async with world.working(warm("slots = 1"), serving=True) as second:
                await second.service.reply(run.id, "crimson")
                done = await over(second, run.id)
                assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)
                assert await processes(second, run.id) == ["new", "new"]
                assert once(world, run.id, "crimson")
                await until(lambda: first.warm.count == 0)
                assert first.warm.drops == {DropReason.RUN: 1}
                gate.touch()
                await over(first, blocked.id)

    run_async(main)


@pytest.mark.contract("V-3", "V-5")
@pytest.mark.parametrize("fault", ["flood", "answer"])
def test_what_an_idle_process_prints_is_no_event_of_the_run(tmp_path: Path, fault: str) -> None:
    """It is recorded, and otherwise ignored, also if it looks like the end of a turn. A flood ends the process."""
    world = World(tmp_path)
    program = tmp_path / "talker.py"
    program.write_text(TALKER)
    gate = tmp_path / "gate"
    command = json.dumps([sys.executable, str(program), fault, str(gate)])
    skill = world.skill([ASK], [FINISH])
    engine = f"[limits]\noutput = 0.1\n[engines.scripted]\ncommand = {command}\n"

    async def main() -> None:
        async with world.working(f"{WARM}warm.min_free_memory = 0\n{engine}") as app:
            run = await kept(app, (await submit(app, skill)).id)
            gate.touch()
            await until(lambda: app.warm.drops[DropReason.LOST] == 1 and nothing_lives(run.id))
            told = [str(event.data) for event in await events_of(app, run.id)]
            assert await app.store.get(run.id) == run
            assert not any("smuggled" in each for each in told)
            raw = world.data_dir / "runs" / run.id / "turns" / "001-001.stdout"
            assert "smuggled" in raw.read_text()

    run_async(main)


@pytest.mark.contract("T-8", "V-4")
def test_a_question_in_the_engines_own_protocol_is_not_asked_in_a_resumable_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"ask_native": {"prompt": "Which colour?"}}, FINISH])

    async def main() -> None:
        async with world.working(warm()) as app:
            done = await over(app, (await submit(app, skill)).id)
            assert done.error is not None
            assert (done.state, done.error.code) == (RunState.FAILED, ErrorCode.SCRIPT_INVALID)
            assert nothing_lives(done.id)

    run_async(main)


@pytest.mark.contract("V-2", "C-3")
def test_a_repair_turn_uses_the_same_process_and_can_be_interrupted(tmp_path: Path) -> None:
    world = World(tmp_path)
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    wrong = {"finish": {"nothing": 1}}
    skill = world.skill([ASK], [wrong], [{"touch": str(begun)}, {"wait_for": str(gate)}, {"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(warm()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "crimson")
            await until(begun.exists)
            while (process := (await app.store.get(run.id)).process) is None:
                await asyncio.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            gate.touch()
            done = await over(app, run.id)
            assert (done.state, done.attempt_number) == (RunState.SUCCEEDED, 3)
            (session,) = world.sessions(run.id)
            assert [each["turn"] for each in session if each["type"] == "completed"] == [1, 2, 3]
            assert len([each for each in session if each["type"] == "prompt"]) == 3

    run_async(main)


@pytest.mark.contract("V-5", "B-1", "B-3", "B-4")
def test_nothing_of_a_warm_run_survives_a_killed_program_and_its_run_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([ASK], [FINISH], name="tested")
    started = {"ASKBACK_WARM_SEC": "600", "ASKBACK_WARM__MIN_FREE_MEMORY": "0"}
    with Server(world, env=started) as server:
        with server.client() as client:
            run = client.create_run("tested", engine="scripted", mode="interactive")
            client.wait(run.id)
            assert not nothing_lives(run.id)
        server.kill()

    async def main() -> None:
        await until(lambda: nothing_lives(run.id))
        async with world.working(warm(), serving=True) as app:
            await app.service.reply(run.id, "crimson")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert once(world, run.id, "crimson")

    run_async(main)
