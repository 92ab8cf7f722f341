"""Askback with every real engine: sessions that are gone when the answer comes."""

from __future__ import annotations

import pytest
from double import ModelDouble, always, say
from suite import Stage, finish, heard, question, reply_in

from askback.core.runs import RunState
from support.data_folder import over, waiting


@pytest.mark.contract("J-5", "B-4")
@pytest.mark.cold_and_warm
def test_a_lost_session_is_told_again_once_and_goes_on(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    # An engine may silently start another session, and ask its model there.
    double.play(say(question()), say(question("Which size?", "size")), always(say(finish("made up"))))
    after = (say(question("Which brush?", "brush")), say(finish("red, large and flat")))
    double.play(*after, when="What happened so far")

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill, options={"on_lost_session": "rebuild"})
            await app.service.reply(asked.id, "red, please")
            asked = await waiting(app, asked.id)
        stage.lose_session(asked.id, *stage.engine.sessions)
        async with stage.working() as app:
            await app.service.reply(asked.id, "large, please")
            again = await waiting(app, asked.id)
            assert [each.code for each in again.warnings] == ["CONTEXT_REBUILT"]
            assert again.handle is not None
            assert asked.handle is not None
            assert again.handle.handle_value != asked.handle.handle_value
            await app.service.reply(asked.id, "flat, please")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, again.handle)
            assert (await app.service.result(run.id)).data == {"colour": "red, large and flat"}
            if stage.engine.usage_is_counted:
                assert run.usage is not None
                assert asked.usage is not None
                assert run.usage.total_tokens == 2 * asked.usage.total_tokens

    stage.run(main)
    rebuilt, last = double.requests[-2:]
    told = heard(rebuilt)
    parts = ('the skill "tested"', "Which colour?", "red, please", "Which size?", "large, please")
    assert [told.count(part) for part in parts] == [1] * len(parts)
    assert sorted(parts, key=told.index) == list(parts)
    assert rebuilt.assistant_texts.count(question()) == 0
    said = "\n".join(last.user_texts)
    assert [said.count(text) for text in (*parts, "flat, please")] == [1] * (len(parts) + 1)
    assert reply_in("flat, please", "brush") in heard(last)
