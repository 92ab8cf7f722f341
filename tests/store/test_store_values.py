"""What engines and callers may put into a store: any JSON value comes back as it was, or is refused whole."""

from __future__ import annotations

import asyncio
import math

import pytest
from lives import NOON, QUESTION, ask, create, finish, new_run, reply, running, start, waiting
from stores import OpenStore

from askback.core.errors import Invalid
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Json, Question
from askback.core.runs import RunRequest, RunState

VALUES: list[Json] = [
    None,
    "",
    "a\x00b\x1b[31m\u2028 中文 \U0001f600",
    10**40,
    -(10**40),
    2**63,
    int("9" * 4300),
    -int("9" * 4300),
    1.5e300,
    0.1 + 0.2,
    [[], {}, [None, True, False]],
    {"": 0, "\x00": {"a.b": [1]}, "null": None},
    "x" * 200_000,
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_every_json_value_comes_back_as_it_was(open_store: OpenStore, value: Json) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run(), RunRequest(input={"value": value}, parameter={"value": value}))
            assert await store.request(run.id) == RunRequest(input={"value": value}, parameter={"value": value})
            run = await start(store, run)
            await store.append(run.id, 1, [NewEvent(type=EventType.TOOL_ENDED, at=NOON, data={"value": value})])
            assert (await store.events(run.id))[-1].data == {"value": value}
            question = Question(prompt="?", default=value, options=(value,), context=value)
            other = await waiting(store, new_run("other"), question=question)
            await reply(store, other, value)
            [interaction] = await store.interactions(other.id)
            assert (interaction.default, interaction.options, interaction.context) == (value, (value,), value)
            assert interaction.response == value
            await finish(store, await start(store, other), value)
            assert await store.result(other.id) == value

    asyncio.run(main())


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [{"a": -math.inf}], 10**5000], ids=["nan", "inf", "within", "long"]
)
def test_what_json_cannot_hold_is_refused_and_nothing_is_stored(open_store: OpenStore, value: Json) -> None:
    async def main() -> None:
        async with open_store() as store:
            with pytest.raises(Invalid, match="JSON"):
                await create(store, new_run("none"), RunRequest(input={"value": value}))
            run = await running(store, new_run())
            events = await store.events(run.id)
            with pytest.raises(Invalid, match="JSON"):
                await store.append(run.id, 1, [NewEvent(type=EventType.TOOL_ENDED, at=NOON, data={"value": value})])
            with pytest.raises(Invalid, match="JSON"):
                await ask(store, run, Question(prompt="?", default=value))
            with pytest.raises(Invalid, match="JSON"):
                await finish(store, run, value)
            assert await store.get(run.id) == run
            assert await store.events(run.id) == events
            assert await store.owners() == {""}

    asyncio.run(main())


def nested(depth: int) -> Json:
    value: Json = 0
    for _ in range(depth):
        value = [value]
    return value


def test_a_value_that_is_nested_without_end_is_refused(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await running(store, new_run())
            await store.append(run.id, 1, [NewEvent(type=EventType.TOOL_ENDED, at=NOON, data={"value": nested(100)})])
            with pytest.raises(Invalid, match="nested"):
                await finish(store, run, nested(100_000))
            assert (await store.get(run.id)).state is RunState.RUNNING
            assert (await store.events(run.id))[-1].data == {"value": nested(100)}

    asyncio.run(main())


def test_text_that_is_no_text_is_mended(open_store: OpenStore) -> None:
    """An engine may cut a character in two; what comes back can be sent to anyone."""
    broken = "a\ud83d b\udc00 \ud83d\ude00"
    cleaned = "a\ufffd b\ufffd \U0001f600"

    async def main() -> None:
        async with open_store() as store:
            run = await create(store, new_run("run", owner=broken, engine=broken), RunRequest(input={broken: broken}))
            assert (run.owner, run.engine) == (cleaned, cleaned)
            assert await store.get(run.id) == run
            assert (await store.request(run.id)).input == {cleaned: cleaned}
            assert await store.queued([broken], without_engines=[], limit=1) == (run,)
            assert await store.queued([broken], without_engines=[broken], limit=1) == ()
            other = await waiting(store, new_run("other"), question=Question(prompt=broken, default=broken))
            assert other.pending_interaction is not None
            assert other.pending_interaction.prompt == cleaned
            assert await store.get(other.id) == other
            await reply(store, other, {"text": broken})
            [interaction] = await store.interactions(other.id)
            assert (interaction.prompt, interaction.response) == (cleaned, {"text": cleaned})
            assert (await store.events(other.id))[-2].data["response"] == {"text": cleaned}

    asyncio.run(main())


def test_a_long_question_waits_like_a_short_one(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            prompt = "why? " * 200_000
            run = await waiting(store, new_run(), question=Question(prompt=prompt, options=QUESTION.options))
            assert (await store.pending()).items == (run,)
            assert run.pending_interaction is not None
            assert run.pending_interaction.prompt == prompt

    asyncio.run(main())
