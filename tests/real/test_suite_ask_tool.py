"""The ask tool with every real engine that takes MCP servers: corrected at the call, answered, and killed in between."""

from __future__ import annotations

import os
import signal

import pytest
from double import ModelDouble, hang, say
from suite import ASK_TOOL, Server, Stage, finish, heard, put, reply_in

from askback.core.runs import RunState
from support.data_folder import over, until

pytestmark = pytest.mark.parametrize("engine", ["codex", "claude", "gemini", "qwen", "opencode"], indirect=True)

QUESTION = {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}
MALFORMED = {"interaction_id": "colour", "prompt": " "}
RECORDED = "The question is recorded."


def ask_tool_on(stage: Stage) -> None:
    stage.add_engine_setting("ask_tool = true")
    if stage.engine.name == "claude":
        # The user's settings replace those with the hook, without which no call is deferred.
        stage.add_engine_setting("extra_args = ['--settings={}']")


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
    assert ASK_TOOL in heard(first)
    assert "prompt: it is missing" in second.tool_results[-1]
    assert RECORDED in third.tool_results[-1]
    assert reply_in("blue") in heard(last)


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
