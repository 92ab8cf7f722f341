"""Askback with every real engine whose process may be kept warm: a reply into it, and what is left when it is killed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
from double import ModelDouble, Request, call_tool, hang, say
from suite import WARM, Stage, can_be_warm, finish, heard, question, reply_in

from askback.app import App
from askback.core.events import EventType
from askback.core.runs import ProfileKind, Run, RunState
from askback.process import tree
from support.data_folder import events_of, over, until, waiting


@pytest.fixture(autouse=True)
def only_engines_that_can(stage: Stage) -> None:
    if not can_be_warm(stage.engine.name):
        pytest.skip(f"{stage.engine.name} is not kept warm")


async def processes(app: App, run_id: str) -> list[str]:
    """What the events say of each turn that took a slot."""
    events = await events_of(app, run_id)
    return [each.data["process"] for each in events if each.type is EventType.TURN_STARTED and "process" in each.data]


async def kept(app: App, run_id: str) -> Run:
    run = await waiting(app, run_id)
    await until(lambda: (parked := app.warm.find(run_id)) is not None and parked.memory_bytes > 0)
    return run


def kill(run_id: str) -> None:
    """SIGKILL to every process of the run, as the kernel does when memory is short. Keepers have no mark."""
    found = tree.Tree(mark=run_id).members()
    assert found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def assert_heard_once(request: Request, questions: list[str], replies: list[str]) -> None:
    """The model is sent the whole conversation: the instructions, each question and each reply once."""
    told, said = "\n".join(request.user_texts), "\n".join(request.assistant_texts)
    assert told.count('the skill "tested"') == 1
    assert [said.count(text) for text in questions] == [1] * len(questions)
    assert [told.count(text) for text in replies] == [1] * len(replies)
    assert replies[-1] in heard(request)


@pytest.mark.contract("V-1", "V-2")
def test_a_reply_goes_into_the_process_that_asked(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), say(question("Which size?", "size")), say(finish("green")))

    async def main() -> None:
        async with stage.working(WARM) as app:
            asked = await stage.submit(app, skill)
            run = await kept(app, asked.id)
            assert (run.profile.kind, run.process, app.slots.taken) == (ProfileKind.RESUMABLE, None, 0)
            parked = app.warm.find(run.id)
            await app.service.reply(run.id, "green")
            await kept(app, run.id)
            assert parked is not None
            again = app.warm.find(run.id)
            assert again is not None
            assert again.pid == parked.pid
            await app.service.reply(run.id, "large")
            run = await over(app, run.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert await processes(app, run.id) == ["new", "warm", "warm"]
            assert tree.Tree(mark=run.id).members() == set()

    stage.run(main)
    questions = ["Which colour?", "Which size?"]
    assert_heard_once(double.requests[-1], questions, [reply_in("green"), reply_in("large", "size")])


@pytest.mark.contract("T-8", "V-4")
def test_the_engines_own_way_of_asking_is_not_used(stage: Stage, double: ModelDouble) -> None:
    engine = stage.engine
    double.play(call_tool(engine.ask_tool, engine.ask_arguments), say(question()))

    async def main() -> None:
        async with stage.working(WARM) as app:
            run = await kept(app, (await stage.submit(app, stage.skill())).id)
            assert run.pending_interaction is not None
            assert (run.pending_interaction.prompt, run.attempt_number) == ("Which colour?", 1)

    stage.run(main)
    first, second = double.requests
    assert engine.ask_tool not in first.asked.tools or engine.ask_tool_is_offered
    assert not any(text in second.tool_results[-1] for text in ('"red"', '"blue"'))


@pytest.mark.contract("V-4", "H-6", "B-4")
@pytest.mark.parametrize("moment", ["at once", "later"])
def test_the_session_of_a_killed_process_resumes_in_a_new_one(stage: Stage, double: ModelDouble, moment: str) -> None:
    """At once: in the moment in which the question can be seen. Later: when its home has been saved."""
    skill = stage.skill()
    double.play(say(question()), say(question("Which size?", "size")), say(finish("green")))

    async def main() -> None:
        async with stage.working(WARM) as app:
            asked = await stage.submit(app, skill)
            run = await (waiting if moment == "at once" else kept)(app, asked.id)
            kill(run.id)
            await until(lambda: app.warm.find(run.id) is None and not tree.Tree(mark=run.id).members())
            await app.service.reply(run.id, "green")
            run = await waiting(app, run.id)
            assert run.restarts == 0
            await app.service.reply(run.id, "large")
            run = await over(app, run.id)
            assert (run.state, run.error, run.warnings, run.restarts) == (RunState.SUCCEEDED, None, (), 0)
            assert (await processes(app, run.id))[:2] == ["new", "new"]

    stage.run(main)
    questions = ["Which colour?", "Which size?"]
    assert_heard_once(double.requests[-1], questions, [reply_in("green"), reply_in("large", "size")])


@pytest.mark.contract("V-4", "V-5", "B-4")
def test_a_turn_that_is_killed_in_the_warm_process_starts_again_in_a_new_one(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), hang(), say(finish("green")))

    async def main() -> None:
        async with stage.working(WARM) as app:
            asked = await stage.submit(app, skill)
            run = await kept(app, asked.id)
            await app.service.reply(run.id, "green")
            await until(lambda: len(double.requests) == 2)
            kill(run.id)
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert await processes(app, run.id) == ["new", "warm", "new"]

    stage.run(main)
    assert_heard_once(double.requests[-1], ["Which colour?"], [reply_in("green")])
