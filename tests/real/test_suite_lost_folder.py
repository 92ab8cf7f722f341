"""Askback with every real engine: the machine of a run that waits is lost, and its files are in the file store."""

from __future__ import annotations

import pytest
from double import ModelDouble, say
from suite import Stage, finish, heard, question, reply_in

from askback.core.runs import RunState
from askback.fs.beneath import remove_tree
from support.data_folder import over, waiting


@pytest.mark.contract("M-5", "B-4")
def test_a_run_whose_folder_is_lost_is_finished_by_what_its_model_saw(stage: Stage, double: ModelDouble) -> None:
    config = f'files = "{stage.folder / "stored"}"\n'
    skill = stage.skill()
    double.play(say(question()), say(question("Which size?", "size")), say(finish("red and large")))

    async def main() -> None:
        async with stage.working(config) as app:
            run = await stage.ask(app, skill)
        remove_tree(stage.data_dir / "runs" / run.id)
        async with stage.working(config) as app:
            await app.service.reply(run.id, "red, please")
            asked = await waiting(app, run.id)
            assert asked.handle == run.handle
        remove_tree(stage.data_dir / "runs" / run.id)
        async with stage.working(config) as app:
            await app.service.reply(run.id, "large, please")
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.restarts, ended.handle) == (RunState.SUCCEEDED, None, 0, run.handle)
            assert ended.warnings == ()

    stage.run(main)
    last = double.requests[-1]
    assert reply_in("large, please", "size") in heard(last)
    said = "\n".join(last.user_texts)
    assert [said.count(text) for text in ("red, please", "large, please")] == [1, 1]
    assert [sum(text in each for each in last.assistant_texts) for text in ("Which colour?", "Which size?")] == [1, 1]
