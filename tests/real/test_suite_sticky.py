"""Askback with every real engine that stays: a conversation of two questions inside one process, and its ends."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from double import ModelDouble, always, fail, hang, run_shell, say
from suite import Stage, finish, heard, question, reply_in

from askback.core.errors import ErrorCode
from askback.core.runs import ProfileKind, Run, RunState
from askback.process import tree
from support.data_folder import over, until, waiting

STICKY: dict[str, Any] = {"interactive_profile": "sticky_process"}


def held(run: Run) -> tree.ProcessIdentity:
    """The run's process, which must live."""
    assert run.process is not None
    assert tree.identity(run.process.pid) == run.process
    return run.process


@pytest.mark.contract("W-4", "W-5", "W-6", "P-5")
def test_two_questions_are_answered_into_one_process_and_session(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    text = "green @work/skill/SKILL.md\n/quit -x"
    double.play(
        say(question()),
        run_shell("echo wet > artifacts/wall.txt"),
        say(question("Which size?", "size")),
        say(finish("green")),
    )

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options=STICKY)
            assert asked.profile.kind is ProfileKind.STICKY_PROCESS
            process = held(asked)
            await app.service.reply(asked.id, text)
            again = await waiting(app, asked.id)
            assert (held(again), again.attempt_number) == (process, 2)
            await app.service.reply(asked.id, "large")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.warnings, run.attempt_number) == (RunState.SUCCEEDED, None, (), 3)
            result = await app.service.result(run.id)
            assert (result.data, [each.path for each in result.artifacts]) == ({"colour": "green"}, ["wall.txt"])
            assert tree.identity(process.pid) != process
            assert tree.Tree(mark=run.id).members() == set()

    stage.run(main)
    first, second, _, last = double.requests
    assert 'the skill "tested"' in heard(first)
    assert reply_in(text) in heard(second)
    assert reply_in("large", "size") in heard(last)
    told = "\n".join(last.user_texts)
    assert told.count(reply_in(text)) == 1
    assert question() in last.assistant_texts


@pytest.mark.contract("W-11", "X-6")
def test_a_killed_engine_fails_the_waiting_run_at_once(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options=STICKY)
            os.kill(held(asked).pid, signal.SIGKILL)
            run = await over(app, asked.id)
            assert run.error is not None
            assert run.error.code is ErrorCode.INTERACTION_PROCESS_LOST
            assert tree.Tree(mark=run.id).members() == set()

    stage.run(main)


@pytest.mark.contract("B-2", "B-3")
def test_a_cancel_in_a_later_turn_leaves_nothing_of_the_engine(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), hang())

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options=STICKY)
            await app.service.reply(asked.id, "green")
            await until(lambda: len(double.requests) == 2)
            await app.service.cancel(asked.id)
            run = await over(app, asked.id)
            assert run.state is RunState.CANCELED
            assert tree.Tree(mark=run.id).members() == set()

    stage.run(main)


@pytest.mark.contract("X-9")
def test_a_refused_key_in_a_later_turn_has_its_own_code(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), always(fail(401, body=stage.engine.error_body)))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options=STICKY)
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.error is not None
            assert run.error.code is ErrorCode.ENGINE_AUTH_REQUIRED

    stage.run(main)
