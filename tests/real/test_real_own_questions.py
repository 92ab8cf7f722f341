"""Whole runs whose engine asks by its own protocol, in the middle of its turn: the user is asked, and the turn goes on."""

from __future__ import annotations

from typing import Any

import pytest
from double import ModelDouble, call_tool, say
from suite import Stage, finish, heard

from askback.core.runs import RunState
from askback.process import tree
from support.data_folder import over

pytestmark = pytest.mark.parametrize("engine", ["codex", "claude"], indirect=True)

STICKY: dict[str, Any] = {"interactive_profile": "sticky_process"}


@pytest.mark.contract("T-8", "W-6")
def test_the_engines_own_question_is_a_question_of_the_run(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(call_tool(stage.engine.ask_tool, stage.engine.ask_arguments), say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options=STICKY)
            (pending,) = [each for each in await app.service.store.interactions(asked.id) if each.response is None]
            assert (pending.prompt, pending.kind) == ("Which colour?", "choice")
            await app.service.reply(asked.id, "blue")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.attempt_number) == (RunState.SUCCEEDED, None, 2)
            assert (await app.service.result(run.id)).data == {"colour": "blue"}
            assert tree.Tree(mark=run.id).members() == set()

    stage.run(main)
    first, second = double.requests
    assert heard(first) == heard(second)
    (answer,) = second.tool_results
    assert '"blue"' in answer


@pytest.mark.contract("W-8", "T-8")
def test_a_question_that_nobody_answers_is_decided_by_the_first_choice(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(call_tool(stage.engine.ask_tool, stage.engine.ask_arguments), say(finish("red")))
    undecided = {"interactive_require_user_reply": False, "session_timeout_sec": 1}

    async def main() -> None:
        async with stage.working() as app:
            run = await over(app, (await stage.submit(app, skill, options=STICKY | undecided)).id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)

    stage.run(main)
    (answer,) = double.requests[-1].tool_results
    assert '"red"' in answer
