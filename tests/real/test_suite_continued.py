"""Askback with every real engine: runs that continue the session of another run."""

from __future__ import annotations

from pathlib import Path

import pytest
from double import ModelDouble, say
from suite import Stage, finish, heard, question, reply_in

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import InheritedFiles, Origin, RunState
from askback.engines.registry import get
from support.data_folder import over, waiting


def contents(files: list[Path]) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.contract("J-3", "H-11")
@pytest.mark.cold_and_warm
def test_a_follow_up_continues_the_session_and_leaves_it_as_it_is(stage: Stage, double: ModelDouble) -> None:
    first, second = stage.skill(name="first"), stage.skill(name="second")
    double.play(say(question()), say(finish("green")), say(finish("after green")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, first)
            await app.service.reply(asked.id, "green, please")
            source = await over(app, asked.id)
            before = contents(stage.session_files(source))
            origin = Origin(run_id=source.id, files=InheritedFiles.WORKSPACE, session=True)
            if not get(stage.engine.name).moves_sessions:
                with pytest.raises(Invalid) as refused:
                    await stage.submit(app, second, origin=origin)
                assert refused.value.code is RefusalCode.ENGINE_UNSUITABLE
                return
            run = await over(app, (await stage.submit(app, second, origin=origin)).id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert run.handle is not None
            assert source.handle is not None
            assert run.handle.handle_value == source.handle.handle_value
            assert contents(stage.session_files(source)) == before
            assert await app.store.get(source.id) == source
            if stage.engine.usage_is_counted:
                assert run.usage is not None
                assert source.usage is not None
                assert run.usage.total_tokens * 2 == source.usage.total_tokens
            last = double.requests[-1]
            said = "\n".join(last.user_texts)
            assert [said.count(text) for text in ('the skill "first"', "green, please", 'the skill "second"')] == [
                1,
                1,
                1,
            ]
            assert (last.assistant_texts.count(question()), last.assistant_texts.count(finish("green"))) == (1, 1)
            assert 'the skill "second"' in heard(last)

    stage.run(main)


@pytest.mark.contract("J-4", "H-11")
@pytest.mark.cold_and_warm
def test_a_fork_at_a_question_has_the_other_answer_once_and_the_first_never(stage: Stage, double: ModelDouble) -> None:
    if not get(stage.engine.name).moves_sessions:
        pytest.skip(f"a session of {stage.engine.name} cannot be continued by another run")
    skill = stage.skill()
    double.play(say(question()), say(question("Which size?", "size")), say(finish("red")))
    double.play(say(finish("blue")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
            await app.service.reply(asked.id, "red, please")
            await waiting(app, asked.id)
            await app.service.reply(asked.id, "large, please")
            source = await over(app, asked.id)
            before = contents(stage.session_files(source))
            origin = Origin(run_id=source.id, session=True, at="colour")
            run = await stage.submit(app, skill, origin=origin)
            assert run.pending_interaction is not None
            assert run.pending_interaction.prompt == "Which colour?"
            await app.service.reply(run.id, "blue instead")
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            assert source.handle is not None
            assert run.handle is not None
            assert run.handle.handle_value == source.handle.handle_value
            assert contents(stage.session_files(source)) == before

    stage.run(main)
    last = double.requests[-1]
    said = "\n".join(last.user_texts)
    assert [said.count(text) for text in ("red, please", "large, please", "blue instead")] == [0, 0, 1]
    assert (said.count('the skill "tested"'), last.assistant_texts.count(question())) == (1, 1)
    assert question("Which size?", "size") not in last.assistant_texts
    assert finish("red") not in last.assistant_texts
    assert reply_in("blue instead") in heard(last)
