"""Runs that fork another one at a question, and answer it differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.core.errors import Conflict, Invalid, NotFound, RefusalCode
from askback.core.interactions import InteractionOutcome
from askback.core.runs import InheritedFiles, Origin, Run, RunState
from askback.runs.continuation import Continuable
from support.data_folder import ASK, World, events_of, over, run_async, submit, waiting

SIZE = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
FINISH = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}


def two_questions(world: World) -> str:
    return world.skill([ASK], [SIZE], [FINISH], output=ANY)


def fork_of(run: Run, at: str) -> Origin:
    return Origin(run_id=run.id, session=True, at=at)


def said(world: World, run: Run, *texts: str) -> list[int]:
    """How often each text is in the prompts of the run's session."""
    prompts = "\n".join(world.prompts(run.id))
    return [prompts.count(f"\n{text}\n</user_reply>") for text in texts]


@pytest.mark.contract("J-4")
@pytest.mark.parametrize("while_it_waits", [False, True])
def test_a_fork_at_the_first_question_has_the_other_answer_once_and_the_first_never(
    tmp_path: Path, while_it_waits: bool
) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(source.id, "red")
            source = await waiting(app, source.id)
            if not while_it_waits:
                await app.service.reply(source.id, "large")
                source = await over(app, source.id)
            before = world.sessions(source.id)
            run = await submit(app, skill, origin=fork_of(source, "colour"))
            assert (run.state, run.attempt_number) == (RunState.WAITING_USER, 1)
            assert run.pending_interaction is not None
            assert (run.pending_interaction.prompt, run.pending_interaction.options) == (
                "Which colour?",
                ("red", "blue"),
            )
            await app.service.reply(run.id, "blue")
            asked = await waiting(app, run.id)
            assert asked.pending_interaction is not None
            assert asked.pending_interaction.interaction_id == "size"
            await app.service.reply(run.id, "small")
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            assert said(world, ended, "red", "blue", "large", "small") == [0, 1, 0, 1]
            assert world.sessions(source.id) == before
            assert await app.store.get(source.id) == source
            assert [each.outcome for each in await app.store.interactions(run.id)] == [InteractionOutcome.ANSWERED] * 2

    run_async(main)


@pytest.mark.contract("J-4")
def test_a_fork_takes_its_answer_with_the_request(tmp_path: Path) -> None:
    world = World(tmp_path)
    one_of = {"type": "string", "enum": ["red", "blue"]}
    skill = world.skill([{"ask": {**ASK["ask"], "response_schema": one_of}}], [SIZE], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, skill, input={"text": "hello"})).id)
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, origin=fork_of(source, "colour"), answer="violet")
            assert refused.value.code is RefusalCode.REPLY_INVALID
            run = await submit(app, skill, origin=fork_of(source, "colour"), answer="blue")
            assert run.state is RunState.QUEUED
            await waiting(app, run.id)
            assert said(world, run, "red", "blue") == [0, 1]
            assert (await app.store.request(run.id)).input == {"text": "hello"}
            types = [event.type for event in await events_of(app, run.id)][:5]
            assert types == ["run.created", "interaction.asked", "run.state", "interaction.closed", "run.state"]
            assert await app.store.get(source.id) == source

    run_async(main)


@pytest.mark.contract("J-4")
def test_a_fork_can_be_forked(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, skill)).id)
            first = await submit(app, skill, origin=fork_of(source, "colour"), answer="blue")
            await waiting(app, first.id)
            second = await submit(app, skill, origin=fork_of(first, "colour"), answer="green")
            await waiting(app, second.id)
            third = await submit(app, skill, origin=fork_of(second, "size"), answer="small")
            await over(app, third.id)
            assert said(world, third, "red", "blue", "green", "small") == [0, 0, 1, 1]

    run_async(main)


