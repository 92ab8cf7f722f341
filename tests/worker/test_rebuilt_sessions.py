"""Sessions that are gone when an answer comes: a new one gets our transcript, where the run allows it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from askback.app import App
from askback.core.errors import Conflict, ErrorCode
from askback.core.events import EventType
from askback.core.runs import Origin, Run, RunState
from support.data_folder import ASK, World, events_of, over, run_async, submit, until, waiting

pytestmark = pytest.mark.contract("J-5")

SIZE = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
FINISH = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
REBUILD = {"on_lost_session": "rebuild"}


def two_questions(world: World, *last: dict[str, Any]) -> str:
    return world.skill([ASK], [SIZE], [*last, FINISH], output=ANY)


async def asked(world: World, skill: str, *answers: str, **rest: Any) -> Run:
    """A run that was answered so often, waits again, and has lost its session."""
    async with world.working() as app:
        run = await waiting(app, (await submit(app, skill, **({"options": REBUILD} | rest))).id)
        for answer in answers:
            await app.service.reply(run.id, answer)
            run = await waiting(app, run.id)
    world.lose_session(run.id)
    return run


def codes(run: Run) -> list[str]:
    return [str(warning.code) for warning in run.warnings]


async def kinds(app: App, run: Run) -> list[str]:
    """What the turns of the run were for."""
    return [event.data["kind"] for event in await events_of(app, run.id) if event.type is EventType.TURN_STARTED]


def answers_in(text: str, *answers: str) -> list[int]:
    return [text.count(f"\n{answer}\n</user_reply>") for answer in answers]


def test_a_new_session_has_the_skill_its_input_and_every_answer_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        run = await asked(world, skill, "red", input={"wall": "north"})
        async with world.working() as app:
            await app.service.reply(run.id, "large, please")
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.attempt_number) == (RunState.SUCCEEDED, None, 4)
            assert (await app.service.result(run.id)).data == {"colour": ["red", "large, please"]}
            assert codes(ended) == ["CONTEXT_REBUILT"]
            assert await kinds(app, ended) == ["start", "reply", "reply", "rebuild"]
            events = await events_of(app, run.id)
            assert [event.data["code"] for event in events if event.type is EventType.RUN_WARNING] == codes(ended)
            assert ended.handle is not None
            assert run.handle is not None
            assert ended.handle.handle_value != run.handle.handle_value
            assert ended.handle.created_at_turn == 4
        (prompt,) = world.prompts(run.id)
        assert answers_in(prompt, "red", "large, please") == [1, 1]
        parts = ('the skill "tested"', '"wall": "north"', "Which colour?", "\nred\n", "Which size?", "large, please")
        assert [prompt.count(part) for part in parts] == [1] * len(parts)
        assert sorted(parts, key=prompt.index) == list(parts)

    run_async(main)


@pytest.mark.parametrize("options", [{}, {"on_lost_session": "fail"}])
def test_without_leave_the_run_fails(tmp_path: Path, options: dict[str, str]) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        run = await asked(world, skill, options=options)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.error.code, ended.error.cause) == (ErrorCode.SESSION_RESUME_FAILED, None)
            assert (codes(ended), ended.attempt_number) == ([], 2)

    run_async(main)


@pytest.mark.parametrize(("how", "warm_sec"), [("other_session", 0), ("no_session", 0), ("other_session", 600)])
def test_a_session_that_is_not_the_right_one_is_not_continued(tmp_path: Path, how: str, warm_sec: int) -> None:
    """With `warm_sec`, the answer goes to the process that asked, which strays in its second turn."""
    world = World(tmp_path)
    skill = world.skill([ASK], [{"misbehave": how}, {"finish": {"colour": "{{reply}}"}}])

    async def main() -> None:
        async with world.working(f"warm_sec = {warm_sec}") as app:
            run = await waiting(app, (await submit(app, skill, options=REBUILD)).id)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert (ended.state, ended.error, codes(ended)) == (RunState.SUCCEEDED, None, ["CONTEXT_REBUILT"])
        (session,) = world.sessions(run.id)
        (prompt,) = [entry["text"] for entry in session if entry["type"] == "prompt"]
        assert answers_in(prompt, "red") == [1]

    run_async(main)


def test_a_home_that_was_removed_is_a_lost_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"finish": {"colour": "{{reply}}"}}])

    async def main() -> None:
        run, other = await asked(world, skill), await asked(world, skill, options={})
        async with world.working() as app:
            for each in (run, other):
                shutil.rmtree(app.workspaces.of(each.id).home)
                await app.service.reply(each.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            ended = await over(app, other.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED
            assert "removed" in ended.error.message

    run_async(main)


def test_each_question_may_find_its_session_lost(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        run = await asked(world, skill)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            await waiting(app, run.id)
        world.lose_session(run.id)
        async with world.working() as app:
            await app.service.reply(run.id, "large")
            ended = await over(app, run.id)
            assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            assert codes(ended) == ["CONTEXT_REBUILT"] * 2
            assert await kinds(app, ended) == ["start", "reply", "rebuild", "reply", "rebuild"]
        (prompt,) = world.prompts(run.id)
        assert answers_in(prompt, "red", "large") == [1, 1]

    run_async(main)


def test_a_second_loss_after_the_same_answer_fails_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill(
        [ASK], [{"finish": {"colour": 1}}], [{"misbehave": "other_session"}, {"finish": {"colour": "x"}}]
    )

    async def main() -> None:
        run = await asked(world, skill)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert await kinds(app, ended) == ["start", "reply", "rebuild", "repair"]
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED
            assert codes(ended) == ["CONTEXT_REBUILT"]

    run_async(main)


def test_an_engine_that_cannot_reach_its_model_has_not_lost_its_session(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [{"misbehave": "rate_limit", "before_session": True}])

    async def main() -> None:
        async with world.working() as app:
            run = await waiting(app, (await submit(app, skill, options=REBUILD)).id)
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert (ended.error.code, ended.error.cause) == (
                ErrorCode.SESSION_RESUME_FAILED,
                ErrorCode.ENGINE_RATE_LIMITED,
            )
            assert (codes(ended), ended.handle) == ([], run.handle)

    run_async(main)


def test_a_rebuild_that_is_interrupted_is_not_a_second_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    here, go = tmp_path / "here", tmp_path / "go"
    skill = two_questions(world, {"touch": str(here)}, {"wait_for": str(go)})

    async def main() -> None:
        run = await asked(world, skill, "red")
        async with world.working(serving=True) as app:
            await app.service.reply(run.id, "large")
            await until(here.exists)
        go.touch()
        async with world.working(serving=True) as app:
            ended = await over(app, run.id)
            assert (ended.state, ended.error, ended.attempt_number) == (RunState.SUCCEEDED, None, 4)
            assert codes(ended) == ["CONTEXT_REBUILT"]
            assert await kinds(app, ended) == ["start", "reply", "reply", "rebuild", "rebuild"]
        (prompt,) = world.prompts(run.id)
        assert answers_in(prompt, "red", "large") == [1, 1]

    run_async(main)


def test_a_secret_answer_reaches_the_new_session_and_no_other_place(tmp_path: Path) -> None:
    world = World(tmp_path)
    secret = "hunter2-correct-horse"
    asks = {"ask": {"interaction_id": "password", "kind": "secret", "prompt": "Password?"}}
    finish = {"finish": {"colour": "{{replies}}"}}
    skill = world.skill([asks], [SIZE], [{"say": "I use {{replies}}."}, finish], output=ANY)

    async def main() -> None:
        run = await asked(world, skill, secret)
        async with world.working() as app:
            await app.service.reply(run.id, "large")
            ended = await over(app, run.id)
            assert (ended.state, codes(ended)) == (RunState.SUCCEEDED, ["CONTEXT_REBUILT"])
            (prompt,) = world.prompts(run.id)
            assert answers_in(prompt, secret, "large") == [1, 1]
            shown = [dict(event.data) for event in await events_of(app, run.id)]
            assert secret not in json.dumps(shown, default=str)
            assert secret not in json.dumps((await app.service.result(run.id)).data)
            for path in app.workspaces.of(run.id).turns.iterdir():
                assert secret not in path.read_text()

    run_async(main)


def test_a_question_that_nobody_answered_is_told_as_such(tmp_path: Path) -> None:
    world = World(tmp_path)
    asks = {"ask": {**ASK["ask"], "default": "blue"}}
    skill = world.skill([asks], [{"misbehave": "other_session"}, {"finish": {"colour": "{{reply|none}}"}}])
    options = REBUILD | {"interactive_require_user_reply": False, "session_timeout_sec": 0.1}

    async def main() -> None:
        async with world.working() as app:
            ended = await over(app, (await submit(app, skill, options=options)).id)
            assert (ended.state, codes(ended)) == (RunState.SUCCEEDED, ["CONTEXT_REBUILT"])
        (prompt,) = world.prompts(ended.id)
        assert prompt.count('did not answer your question "colour" in time') == 1
        assert "<user_reply" not in prompt

    run_async(main)


def test_only_a_question_of_the_new_session_can_be_forked_at(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = two_questions(world)

    async def main() -> None:
        run = await asked(world, skill)
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            await waiting(app, run.id)
            await app.service.reply(run.id, "large")
            source = await over(app, run.id)
            with pytest.raises(Conflict, match="lost since"):
                await submit(app, skill, origin=Origin(run_id=source.id, session=True, at="colour"))
            fork = await submit(app, skill, origin=Origin(run_id=source.id, session=True, at="size"))
            await app.service.reply(fork.id, "small")
            assert (await over(app, fork.id)).state is RunState.SUCCEEDED
            assert (await app.service.result(fork.id)).data == {"colour": ["red", "small"]}

    run_async(main)


def test_a_run_that_continues_another_one_is_not_rebuilt_from_half_a_transcript(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.skill([{"finish": {"colour": "red"}}], name="first")
    second = world.skill([], [ASK], [FINISH], output=ANY, name="second")

    async def main() -> None:
        async with world.working() as app:
            source = await over(app, (await submit(app, first)).id)
        run = await asked(world, second, origin=Origin(run_id=source.id, session=True))
        async with world.working() as app:
            await app.service.reply(run.id, "red")
            ended = await over(app, run.id)
            assert ended.error is not None
            assert ended.error.code is ErrorCode.SESSION_RESUME_FAILED

    run_async(main)
