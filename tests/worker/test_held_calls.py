"""Calls of the ask tool that wait for the answer, in a process that stays: a shortcut, which may be lost at any moment."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import ErrorCode
from askback.core.events import EventType
from askback.core.runs import ProfileKind, Run, RunState
from askback.process import tree
from askback.process.ask_tool_program import RECORDED
from askback.worker.turn import ask_tool
from askback.worker.warm_pool import DropReason
from support.data_folder import World, events_of, over, run_async, submit, until, waiting
from support.server import Server

QUESTION: dict[str, Any] = {"interaction_id": "colour", "prompt": "Which colour?", "default": "red"}
PUT = {"put_question": QUESTION}
AGAIN = {"put_question": {"interaction_id": "size", "prompt": "Which size?"}}
FINISH = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
STICKY = {"interactive_profile": "sticky_process"}


def settings(first: str = "warm_sec = 600", ask_tool: str = "ask_tool = true") -> str:
    """Processes are kept, however little memory the machine has."""
    room = "max_processes = 8\nmax_memory = 0\nmin_free_memory = 0"
    return f"{first}\n[warm]\n{room}\n[engines.scripted]\n{ask_tool}\n"


def told(world: World, run: Run) -> tuple[list[str], list[str]]:
    """The prompts and the results of the tool in the engine's one session, in order."""
    (session,) = world.sessions(run.id)
    results = [entry["output"] for entry in session if entry["type"] == "tool"]
    return world.prompts(run.id), results


def assert_told_once(world: World, run: Run, *replies: str) -> None:
    prompts, results = told(world, run)
    everything = "\n".join((*prompts, *results))
    assert [everything.count(f"\n{reply}\n</user_reply>") for reply in replies] == [1] * len(replies)


def tools_of(run_id: str) -> list[int]:
    """The processes of the run's ask tool."""
    found = []
    for pid in tree.Tree(mark=run_id).members():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/ask_tool_program.py") for word in words):
                found.append(pid)
    return found


def kill(*pids: int) -> None:
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def ask(app: App, skill: str, **rest: Any) -> Run:
    return await waiting(app, (await submit(app, skill, **rest)).id)


async def kept(app: App, run_id: str) -> Run:
    """A run that waits, with a process that is kept and whose home is saved."""
    run = await waiting(app, run_id)
    await until(lambda: (parked := app.warm.find(run_id)) is not None and parked.memory_bytes > 0)
    return run


