"""The scripted program that stays: several turns in one process and session, and its own way of asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from programs import DEADLINE_SEC, Stage, reply

from askback.core.errors import ErrorCode
from askback.core.interactions import Question
from askback.core.runs import ProfileKind, Usage
from askback.engines.base import (
    Asked,
    AssistantMessage,
    CallResult,
    Completed,
    Exit,
    Reply,
    SessionNamed,
    Stream,
    TurnFailed,
    TurnOver,
    UsageSeen,
)
from askback.engines.scripted import Scripted, ScriptedConversation
from askback.engines.scripted.program.input import UsageError, help_text, read_options
from support.terminal import Talk

COLOUR = {"interaction_id": "colour", "prompt": "Which?", "options": ["red", "blue"], "default": "red"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def talking(stage: Stage, body: Callable[[Talk], Awaitable[None]], **rest: Any) -> None:
    """A test's body with the program, which is as the stage's script has it."""

    async def main() -> None:
        async with Talk(stage.engine, stage.turn("", **rest), {}, turn_timeout_sec=DEADLINE_SEC) as talk:
            await body(talk)

    asyncio.run(main())


def test_two_prompts_are_two_turns_of_one_session_in_one_process(stage: Stage) -> None:
    stage.script([{"say": "One."}, {"ask": COLOUR}], [{"usage": {"input_tokens": 3}}, {"finish": {"c": "{{reply}}"}}])

    async def body(talk: Talk) -> None:
        first = await talk.say("Start.")
        assert talk.told(SessionNamed) == [SessionNamed(value=talk.sessions[0])]
        second = await talk.say(reply("blue"), Reply(response="blue", answered=True))
        assert isinstance(first, Completed)
        assert [len(first.messages), first.messages[0]] == [2, "One."]
        assert isinstance(second, Completed)
        assert '"c": "blue"' in second.messages[0]
        assert talk.told(UsageSeen)[0].usage == Usage(input_tokens=3, total_tokens=3)
        assert len(talk.sessions) == 1
        prompts = [each for each in stage.session(talk.sessions[0]) if each["type"] == "prompt"]
        assert [(each["text"], each["pid"]) for each in prompts] == [
            ("Start.", talk.process.pid),
            (reply("blue"), talk.process.pid),
        ]
        assert await talk.close() == 0

    talking(stage, body)


@pytest.mark.contract("E-5")
@pytest.mark.parametrize(
    "text", ["--version", '{"type":"answer"}\n/quit', "@file", "x" * 1_000_000, "naïve\x00\u2028🙂", ""]
)
def test_a_text_reaches_the_program_that_stays_as_exactly_that_text(stage: Stage, text: str) -> None:
    stage.script([{"say": "{{prompt}}"}])

    async def body(talk: Talk) -> None:
        await talk.say(text)
        assert stage.prompts(talk.sessions[0]) == [text]

    talking(stage, body)


def test_a_native_question_pauses_the_turn_and_its_answer_goes_on_with_it(stage: Stage) -> None:
    stage.script(
        [
            {"say": "Hm."},
            {"ask_native": COLOUR},
            {"say": "{{reply}}"},
            {"ask_native": {"prompt": "Sizes?"}},
            {"say": "{{replies}}"},
        ],
        [{"say": "{{replies}}"}],
    )

    async def body(talk: Talk) -> None:
        assert await talk.say("Start.") == Completed(messages=("Hm.",))
        assert talk.question == Question(
            prompt="Which?", interaction_id="colour", kind="choice", options=("red", "blue"), default="red"
        )
        assert await talk.say("In words.", Reply(response="blue", answered=True)) == Completed(messages=("blue",))
        assert talk.told(Asked) == [Asked(question=Question(prompt="Sizes?"))]
        done = await talk.say("In words.", Reply(response={"small": 2}, answered=True))
        assert done == Completed(messages=('blue\n{"small": 2}',))
        assert await talk.say(reply("x")) == Completed(messages=('blue\n{"small": 2}\nx',))
        assert stage.prompts(talk.sessions[0]) == ["Start.", reply("x")]

    talking(stage, body)


@pytest.mark.parametrize(("question", "said"), [(COLOUR, "red"), ({"prompt": "Which?"}, "left to me")])
def test_a_question_that_is_left_to_the_engine_gets_its_default(stage: Stage, question: Any, said: str) -> None:
    stage.script([{"ask_native": question}, {"say": "{{reply|left to me}}"}])

    async def body(talk: Talk) -> None:
        await talk.say("Start.")
        undecided = Reply(response="nobody answered", answered=False)
        assert await talk.say("Decide yourself.", undecided) == Completed(messages=(said,))

    talking(stage, body)


def test_a_turn_that_fails_does_not_end_the_program(stage: Stage) -> None:
    stage.script([{"misbehave": "auth"}])

    async def body(talk: Talk) -> None:
        for _ in range(2):
            broke = await talk.say("Start.")
            assert isinstance(broke, TurnFailed)
            assert broke.code is ErrorCode.ENGINE_AUTH_REQUIRED
        stage.script([{"say": "{{turn}}"}])
        assert await talk.say("Again.") == Completed(messages=("1",))

    talking(stage, body)


def test_a_script_that_cannot_be_played_ends_the_turn(stage: Stage) -> None:
    stage.script([{"dance": 1}])

    async def body(talk: Talk) -> None:
        broke = await talk.say("Start.")
        assert isinstance(broke, TurnFailed)
        assert "has no known action" in (broke.detail or "")

    talking(stage, body)


@pytest.mark.parametrize("step", [{"misbehave": "crash"}, {"misbehave": "exit_zero_without_result"}])
def test_a_program_that_ends_in_its_second_turn_has_crashed(stage: Stage, step: Any) -> None:
    stage.script([{"say": "One."}], [{"say": "Two."}, {"stderr": "last words"}, step])

    async def body(talk: Talk) -> None:
        assert await talk.say("Start.") == Completed(messages=("One.",))
        broke = await talk.say("Go on.")
        assert isinstance(broke, TurnFailed)
        assert broke.code is ErrorCode.ENGINE_CRASHED

    talking(stage, body)


@pytest.mark.parametrize("last", [{"say": "One."}, {"ask_native": COLOUR}])
def test_it_can_end_while_it_waits(stage: Stage, tmp_path: Path, last: Any) -> None:
    when = tmp_path / "now"
    stage.script([{"misbehave": "exit_while_waiting", "when": str(when), "exit_code": 7}, last])

    async def body(talk: Talk) -> None:
        assert isinstance(await talk.say("Start."), Completed)
        when.touch()
        assert await asyncio.wait_for(talk.process.wait(), DEADLINE_SEC) == 7
        broke = await talk.say("Are you there?")
        assert isinstance(broke, TurnFailed)
        assert (broke.code, "exit code 7" in broke.message) == (ErrorCode.ENGINE_CRASHED, True)

    talking(stage, body)


def test_what_it_prints_while_it_waits_belongs_to_no_turn(stage: Stage, tmp_path: Path) -> None:
    noise = {"misbehave": "noise_while_waiting", "mb": 1, "then_touch": str(tmp_path / "done")}
    stage.script([noise, {"say": "One."}], [{"say": "Two."}])

    async def body(talk: Talk) -> None:
        assert await talk.say("Start.") == Completed(messages=("One.",))
        async with asyncio.timeout(DEADLINE_SEC):
            while not (tmp_path / "done").exists() or not talk.printed[-1][1].startswith(b"x"):
                await asyncio.sleep(0.005)
        assert talk.overhear() == []
        assert await talk.say("Go on.") == Completed(messages=("Two.",))

    talking(stage, body)


def test_one_that_lingers_reads_its_input_no_more(stage: Stage) -> None:
    stage.script([{"misbehave": "linger"}], [{"say": "never"}])

    async def body(talk: Talk) -> None:
        assert isinstance(await talk.say("Start."), Completed)
        assert await talk.close(patience_sec=0.2) == -9

    talking(stage, body)


def test_a_program_that_ends_its_input_while_asking_ends(stage: Stage) -> None:
    stage.script([{"ask_native": COLOUR}, {"say": "never"}])

    async def body(talk: Talk) -> None:
        await talk.say("Start.")
        assert await talk.close() == 0
        assert [each["type"] for each in stage.session(talk.sessions[0])] == ["prompt", "question"]

    talking(stage, body)


def test_a_native_question_of_one_that_does_not_stay_fails(stage: Stage) -> None:
    stage.script([{"ask_native": COLOUR}])
    result = stage.play().result
    assert isinstance(result, TurnFailed)
    assert "needs --stay" in (result.detail or "")


def test_what_it_is_sent_and_cannot_use_is_passed_over(stage: Stage) -> None:
    stage.script([{"ask_native": COLOUR}, {"say": "{{reply}}"}])

    async def body(talk: Talk) -> None:
        assert talk.process.stdin is not None
        talk.process.stdin.write(b'{\n[]\n\xff\n{"type":"answer","id":"question-1","response":"early"}\n')
        await talk.say("Start.")
        talk.process.stdin.write(b'{"type":"answer","id":"question-9","response":"other"}\n')
        assert await talk.say("", Reply(response="blue", answered=True)) == Completed(messages=("blue",))

    talking(stage, body)


# The engine.


def test_it_is_a_resident_engine() -> None:
    assert Scripted().can_stay
    assert Scripted.profiles == {ProfileKind.RESUMABLE, ProfileKind.STICKY_PROCESS}


@pytest.mark.contract("P-2")
@pytest.mark.parametrize(
    ("command", "kind"), [([], ProfileKind.RESUMABLE), (["--no-resume"], ProfileKind.STICKY_PROCESS)]
)
def test_a_version_that_cannot_resume_can_stay(command: list[str], kind: ProfileKind) -> None:
    usage = CallResult(args=("--help",), exit_code=0, stdout=help_text([*command, "--help"]), stderr="")
    probe = Scripted().read_probe([usage])
    assert (probe.kind, probe.resident) == (kind, True)
    old = CallResult(args=("--help",), exit_code=0, stdout="--resume", stderr="")
    assert not Scripted().read_probe([old]).resident


def test_a_version_that_cannot_resume_refuses_to() -> None:
    with pytest.raises(UsageError, match="cannot resume"):
        read_options(["--no-resume", "--resume=ses-1"])
    with pytest.raises(UsageError, match="unknown argument"):
        read_options(["--stay=now"])


def test_a_conversation_says_why_its_time_ran_out() -> None:
    talk = ScriptedConversation()
    list(talk.say("Start."))
    list(talk.feed(Stream.STDOUT, b'{"type":"retry","message":"waiting for network"}'))
    assert talk.finish(Exit(code=-9, timed_out=True)).code is ErrorCode.ENGINE_UNREACHABLE
    assert list(talk.feed(Stream.STDOUT, b'{"type":"message","text":"Here."}')) == [AssistantMessage(text="Here.")]
    assert talk.finish(Exit(code=-9, timed_out=True)).code is ErrorCode.TURN_TIMEOUT
    assert list(talk.feed(Stream.STDOUT, b'{"type":"turn.completed"}')) == [TurnOver()]
    assert list(talk.feed(Stream.STDOUT, b'{"type":"turn.completed"}')) == []
    assert talk.finish(Exit(code=1)).code is ErrorCode.ENGINE_CRASHED
