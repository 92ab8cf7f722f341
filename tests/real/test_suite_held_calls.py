"""Calls of the ask tool that wait for the answer, with every real engine that stays: answered, and killed meanwhile."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from double import ModelDouble, Request, Step, always, hang, say
from suite import WARM, Server, Stage, finish, heard, put, reply_in

from askback.app import App
from askback.core.events import EventType
from askback.core.runs import Run, RunState
from askback.process import tree
from support.data_folder import events_of, over, until, waiting

pytestmark = pytest.mark.parametrize("engine", ["codex", "claude", "gemini", "qwen", "opencode"], indirect=True)

QUESTION = {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}
AGAIN = {"interaction_id": "size", "prompt": "Which size?"}
STICKY = {"interactive_profile": "sticky_process"}


@pytest.fixture(autouse=True)
def with_the_ask_tool(stage: Stage) -> None:
    stage.add_engine_setting("ask_tool = true")


def finish_once_answered() -> Step:
    """A model that knows nothing else to do than to wait: no engine gets further without the answer."""

    def choose(request: Request) -> Step:
        return say(finish("blue")) if told(request).count(reply_in("blue")) else hang()

    return always(choose)


def told(request: Request) -> str:
    """All that the model hears of the user, in messages and in results of tools."""
    return "\n".join((*request.user_texts, *request.tool_results))


def tools_of(run_id: str) -> list[int]:
    """The processes of the run's ask tool."""
    found = []
    for pid in tree.Tree(mark=run_id).members():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"/ask_tool_program.py") for word in words):
                found.append(pid)
    return found


def kill(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def kept(app: App, run_id: str) -> Run:
    run = await waiting(app, run_id)
    await until(lambda: (parked := app.warm.find(run_id)) is not None and parked.memory_bytes > 0)
    return run


async def assert_succeeded(app: App, run_id: str, questions: int = 1) -> Run:
    run = await over(app, run_id)
    assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
    assert len(await app.service.store.interactions(run.id)) == questions
    assert not tree.Tree(mark=run.id).members()
    return run


async def processes(app: App, run_id: str) -> list[str]:
    events = await events_of(app, run_id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


@pytest.mark.contract("F-5", "V-2")
def test_two_answers_of_a_warm_run_are_results_of_their_calls(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(put(QUESTION), put(AGAIN), say(finish("blue")))

    async def main() -> None:
        async with stage.working(WARM) as app:
            run = await kept(app, (await stage.submit(app, skill)).id)
            assert (run.attempt_number, run.process, app.slots.taken) == (1, None, 0)
            await app.service.reply(run.id, "blue")
            await until(lambda: len(double.requests) == 2)
            await kept(app, run.id)
            await app.service.reply(run.id, "large")
            await assert_succeeded(app, run.id, questions=2)
            assert await processes(app, run.id) == ["new", "warm", "warm"]

    stage.run(main)
    # One request per question: no model has to end its turn first.
    _, second, last = double.requests
    assert reply_in("blue") in second.tool_results[-1]
    assert "Which colour?" in second.tool_results[-1]
    assert reply_in("large", "size") in last.tool_results[-1]
    assert [told(last).count(reply) for reply in (reply_in("blue"), reply_in("large", "size"))] == [1, 1]


@pytest.mark.contract("F-5", "W-4", "W-6")
def test_the_answer_of_a_sticky_run_is_the_result_of_its_call(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(put(QUESTION), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.ask(app, skill, options=STICKY)
            await app.service.reply(run.id, "blue")
            assert (await assert_succeeded(app, run.id)).attempt_number == 2

    stage.run(main)
    _, last = double.requests
    assert reply_in("blue") in last.tool_results[-1]


@pytest.mark.long
@pytest.mark.contract("F-5", "V-4", "B-4")
@pytest.mark.parametrize("victim", ["all", "tool", "at once"])
def test_a_call_that_is_killed_while_it_waits_resumes_cold(stage: Stage, double: ModelDouble, victim: str) -> None:
    """At once: in the moment in which the question can be seen. Otherwise when the home has been saved."""
    skill = stage.skill()
    double.play(put(QUESTION), finish_once_answered())

    async def main() -> None:
        async with stage.working(WARM) as app:
            run = await (waiting if victim == "at once" else kept)(app, (await stage.submit(app, skill)).id)
            kill(tools_of(run.id) if victim == "tool" else list(tree.Tree(mark=run.id).members()))
            await until(lambda: app.warm.find(run.id) is None and not tree.Tree(mark=run.id).members())
            await app.service.reply(run.id, "blue")
            done = await assert_succeeded(app, run.id)
            assert (await processes(app, run.id), done.restarts) == (["new", "new"], 0)

    stage.run(main)
    last = double.requests[-1]
    assert reply_in("blue") in heard(last)
    assert "Which colour?" in heard(last)
    assert told(last).count(reply_in("blue")) == 1
    assert "\n".join(last.user_texts).count('the skill "tested"') == 1


@pytest.mark.long
@pytest.mark.contract("F-5", "B-1", "B-3", "B-4")
def test_a_server_that_is_killed_while_it_holds_a_call_resumes_cold(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(put(QUESTION), finish_once_answered())
    server = Server(stage, WARM)

    async def main() -> None:
        async with stage.client() as app:
            run = await stage.ask_again(app, (await stage.submit(app, skill)).id)
            assert tools_of(run.id)
        server.kill()
        await until(lambda: not tree.Tree(mark=run.id).members())
        async with stage.working(WARM, serving=True) as app:
            await app.service.reply(run.id, "blue")
            await assert_succeeded(app, run.id)

    try:
        stage.run(main)
    finally:
        server.kill()
    last = double.requests[-1]
    assert reply_in("blue") in heard(last)
    assert told(last).count(reply_in("blue")) == 1


@pytest.mark.long
@pytest.mark.contract("F-5", "B-4")
def test_a_sticky_run_whose_tool_is_killed_is_told_by_a_message(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(put(QUESTION), say("I cannot ask."), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.ask(app, skill, options=STICKY)
            kill(tools_of(run.id))
            await until(lambda: len(double.requests) == 2)
            await app.service.reply(run.id, "blue")
            await assert_succeeded(app, run.id)

    stage.run(main)
    last = double.requests[-1]
    assert reply_in("blue") in heard(last)
    assert told(last).count(reply_in("blue")) == 1