async def processes(app: App, run: Run) -> list[str]:
    events = await events_of(app, run.id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


async def assert_succeeded(app: App, run_id: str, *replies: str) -> Run:
    """It has asked once for each reply, and got each."""
    run = await over(app, run_id)
    assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
    assert (await app.service.result(run.id)).data == {"colour": list(replies)}
    assert len(await app.service.store.interactions(run.id)) == len(replies)
    assert not tree.Tree(mark=run.id).members()
    return run


@pytest.mark.contract("F-4", "V-2", "W-2")
@pytest.mark.parametrize("prewarm", [0, 1])
def test_the_answer_of_a_warm_run_is_the_result_of_the_call(world: World, prewarm: int) -> None:
    skill = world.skill([{"say": "Hm."}, PUT, {"say": "unreached"}], [AGAIN], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings(ask_tool=f"ask_tool = true\nprewarm = {prewarm}"), serving=True) as app:
            run = await kept(app, (await submit(app, skill)).id)
            # The row is that of any waiting run, and nothing says that a call is pending.
            assert (run.profile.kind, run.process, run.worker) == (ProfileKind.RESUMABLE, None, None)
            assert (run.attempt_number, run.wait_deadline_at, app.slots.taken) == (1, None, 0)
            assert (len(tools_of(run.id)), told(world, run)[1]) == (1, [])
            await app.service.reply(run.id, "blue")
            await until(lambda: len(told(world, run)[1]) == 1)
            await kept(app, run.id)
            await app.service.reply(run.id, "large")
            run = await assert_succeeded(app, run.id, "blue", "large")
            assert (await processes(app, run))[1:] == ["warm", "warm"]
        prompts, results = told(world, run)
        assert (len(prompts), run.attempt_number) == (1, 3)
        # The question stands beside its answer.
        assert ["Which colour?" in results[0], "Which size?" in results[1]] == [True, True]
        assert_told_once(world, run, "blue", "large")

    run_async(main)


@pytest.mark.contract("F-4", "W-4", "W-6")
def test_the_answer_of_a_sticky_run_is_the_result_of_the_call(world: World) -> None:
    skill = world.skill([PUT], [AGAIN], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await ask(app, skill, options=STICKY)
            assert run.process is not None
            await app.service.reply(run.id, "blue")
            await until(lambda: len(told(world, run)[1]) == 1)
            assert (await waiting(app, run.id)).process == run.process
            await app.service.reply(run.id, "large")
            await assert_succeeded(app, run.id, "blue", "large")
        assert len(told(world, run)[0]) == 1

    run_async(main)


@pytest.mark.contract("W-8")
def test_a_decision_without_the_user_is_the_result_of_the_call(world: World) -> None:
    skill = world.skill([PUT], [{"finish": {"colour": "any"}}], output=ANY)
    alone = {**STICKY, "interactive_require_user_reply": False, "session_timeout_sec": 1}

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await over(app, (await submit(app, skill, options=alone)).id)
            assert run.state is RunState.SUCCEEDED
        prompts, results = told(world, run)
        assert (len(prompts), len(results)) == (1, 1)

    run_async(main)


@pytest.mark.parametrize("options", [{}, STICKY], ids=["warm", "sticky"])
def test_a_run_that_is_canceled_leaves_nothing_of_its_call(world: World, options: dict[str, Any]) -> None:
    skill = world.skill([PUT], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await ask(app, skill, options=options)
            await app.service.cancel(run.id)
            assert (await over(app, run.id)).state is RunState.CANCELED
            await until(lambda: not tree.Tree(mark=run.id).members())

    run_async(main)


@pytest.mark.contract("F-4", "C-1")
def test_an_output_before_the_call_completes_the_run(world: World) -> None:
    skill = world.skill([{"finish": {"colour": ["red"]}}, PUT], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await over(app, (await submit(app, skill)).id)
            assert (run.state, await app.service.store.interactions(run.id)) == (RunState.SUCCEEDED, ())

    run_async(main)


@pytest.mark.contract("F-4")
@pytest.mark.parametrize("options", [{}, STICKY], ids=["warm", "sticky"])
def test_a_call_beside_another_tool_is_not_held(world: World, options: dict[str, Any]) -> None:
    skill = world.skill([{"tool": {"name": "shell", "ends": False}}, PUT], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await ask(app, skill, options=options)
            assert told(world, run)[1] == [RECORDED]
            await app.service.reply(run.id, "blue")
            await assert_succeeded(app, run.id, "blue")
        assert_told_once(world, run, "blue")

    run_async(main)


@pytest.mark.contract("B-4", "E-5")
@pytest.mark.parametrize("options", [{}, STICKY], ids=["warm", "sticky"])
def test_a_long_answer_is_the_next_message_in_the_same_process(world: World, options: dict[str, Any]) -> None:
    skill = world.skill([PUT], [FINISH], output=ANY)
    text = "word\n" * ask_tool.MAX_RESULT_BYTES + "end"

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await (ask(app, skill, options=options) if options else kept(app, (await submit(app, skill)).id))
            await app.service.reply(run.id, text)
            await assert_succeeded(app, run.id, text)
        prompts, results = told(world, run)
        assert (results, len(prompts)) == ([RECORDED], 2)
        assert_told_once(world, run, text)

    run_async(main)


# Lost calls.


@pytest.mark.contract("F-5", "V-3", "B-4")
@pytest.mark.parametrize("victim", ["engine", "tool", "all", "expiry", "room", "stop"])
def test_a_lost_call_resumes_cold_with_the_answer_as_message(world: World, victim: str) -> None:
    skill = world.skill([PUT], [FINISH], output=ANY)
    expires = victim == "expiry"

    async def main() -> None:
        async with world.working(settings("warm_sec = 1" if expires else "warm_sec = 600"), serving=True) as app:
            run = await ask(app, skill) if expires else await kept(app, (await submit(app, skill)).id)
            members = tree.Tree(mark=run.id).members()
            match victim:
                case "engine":
                    kill(*(members - set(tools_of(run.id))))
                case "tool":
                    kill(*tools_of(run.id))
                case "all":
                    kill(*members)
                case "room":
                    assert app.warm.drop_oldest(DropReason.ROOM) is not None
            if victim != "stop":
                # A process that has ended is in the pool until its worker has noticed.
                await until(lambda: app.warm.find(run.id) is None and not tree.Tree(mark=run.id).members())
                waits = await app.service.store.get(run.id)
                assert (waits.state, waits.pending_interaction) == (RunState.WAITING_USER, run.pending_interaction)
                await app.service.reply(run.id, "blue")
                await assert_succeeded(app, run.id, "blue")
        async with world.working(settings(), serving=True) as app:
            if victim == "stop":
                await app.service.reply(run.id, "blue")
            done = await assert_succeeded(app, run.id, "blue")
            assert (await processes(app, done), done.restarts) == (["new", "new"], 0)
        assert len(told(world, run)[0]) == 2
        assert_told_once(world, run, "blue")

    run_async(main)


@pytest.mark.contract("F-5", "B-1", "B-3", "B-4")
@pytest.mark.parametrize("options", [{}, STICKY], ids=["warm", "sticky"])
def test_a_program_that_is_killed_while_it_holds_a_call(world: World, options: dict[str, Any]) -> None:
    world.skill([PUT], [FINISH], name="tested", output=ANY)
    env = {"WARM_SEC": "600", "WARM__MIN_FREE_MEMORY": "0", "ENGINES__SCRIPTED__ASK_TOOL": "true"}
    with Server(world, env={f"ASKBACK_{name}": value for name, value in env.items()}) as server:
        with server.client() as client:
            run = client.create_run("tested", engine="scripted", mode="interactive", options=options)
            client.wait(run.id)
            assert tools_of(run.id)
        server.kill()

    async def main() -> None:
        await until(lambda: not tree.Tree(mark=run.id).members())
        async with world.working(settings(), serving=True) as app:
            if options:
                lost = await over(app, run.id)
                assert lost.error is not None
                assert lost.error.code is ErrorCode.INTERACTION_PROCESS_LOST
            else:
                await app.service.reply(run.id, "blue")
                done = await assert_succeeded(app, run.id, "blue")
                assert_told_once(world, done, "blue")

    run_async(main)


@pytest.mark.contract("F-5", "B-4")
def test_a_sticky_run_whose_tool_is_killed_gets_its_answer_as_message(world: World) -> None:
    """The engine ends its turn without the answer, and is then told."""
    go = world.folder / "go"
    skill = world.skill([PUT, {"wait_for": str(go)}, {"say": "I go on."}], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await ask(app, skill, options=STICKY)
            kill(*tools_of(run.id))
            await until(lambda: told(world, run)[1] == ["the tool has ended"])
            await app.service.reply(run.id, "blue")
            go.touch()
            await assert_succeeded(app, run.id, "blue")
        assert len(told(world, run)[0]) == 2
        assert_told_once(world, run, "blue")

    run_async(main)


@pytest.mark.contract("B-4")
def test_an_engine_that_is_killed_after_the_answer_gets_it_again_in_a_new_process(world: World) -> None:
    begun, go = world.folder / "begun", world.folder / "go"
    skill = world.skill([PUT], [{"touch": str(begun)}, {"wait_for": str(go)}, FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            await app.service.reply(run.id, "blue")
            await until(begun.exists)
            kill(*tree.Tree(mark=run.id).members())
            go.touch()
            done = await assert_succeeded(app, run.id, "blue")
            assert await processes(app, done) == ["new", "warm", "new"]
        assert_told_once(world, run, "blue")

    run_async(main)


@pytest.mark.contract("B-4", "V-3")
def test_a_suspended_tool_does_not_lose_the_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("askback.process.ask_socket.DELIVERY_SEC", 0.5)
    skill = world.skill([PUT], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working(settings()) as app:
            run = await kept(app, (await submit(app, skill)).id)
            (tool,) = tools_of(run.id)
            os.kill(tool, signal.SIGSTOP)
            await app.service.reply(run.id, "blue")
            done = await assert_succeeded(app, run.id, "blue")
            assert await processes(app, done) == ["new", "warm", "new"]
        assert_told_once(world, run, "blue")

    run_async(main)
