"""Calls of the ask tool that Claude defers: its process ends, and the answer is the result of the call when it resumes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from double import ModelDouble, Request, Step, always, hang, say
from double.script import CallTool
from suite import ASK_TOOL, Server, Stage, finish, heard, put, reply_in

from askback.app import App
from askback.core.runs import Run, RunState
from askback.process import tree
from askback.worker.turn import ask_tool
from support.data_folder import over, until

pytestmark = pytest.mark.parametrize("engine", ["claude"], indirect=True)

QUESTION = {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}
AGAIN = {"interaction_id": "size", "prompt": "Which size?"}


@pytest.fixture(autouse=True)
def with_the_ask_tool(stage: Stage) -> None:
    stage.add_engine_setting("ask_tool = true")


def told(request: Request) -> str:
    return "\n".join((*request.user_texts, *request.tool_results))


async def ask(app: App, stage: Stage, **rest: Any) -> Run:
    run = await stage.ask(app, stage.skill(), **rest)
    # Nothing of it lives: the call is not pending in any process.
    assert not tree.Tree(mark=run.id).members()
    return run


async def assert_succeeded(app: App, run_id: str, questions: int = 1) -> Run:
    run = await over(app, run_id)
    assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
    assert len(await app.service.store.interactions(run.id)) == questions
    return run


@pytest.mark.every_engine
@pytest.mark.contract("F-5", "B-4")
def test_the_answers_are_the_results_of_deferred_calls(stage: Stage, double: ModelDouble) -> None:
    double.play(put(QUESTION), put(AGAIN), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await ask(app, stage)
        # Another program resumes it.
        async with stage.working() as app:
            await app.service.reply(asked.id, "blue")
            await until(lambda: len(double.requests) == 2)
            again = await stage.ask_again(app, asked.id)
            assert (again.handle, again.attempt_number) == (asked.handle, 2)
            await app.service.reply(asked.id, "large")
            await assert_succeeded(app, asked.id, questions=2)

    stage.run(main)
    # One request per question, as with a held call.
    _, second, last = double.requests
    assert reply_in("blue") in second.tool_results[-1]
    assert "Which colour?" in second.tool_results[-1]
    assert reply_in("large", "size") in last.tool_results[-1]
    assert [told(last).count(each) for each in (reply_in("blue"), reply_in("large", "size"))] == [1, 1]


@pytest.mark.contract("F-4")
def test_a_malformed_question_is_not_deferred(stage: Stage, double: ModelDouble) -> None:
    double.play(put({**QUESTION, "prompt": " "}), put(QUESTION), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await ask(app, stage)
            assert asked.attempt_number == 1
            await app.service.reply(asked.id, "blue")
            await assert_succeeded(app, asked.id)

    stage.run(main)
    assert "prompt: it is missing" in double.requests[1].tool_results[-1]
    assert reply_in("blue") in double.requests[2].tool_results[-1]


def put_beside_a_command(request: Request, *, first: bool) -> Step:
    (name,) = [each for each in request.asked.tools if each.endswith(ASK_TOOL)]
    asking_call = CallTool(name=name, arguments=QUESTION)
    command = CallTool(name="Bash", arguments={"command": "true", "description": "nothing"})
    calls = (asking_call, command) if first else (command, asking_call)
    return replace(calls[0], beside=calls[1:])


def finish_once_answered(request: Request) -> Step:
    """Whether Claude defers a call beside another or makes it, the model gets to its end with the answer alone."""
    return say(finish("blue")) if reply_in("blue") in told(request) else say("I have asked.")


@pytest.mark.long
@pytest.mark.contract("F-5", "B-4")
@pytest.mark.parametrize("first", [True, False])
def test_a_call_beside_another_is_answered_once(stage: Stage, double: ModelDouble, first: bool) -> None:
    double.play(partial(put_beside_a_command, first=first), always(finish_once_answered))

    async def main() -> None:
        async with stage.working() as app:
            asked = await ask(app, stage)
            await app.service.reply(asked.id, "blue")
            await assert_succeeded(app, asked.id)

    stage.run(main)
    assert told(double.requests[-1]).count(reply_in("blue")) == 1


@pytest.mark.long
@pytest.mark.contract("F-5", "B-1", "B-4")
def test_a_server_that_is_killed_before_and_after_the_answer_tells_it_once(stage: Stage, double: ModelDouble) -> None:
    pause = hang()
    double.play(put(QUESTION), pause, say(finish("blue")))
    servers = [Server(stage)]

    async def main() -> None:
        async with stage.client() as app:
            asked = await stage.ask_again(app, (await stage.submit(app, stage.skill())).id)
            servers[0].kill()
            servers.append(await asyncio.to_thread(Server, stage))
            await app.service.reply(asked.id, "blue")
            await until(pause.reached.is_set)
        servers[1].kill()
        pause.release()
        async with stage.working(serving=True) as app:
            await assert_succeeded(app, asked.id)

    try:
        stage.run(main)
    finally:
        pause.release()
        for server in servers:
            server.kill()
    _, second, last = double.requests
    assert reply_in("blue") in second.tool_results[-1]
    assert told(last).count(reply_in("blue")) == 1


@pytest.mark.long
@pytest.mark.contract("B-4")
def test_a_long_answer_to_a_deferred_call_is_a_message(stage: Stage, double: ModelDouble) -> None:
    text = "word " * ask_tool.MAX_RESULT_BYTES + "end"
    double.play(put(QUESTION), put(AGAIN), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await ask(app, stage)
            await app.service.reply(asked.id, text)
            await until(lambda: len(double.requests) == 2)
            await stage.ask_again(app, asked.id)
            await app.service.reply(asked.id, "large")
            await assert_succeeded(app, asked.id, questions=2)

    stage.run(main)
    _, second, last = double.requests
    assert reply_in(text) in heard(second)
    assert told(last).count(reply_in(text)) == 1
    assert reply_in("large", "size") in last.tool_results[-1]


@pytest.mark.long
@pytest.mark.contract("B-4")
def test_a_tool_that_is_switched_off_meanwhile_does_not_lose_the_answer(stage: Stage, double: ModelDouble) -> None:
    double.play(put(QUESTION), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await ask(app, stage)
        stage.change_engine_setting("ask_tool = true", "ask_tool = false")
        async with stage.working() as app:
            await app.service.reply(asked.id, "blue")
            await assert_succeeded(app, asked.id)

    stage.run(main)
    assert told(double.requests[-1]).count(reply_in("blue")) == 1
