"""Several questions in one ask with every real engine: asked as one form, answered as a whole, resumed in the session."""

from __future__ import annotations

import json

import pytest
from double import ModelDouble, say
from suite import Stage, finish, heard, reply_in

from askback.core.runs import RunState
from support.data_folder import over

QUESTIONS = [
    {"id": "colour", "prompt": "Which colour?", "kind": "choice", "options": ["red", "green"]},
    {"id": "coats", "prompt": "How many coats?", "response_schema": {"type": "integer", "minimum": 1}},
    {"id": "note", "prompt": "Anything else?", "required": False},
]
ASK = {"ask_user": {"interaction_id": "paint", "prompt": "About the wall", "questions": QUESTIONS}}


@pytest.mark.contract("N-6")
@pytest.mark.cold_and_warm
def test_a_form_is_answered_as_a_whole_in_the_same_session(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(f"I need to know a few things.\n\n```json\n{json.dumps(ASK)}\n```"), say(finish("green")))
    answer = {"colour": "green", "coats": 2}

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
            assert asked.pending_interaction is not None
            assert (asked.pending_interaction.kind, asked.warnings) == ("form", ())
            assert [field.id for field in asked.pending_interaction.questions] == ["colour", "coats", "note"]
        async with stage.working() as app:
            await app.service.reply(asked.id, answer)
            run = await over(app, asked.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert (run.attempt_number, run.handle) == (2, asked.handle)

    stage.run(main)
    first, second = double.requests
    assert '"questions": [' in heard(first)
    assert reply_in(json.dumps(answer), "paint") in heard(second)
    assert '- coats: "How many coats?"' in heard(second)
    assert '- note: "Anything else?" (left unanswered)' in heard(second)