def test_a_question_that_is_not_kept_or_unknown_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)
    other = world.skill([FINISH], name="other", output=ANY)

    async def main() -> None:
        async with world.working("[retention]\nquestions = 1") as app:
            source = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(source.id, "red")
            await waiting(app, source.id)
            await app.service.reply(source.id, "large")
            source = await over(app, source.id)
            with pytest.raises(NotFound) as unknown:
                await submit(app, skill, origin=fork_of(source, "shape"))
            assert unknown.value.code is RefusalCode.INTERACTION_NOT_FOUND
            with pytest.raises(Invalid) as dropped:
                await submit(app, skill, origin=fork_of(source, "colour"))
            assert "no longer kept" in dropped.value.problems[0]
            for wrong in ({"mode": "auto"}, {"input": {"a": 1}}):
                with pytest.raises(Invalid):
                    await submit(app, skill, origin=fork_of(source, "size"), **wrong)
            with pytest.raises(Invalid, match="cannot be forked"):
                await submit(app, other, origin=fork_of(source, "size"))
            with pytest.raises(Invalid) as no_session:
                await submit(app, skill, origin=Origin(run_id=source.id, files=InheritedFiles.ARTIFACTS, at="size"))
            assert no_session.value.problems[0].startswith("from_run.at: ")
            run = await submit(app, skill, origin=fork_of(source, "size"), answer="small")
            await over(app, run.id)
            assert said(world, run, "red", "large", "small") == [1, 0, 1]
            assert {path.name for path in (world.data_dir / "runs").iterdir()} == {source.id, run.id}

    run_async(main)


def test_a_session_with_a_secret_answer_is_forked_only_before_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"ask": {**ASK["ask"], "kind": "secret", "options": []}}], [SIZE], [FINISH], output=ANY)

    async def main() -> None:
        async with world.working() as app:
            source = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(source.id, "hunter2")
            await waiting(app, source.id)
            with pytest.raises(Conflict, match="secret answer"):
                await submit(app, skill, origin=fork_of(source, "size"))
            run = await submit(app, skill, origin=fork_of(source, "colour"), answer="hunter3")
            await waiting(app, run.id)
            assert said(world, run, "hunter2", "hunter3") == [0, 1]

    run_async(main)


@pytest.mark.parametrize("keep", [0, 3])
def test_points_are_kept_after_the_end_only_as_the_settings_say(tmp_path: Path, keep: int) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        async with world.working(f"[retention]\nquestions = {keep}") as app:
            source = await waiting(app, (await submit(app, skill)).id)
            await app.service.reply(source.id, "red")
            await waiting(app, source.id)
            await app.service.reply(source.id, "large")
            await over(app, source.id)
            workspace = app.workspaces.of(source.id)
            workspace.close()
            assert (workspace.root / "snapshots").exists() is (keep > 0)
            assert not (workspace.root / "snapshots" / "manifest.json").exists()

    run_async(main)


def test_it_is_known_what_can_be_continued(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        async with world.working("[retention]\nquestions = 1") as app:
            run = await submit(app, skill)
            assert await app.service.continuable(run) == Continuable()
            run = await waiting(app, run.id)
            assert await app.service.continuable(run) == Continuable(session=True)
            await app.service.reply(run.id, "red")
            run = await waiting(app, run.id)
            assert await app.service.continuable(run) == Continuable(session=True, questions=("colour",))
            await app.service.reply(run.id, "large")
            run = await over(app, run.id)
            possible = await app.service.continuable(run)
            assert possible == Continuable(session=True, questions=("size",))
            for at in ("colour", "size"):
                if at in possible.questions:
                    await submit(app, skill, origin=fork_of(run, at))
                else:
                    with pytest.raises(Invalid, match="cannot be copied"):
                        await submit(app, skill, origin=fork_of(run, at))
            secret = await submit(app, skill, env={"SOME_KEY": "a long value"})
            assert await app.service.continuable(await waiting(app, secret.id)) == Continuable()
            unknown = run.evolve(engine="gone")
            assert await app.service.continuable(unknown) == Continuable()
            await app.service.delete(run.id)
            assert await app.service.continuable(run) == Continuable()

    run_async(main)
