"""Runs that continue the engine's session of another run."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.core.errors import Conflict, Invalid, RefusalCode
from askback.core.runs import Origin, RunState
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

DONE = [{"finish": {"colour": "red"}}]


@pytest.mark.contract("J-3")
def test_a_follow_up_has_both_conversations_and_the_source_has_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.skill(DONE, name="first")
    second = world.skill(DONE, [ASK], [FINISH], name="second")

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, first)).id)
            before = world.sessions(source.id)
            run = await submit(app, second, engine=None, origin=Origin(run_id=source.id, session=True))
            asked = await waiting(app, run.id)
            assert (asked.engine, asked.attempt_number) == ("scripted", 1)
            await app.service.reply(run.id, "blue")
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)
            prompts = world.prompts(run.id)
            assert ['"first"' in prompts[0], '"second"' in prompts[1], "blue" in prompts[2]] == [True] * 3
            assert len(prompts) == 3
            assert "earlier run, which is over" in prompts[1]
            assert world.sessions(source.id) == before

    run_async(main)


@pytest.mark.contract("J-3", "B-4")
def test_a_follow_up_that_is_interrupted_has_its_message_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.skill(DONE, name="first")
    here, go = tmp_path / "here", tmp_path / "go"
    slow = world.skill(DONE, [{"touch": str(here)}, {"wait_for": str(go)}, *DONE], name="second")

    async def main() -> None:
        async with world.working(serving=True) as app:
            source = await over(app, (await submit(app, first)).id)
            run = await submit(app, slow, origin=Origin(run_id=source.id, session=True))
            await until(here.exists)
        go.touch()
        async with world.working(serving=True) as app:
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            assert ended.epoch == 2
            assert ['"second"' in prompt for prompt in world.prompts(run.id)] == [False, True]

    run_async(main)


def test_a_session_that_cannot_be_continued_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(DONE, name="second")
    secretive = world.skill([{"ask": {**ASK["ask"], "kind": "secret"}}], DONE, name="secretive")
    fields = [{"id": "pin", "prompt": "PIN?", "kind": "secret"}, {"id": "name", "prompt": "Name?"}]
    form = world.skill([{"ask": {**ASK["ask"], "questions": fields}}], DONE, name="form")

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, skill)).id)
            origin = Origin(run_id=source.id, session=True)
            with pytest.raises(Invalid, match="'codex' cannot continue it") as other:
                await submit(app, skill, engine="codex", origin=origin)
            assert other.value.code is RefusalCode.ENGINE_UNSUITABLE
            with pytest.raises(Invalid, match="must be resumable") as sticky:
                await submit(app, skill, options={"interactive_profile": "sticky_process"}, origin=origin)
            assert sticky.value.code is RefusalCode.PROFILE_UNAVAILABLE
            for asking, answer in ((secretive, "hunter2"), (form, {"pin": "hunter2", "name": "Ada"})):
                asked = await waiting(app, (await submit(app, asking)).id)
                await app.service.reply(asked.id, answer)
                await over(app, asked.id)
                with pytest.raises(Conflict, match="secret answer"):
                    await submit(app, skill, origin=Origin(run_id=asked.id, session=True))
                (interaction,) = await app.store.interactions(asked.id)
                assert "hunter2" not in repr(interaction), "it is erased once the run is over"

    run_async(main)


def test_a_run_that_never_started_has_no_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(DONE)

    async def main() -> None:
        async with world.client() as app:
            source = await app.service.cancel((await submit(app, skill)).id)
            with pytest.raises(Conflict, match="has no session"):
                await submit(app, skill, origin=Origin(run_id=source.id, session=True))

    run_async(main)
