"""The ask tool with every real engine that takes MCP servers: corrected at the call, answered, and killed in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from double import ModelDouble, Request, Step, call_tool, hang, say
from suite import Server, Stage, finish, heard, reply_in

from askback.core.runs import RunState
from support.data_folder import over, until

pytestmark = pytest.mark.parametrize("engine", ["codex", "claude", "gemini", "qwen", "opencode"], indirect=True)

TOOL = "put_question"
QUESTION = {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}
MALFORMED = {"interaction_id": "colour", "prompt": " "}
RECORDED = "The question is recorded."


def put(arguments: Mapping[str, Any]) -> Step:
    """Call the ask tool by the name that the engine gives it."""

    def choose(request: Request) -> Step:
        offered = [name for name in request.asked.tools if name.endswith(TOOL)]
        assert offered, f"the tool is not offered; offered: {', '.join(request.asked.tools)}"
        return call_tool(offered[0], arguments)

    return choose


def ask_tool_on(stage: Stage) -> None:
    stage.add_engine_setting("ask_tool = true")


@pytest.mark.every_engine
@pytest.mark.contract("F-4", "F-5")
def test_a_malformed_question_is_corrected_and_its_answer_resumes_the_session(
    stage: Stage, double: ModelDouble
) -> None:
    ask_tool_on(stage)
    skill = stage.skill()
    double.play(put(MALFORMED), put(QUESTION), say("I have asked."), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
            assert asked.pending_interaction is not None
            assert (asked.pending_interaction.prompt, asked.pending_interaction.kind) == ("Which colour?", "choice")
            assert (asked.attempt_number, asked.warnings) == (1, ())
        async with stage.working() as app:
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert (run.attempt_number, run.handle) == (2, asked.handle)
            assert len(await app.service.store.interactions(run.id)) == 1

    stage.run(main)
    first, second, third, last = double.requests
    assert TOOL in heard(first)
    assert "prompt: it is missing" in second.tool_results[-1]
    assert RECORDED in third.tool_results[-1]
    assert reply_in("blue") in heard(last)


@pytest.mark.contract("F-5", "V-2")
def test_a_warm_process_asks_by_its_tool_twice(stage: Stage, double: ModelDouble) -> None:
    ask_tool_on(stage)
    skill = stage.skill()
    again = {"interaction_id": "size", "prompt": "Which size?"}
    double.play(put(QUESTION), say("Asked."), put(again), say("Asked again."), say(finish("blue")))

    async def main() -> None:
        async with stage.working("warm_sec = 600\n") as app:
            asked = await stage.ask(app, skill)
            await app.service.reply(asked.id, "blue")
            await until(lambda: len(double.requests) >= 4)
            asked = await stage.ask_again(app, asked.id)
            await app.service.reply(asked.id, "large")
            run = await over(app, asked.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            ids = [each.interaction_id for each in await app.service.store.interactions(run.id)]
            assert ids == ["colour", "size"]

    stage.run(main)
    assert reply_in("large", "size") in heard(double.requests[-1])


@pytest.mark.contract("F-5")
def test_an_engine_that_is_killed_in_the_call_has_asked_once(stage: Stage, double: ModelDouble) -> None:
    ask_tool_on(stage)
    skill = stage.skill()
    pause = hang()
    double.play(put(QUESTION), pause, say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            run_id = (await stage.submit(app, skill)).id
            # The question is recorded, and the model has not yet been able to end its turn.
            await until(pause.reached.is_set)
            running = await app.service.store.get(run_id)
            assert running.process is not None
            os.kill(running.process.pid, signal.SIGKILL)
            asked = await stage.ask_again(app, run_id)
            pause.release()
            await app.service.reply(run_id, "blue")
            run = await over(app, run_id)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, asked.handle)
            assert len(await app.service.store.interactions(run_id)) == 1

    stage.run(main)
    last = heard(double.requests[-1])
    assert reply_in("blue") in last
    assert "Which colour?" in last


@pytest.mark.contract("F-5", "B-1")
def test_a_server_that_is_killed_in_the_call_asks_once(stage: Stage, double: ModelDouble) -> None:
    ask_tool_on(stage)
    skill = stage.skill()
    pause = hang()
    double.play(put(QUESTION), pause)
    server = Server(stage)

    async def main() -> None:
        async with stage.client() as app:
            run_id = (await stage.submit(app, skill)).id
            await until(pause.reached.is_set)
        server.kill()
        pause.release()
        # The turn is repeated: the model asks again, in a new session.
        double.play(put(QUESTION), say("Asked."), say(finish("blue")))
        async with stage.working(serving=True) as app:
            asked = await stage.ask_again(app, run_id)
            assert asked.attempt_number == 1
            await app.service.reply(run_id, "blue")
            run = await over(app, run_id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert len(await app.service.store.interactions(run_id)) == 1

    try:
        stage.run(main)
    finally:
        server.kill()
