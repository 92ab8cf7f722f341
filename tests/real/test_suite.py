"""Askback with every real engine: runs that ask, wait, resume in a new process, finish, and are cut off in the middle."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from double import TOKENS, ModelDouble, always, call_tool, hang, run_shell, say
from suite import Server, Stage, finish, heard, question, reply_in

from askback.core.errors import ErrorCode, WarningCode
from askback.core.events import EventType
from askback.core.runs import ProfileKind, Run, RunState, Usage
from askback.process.tree import Tree
from support.data_folder import events_of, over, waiting


def codes(run: Run) -> list[str]:
    return [warning.code for warning in run.warnings]


@pytest.mark.contract("P-1", "P-3", "H-1", "H-6", "H-11", "C-1", "C-2")
@pytest.mark.every_engine
def test_a_question_is_answered_in_the_same_session_by_a_new_process(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), say(finish("green")))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
            assert asked.profile.kind is ProfileKind.RESUMABLE
            assert asked.pending_interaction is not None
            assert asked.pending_interaction.prompt == "Which colour?"
            assert asked.handle is not None
            assert asked.handle.engine == stage.engine.name
            assert Tree(mark=asked.id).members() == set()
        async with stage.working() as app:
            await app.service.reply(asked.id, "green, please")
            run = await over(app, asked.id)
            assert (run.state, run.error, run.warnings) == (RunState.SUCCEEDED, None, ())
            assert (run.attempt_number, run.handle) == (2, asked.handle)
            assert (await app.service.result(run.id)).data == {"colour": "green"}

    stage.run(main)
    first, second = double.requests
    assert "Which colour?" not in "".join(first.assistant_texts)
    assert 'the skill "tested"' in heard(first)
    assert any('the skill "tested"' in text for text in second.user_texts[:-1])
    assert second.assistant_texts[-1] == question()
    assert reply_in("green, please") in heard(second)


@pytest.mark.contract("C-7", "I-2", "T-7")
def test_an_auto_run_uses_its_tools_and_leaves_an_artifact(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(run_shell("echo wet > artifacts/wall.txt && echo __SKILL_DONE__", saying="I paint."), say(finish()))

    async def main() -> None:
        async with stage.working() as app:
            run = await over(app, (await stage.submit(app, skill, mode="auto")).id)
            assert (run.state, run.error, run.warnings, run.attempt_number) == (RunState.SUCCEEDED, None, (), 1)
            result = await app.service.result(run.id)
            assert (result.data, [each.path for each in result.artifacts]) == ({"colour": "blue"}, ["wall.txt"])
            assert (app.workspaces.of(run.id).artifacts_path / "wall.txt").read_text() == "wet\n"
            told = [each for each in await events_of(app, run.id) if each.type in _TOLD]
            if not stage.engine.tells_its_tools:
                assert [(each.type, each.data["text"]) for each in told] == [
                    (EventType.ASSISTANT_MESSAGE, f"I paint.\n{finish()}")
                ]
                return
            assert [each.type for each in told] == [
                EventType.ASSISTANT_MESSAGE,
                EventType.TOOL_STARTED,
                EventType.TOOL_ENDED,
                EventType.ASSISTANT_MESSAGE,
            ]
            assert (told[0].data["text"], told[-1].data["text"]) == ("I paint.", finish())
            assert "artifacts/wall.txt" in told[1].data["detail"]
            assert (told[2].data["call_id"], told[2].data["ok"]) == (told[1].data["call_id"], True)
            if stage.engine.usage_is_counted:
                assert _tokens(run) == _usage(requests=2)

    stage.run(main)
    assert len(double.requests) == 2


_TOLD = {EventType.ASSISTANT_MESSAGE, EventType.TOOL_STARTED, EventType.TOOL_ENDED}


def _tokens(run: Run) -> Usage | None:
    """Without what only some engines report."""
    return run.usage and replace(run.usage, reasoning_tokens=None, cost_usd=None, by_model=())


def _usage(*, requests: int) -> Usage:
    return Usage(
        input_tokens=requests * TOKENS.prompt,
        output_tokens=requests * TOKENS.output,
        cached_tokens=requests * TOKENS.cached,
        total_tokens=requests * (TOKENS.prompt + TOKENS.output),
    )


@pytest.mark.contract("C-4")
@pytest.mark.cold_and_warm
def test_valid_output_without_the_marker_is_a_soft_completion(stage: Stage, double: ModelDouble) -> None:
    double.play(say('{"colour": "red"}'))
    run, data = stage.play()
    assert (run.state, data) == (RunState.SUCCEEDED, {"colour": "red"})
    assert codes(run) == [WarningCode.INTERACTIVE_COMPLETED_WITHOUT_DONE_MARKER]


@pytest.mark.contract("C-3", "E-4")
def test_a_wrong_output_is_repaired_in_the_same_session(stage: Stage, double: ModelDouble) -> None:
    double.play(say(finish(7)), say(finish("red")))
    run, data = stage.play(mode="auto")
    assert (run.state, run.error, data, run.attempt_number) == (RunState.SUCCEEDED, None, {"colour": "red"}, 2)
    _, second = double.requests
    assert second.assistant_texts[-1] == finish(7)
    assert 'colour: 7 is not of type "string"' in heard(second)
    if stage.engine.usage_is_counted:
        assert _tokens(run) == _usage(requests=2)


@pytest.mark.contract("T-8", "C-5")
def test_the_engines_own_way_of_asking_neither_hangs_nor_goes_on(stage: Stage, double: ModelDouble) -> None:
    engine = stage.engine
    double.play(call_tool(engine.ask_tool, engine.ask_arguments), say(question()))

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.ask(app, stage.skill())
            assert run.pending_interaction is not None
            assert run.pending_interaction.prompt == "Which colour?"
            assert run.attempt_number == 1

    stage.run(main)
    first, second = double.requests
    assert engine.ask_tool not in first.asked.tools or engine.ask_tool_is_offered
    assert not any(text in second.tool_results[-1] for text in ('"red"', '"blue"'))


@pytest.mark.contract("X-1", "H-11", "J-5")
@pytest.mark.cold_and_warm
def test_a_session_that_is_gone_ends_the_run(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    double.play(say(question()), always(say(finish("made up"))))

    async def main() -> None:
        async with stage.working() as app:
            asked = await stage.ask(app, skill)
        stage.lose_session(asked.id, *stage.engine.sessions)
        async with stage.working() as app:
            await app.service.reply(asked.id, "green")
            run = await over(app, asked.id)
            assert run.state is RunState.FAILED
            assert run.error is not None
            assert (run.error.code, run.error.cause) == (ErrorCode.SESSION_RESUME_FAILED, None)
            assert run.error.detail

    stage.run(main)


@pytest.mark.contract("B-1", "B-4", "H-12")
@pytest.mark.cold_and_warm
def test_a_turn_killed_in_the_middle_is_taken_up_with_the_reply_once(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    held = hang()
    double.play(say(question()), held, say(finish("green")))

    async def main() -> None:
        server = await asyncio.to_thread(Server, stage)
        async with stage.client() as app:
            asked = await stage.ask(app, skill)
            await app.service.reply(asked.id, "the answer is green")
            await asyncio.to_thread(held.reached.wait, 4 * stage.engine.turn_sec)
            assert held.reached.is_set()
            await asyncio.to_thread(server.kill)
            again = await asyncio.to_thread(Server, stage)
            run = await over(app, asked.id)
            await asyncio.to_thread(again.kill)
            assert (run.state, run.error, run.handle) == (RunState.SUCCEEDED, None, asked.handle)
            assert Tree(mark=run.id).members() == set()

    stage.run(main)
    last = double.requests[-1]
    assert [text.count("the answer is green") for text in last.user_texts if "the answer is green" in text] == [1]
    assert last.assistant_texts.count(question()) == 1


@pytest.mark.contract("B-2")
def test_a_cancel_leaves_nothing_of_the_engine_alive(stage: Stage, double: ModelDouble) -> None:
    held = hang()
    double.play(held)

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.submit(app, stage.skill())
            await asyncio.to_thread(held.reached.wait, 4 * stage.engine.turn_sec)
            assert Tree(mark=run.id).members()
            await app.service.cancel(run.id)
            assert (await over(app, run.id)).state is RunState.CANCELED
            assert Tree(mark=run.id).members() == set()

    stage.run(main)


@pytest.mark.cold_and_warm
def test_three_at_once_keep_to_their_own_sessions(stage: Stage, double: ModelDouble) -> None:
    names = ("first", "second", "third")
    skills = {name: stage.skill(name=name) for name in names}
    for name in names:
        double.play(say(question(f"For {name}?")), say(finish(name)), when=f'the skill "{name}"')

    async def main() -> None:
        async with stage.working("slots = 3") as app:
            runs = {name: await stage.submit(app, skill) for name, skill in skills.items()}
            asked = {name: await waiting(app, run.id) for name, run in runs.items()}
            for name, run in asked.items():
                assert run.pending_interaction is not None
                assert run.pending_interaction.prompt == f"For {name}?"
                await app.service.reply(run.id, f"yes, {name}")
            ended = {name: await over(app, run.id) for name, run in runs.items()}
            assert {name: run.error for name, run in ended.items()} == dict.fromkeys(names)
            data = {name: (await app.service.result(run.id)).data for name, run in ended.items()}
            assert data == {name: {"colour": name} for name in names}
            assert len({run.handle.handle_value for run in ended.values() if run.handle is not None}) == 3

    stage.run(main)


# Texts.

HOSTILE = {
    "option": "--help --yolo -c x=y",
    "command": "/quit now",
    "file": "@secret.txt and bob@secret.txt, \\@secret.txt, @{secret.txt} !{ls} {{args}} $1 $& #memo !ls",
    "lines": "first\n\n/compact\n-- third\t'quotes' \"more\" `ls` $HOME %s\r\nnaïve 漢字 🙂  two spaces ",
    "megabyte": "0123456789abcde\n" * 62_500,
}


@pytest.mark.contract("E-5", "H-7", "H-8")
@pytest.mark.cold_and_warm
def test_hostile_replies_reach_the_model_word_for_word(stage: Stage, double: ModelDouble) -> None:
    skill = stage.skill()
    asked = [say(question("Next?", f"text-{number}")) for number in range(len(HOSTILE))]
    double.play(*asked, say(finish()))

    async def main() -> None:
        async with stage.working() as app:
            run = await stage.submit(app, skill)
            (app.workspaces.of(run.id).cwd).mkdir(parents=True, exist_ok=True)
            (app.workspaces.of(run.id).cwd / "secret.txt").write_text("what nobody asked for")
            for text in HOSTILE.values():
                run = await waiting(app, run.id)
                await app.service.reply(run.id, text)
            run = await over(app, run.id)
            assert (run.state, run.error) == (RunState.SUCCEEDED, None)

    stage.run(main)
    assert len(double.requests) == len(HOSTILE) + 1
    for number, text in enumerate(HOSTILE.values()):
        told = heard(double.requests[number + 1])
        assert reply_in(text, f"text-{number}") in told
        assert "what nobody asked for" not in "".join(double.requests[number + 1].user_texts)


def test_a_long_answer_comes_whole(stage: Stage, double: ModelDouble) -> None:
    colour = "".join(f"{number:07d} " for number in range(10_240))
    double.play(say(finish(colour)))
    run, data = stage.play()
    assert (run.state, run.error) == (RunState.SUCCEEDED, None)
    assert data == {"colour": colour}


@pytest.mark.contract("P-1", "P-4")
@pytest.mark.every_engine
def test_the_installed_program_is_seen_with_what_it_can_do(stage: Stage) -> None:
    async def main() -> None:
        async with stage.client() as app:
            reports = {each.engine.name: each for each in await app.service.engines.reports()}
            installed = reports[stage.engine.name].installed
            assert installed is not None
            assert installed.probe.kind is ProfileKind.RESUMABLE
            assert installed.probe.version == stage.engine.version()
            assert installed.signed_in is True

    stage.run(main)
