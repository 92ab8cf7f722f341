"""The real programs that stay, through their conversations alone: what the model hears, what is asked, what fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from clis import MODEL, Station
from double import ModelDouble, call_tool, fail, run_shell, say
from engines_under_test import ENGINES

from askback.core.errors import ErrorCode
from askback.core.runs import Mode, ProfileKind
from askback.engines import registry
from askback.engines.base import Asked, Completed, Probe, Reply, ToolEnded, Turn, TurnFailed
from support.terminal import Talk

TEXTS = ("-x\n--help", "/compact", "@made.txt and @/etc/hostname", "#1 !ls\n\n /quit\n", "/" + "y" * 1_000_000)

Talking = Callable[[Callable[[Talk], Awaitable[None]]], None]

pytestmark = pytest.mark.parametrize("name", ["codex", "claude"])


@pytest.fixture
def talking(station: Callable[[str], Station], name: str) -> Talking:
    """Runs a test's body with the engine's program, which is pointed at the double."""
    place, engine = station(name), registry.get(name)
    assert engine.can_stay
    turn = Turn(
        prompt="",
        mode=Mode.INTERACTIVE,
        attempt_number=1,
        command=(str(place.program),),
        cwd=str(place.cwd),
        home=str(place.home),
        skill_dir="skill",
        probe=Probe(kind=ProfileKind.RESUMABLE, reason="pinned", resident=True),
        model=MODEL,
        env={"CLAUDE_CODE_MAX_RETRIES": "0"},
    )

    def run(body: Callable[[Talk], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Talk(engine, turn, place.env) as talk:
                await body(talk)

        asyncio.run(main())

    return run


@pytest.mark.contract("E-5", "W-6")
def test_every_text_reaches_the_model_word_for_word_in_one_session(talking: Talking, double: ModelDouble) -> None:
    double.play(run_shell("echo secret > made.txt"), *(say(f"Answer {at}.") for at, _ in enumerate(TEXTS)))

    async def body(talk: Talk) -> None:
        for at, text in enumerate(TEXTS):
            assert await talk.say(text) == Completed(messages=(f"Answer {at}.",))
            assert [each.ok for each in talk.told(ToolEnded)] == [True] * (at == 0)
        assert len(set(talk.sessions)) == 1
        assert await talk.close() == 0

    talking(body)
    heard = [each.removeprefix(" ") if each.startswith(" /") else each for each in double.requests[-1].user_texts]
    assert tuple(heard[-len(TEXTS) :]) == TEXTS
    assert "secret" not in "".join(heard)


@pytest.mark.contract("T-8")
def test_its_own_question_is_answered_within_its_turn(talking: Talking, double: ModelDouble, name: str) -> None:
    asks = ENGINES[name]
    double.play(call_tool(asks.ask_tool, asks.ask_arguments, saying="Hm."), say("Thanks."))

    async def body(talk: Talk) -> None:
        assert await talk.say("Ask me.") == Completed(messages=("Hm.",))
        (asked,) = talk.told(Asked)
        assert (asked.question.prompt, asked.question.kind) == ("Which colour?", "choice")
        assert [option["value"] for option in asked.question.options] == ["red", "blue"]
        assert await talk.say("In words.", Reply(response="blue", answered=True)) == Completed(messages=("Thanks.",))

    talking(body)
    (answer,) = double.requests[-1].tool_results
    assert '"blue"' in answer
    assert '"red"' not in answer
    assert "In words." not in "".join(double.requests[-1].user_texts)


@pytest.mark.contract("X-9")
def test_a_failure_has_its_code_and_the_program_goes_on(talking: Talking, double: ModelDouble) -> None:
    codes = {401: ErrorCode.ENGINE_AUTH_REQUIRED, 500: ErrorCode.ENGINE_API_ERROR}
    double.play(*(fail(status) for status in codes), say("There."))

    async def body(talk: Talk) -> None:
        for code in codes.values():
            broke = await talk.say("Hello.")
            assert isinstance(broke, TurnFailed)
            assert broke.code is code
        assert await talk.say("Again.") == Completed(messages=("There.",))

    talking(body)
