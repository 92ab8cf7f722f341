"""Askback with every real engine: runs that continue the session of another run."""

from __future__ import annotations

from pathlib import Path

import pytest
from double import ModelDouble, say
from suite import Stage, finish, heard, question

from askback.core.errors import Invalid, RefusalCode
from askback.core.runs import InheritedFiles, Origin, RunState
from askback.engines.base import PortableEngine
from askback.engines.registry import get
from support.data_folder import over


def contents(files: list[Path]) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.contract("J-3", "H-11")
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
            if not isinstance(get(stage.engine.name), PortableEngine):
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
