"""What a store remembers of a run: its questions and how they ended, and events from which the run can be replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from lives import (
    DECIDED,
    NOON,
    QUESTION,
    TIMEOUT_SEC,
    ask,
    at,
    create,
    finish,
    name_handle,
    new_run,
    note_process,
    reply,
    running,
    start,
    waiting,
)
from stores import OpenStore

from askback.core.actors import Actor, Channel
from askback.core.errors import ErrorCode, RunError, RunWarning, WarningCode
from askback.core.events import Event, EventType, NewEvent
from askback.core.interactions import AnsweredBy, Interaction, InteractionOutcome, Question
from askback.core.outcomes import AskUser, Final, TurnError
from askback.core.runs import Run, RunOptions, Usage
from askback.core.signals import (
    CancelRequested,
    DeadlinePassed,
    ProcessLost,
    ProcessTreeEnded,
    Replied,
    TurnEnded,
    TurnLost,
)
from askback.store.base import Store, move

WARNING = RunWarning(code=WarningCode.ENGINE_LINE_TRUNCATED, message="a line was left out")
USAGE = Usage(input_tokens=10, output_tokens=5, cached_tokens=2, total_tokens=15)

ANNA = Actor(name="anna", via=Channel.API)


# Questions.


@pytest.mark.contract("A-1")
def test_every_question_and_reply_is_kept_with_who_and_both_times(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run(), at(10))
            await move(
                store, run.id, Replied(interaction_id="colour", response={"value": "red"}, owner="", by=ANNA, at=at(70))
            )
            run = await start(store, run)
            await ask(store, run, Question(prompt="How many?", interaction_id="count"), at(200))
        async with open_store() as store:
            first, second = await store.interactions(run.id)
        assert first == Interaction(
            interaction_id="colour",
            kind="text",
            prompt="Which colour?",
            attempt_number=1,
            asked_at=at(10),
            options=("red", "blue"),
            default="blue",
            outcome=InteractionOutcome.ANSWERED,
            response={"value": "red"},
            answered_by=AnsweredBy.USER,
            answered_at=at(70),
            answered_with=ANNA,
        )
        assert (second.interaction_id, second.attempt_number, second.asked_at) == ("count", 2, at(200))
        assert (second.outcome, second.answered_by, second.answered_at) == (InteractionOutcome.PENDING, None, None)

    asyncio.run(main())


@pytest.mark.contract("A-1", "A-4")
def test_an_automatic_decision_is_never_told_as_the_users_answer(open_store: OpenStore) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run(options=DECIDED))
            await move(store, run.id, DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC)))
            [interaction] = await store.interactions(run.id)
            assert (interaction.outcome, interaction.answered_by, interaction.response, interaction.answered_at) == (
                InteractionOutcome.AUTO_DECIDED,
                AnsweredBy.AUTO_DECIDE,
                "blue",
                at(TIMEOUT_SEC),
            )

    asyncio.run(main())


@pytest.mark.contract("A-4")
@pytest.mark.parametrize(
    ("signal", "outcome"),
    [
        (DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC)), InteractionOutcome.EXPIRED),
        (ProcessLost(epoch=1, at=at(TIMEOUT_SEC)), InteractionOutcome.ABANDONED),
        (CancelRequested(at=at(TIMEOUT_SEC)), InteractionOutcome.CANCELED),
    ],
)
def test_a_question_that_nobody_answered_says_how_it_ended(
    open_store: OpenStore, signal: DeadlinePassed | ProcessLost | CancelRequested, outcome: InteractionOutcome
) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await waiting(store, new_run(sticky=not isinstance(signal, CancelRequested)))
            await move(store, run.id, signal)
            [interaction] = await store.interactions(run.id)
            assert (interaction.outcome, interaction.answered_by, interaction.response) == (outcome, None, None)
            assert interaction.answered_at == at(TIMEOUT_SEC)

    asyncio.run(main())


# Replay.


async def answered_twice_and_repaired(store: Store) -> str:
    run = await waiting(store, new_run())
    run = await start(store, await reply(store, run))
    warned = AskUser(question=Question(prompt="How many?"), warnings=(WARNING,))
    await store.append(run.id, run.epoch, [NewEvent(type=EventType.ASSISTANT_MESSAGE, at=NOON, data={"text": "hm"})])
    run = await move(store, run.id, TurnEnded(epoch=run.epoch, outcome=warned, at=at(9), usage=USAGE))
    run = await start(store, await reply(store, run, [1, 2]))
    wrong = Final(data=1, done=True, problems=("output: 1 is not an object",))
    ended = TurnEnded(epoch=run.epoch, outcome=wrong, at=at(99), usage=USAGE, warnings=(WARNING,))
    run = await move(store, run.id, ended)
    await move(store, run.id, TurnEnded(epoch=run.epoch, outcome=Final(data={}, done=False), at=at(100)))
    return run.id


async def lost_until_given_up(store: Store) -> str:
    run = await create(store, new_run())
    for _ in range(4):
        run = await start(store, run)
        run = await move(store, run.id, TurnLost(epoch=run.epoch, at=NOON))
    return run.id


async def sticky_and_expired(store: Store) -> str:
    run = await note_process(store, await start(store, await create(store, new_run(sticky=True))))
    run = await reply(store, await ask(store, run))
    run = await ask(store, run, Question(prompt="And?"))
    assert run.pending_interaction is not None
    expired = DeadlinePassed(interaction_id=run.pending_interaction.interaction_id, at=at(TIMEOUT_SEC))
    await move(store, run.id, expired)
    return (await move(store, run.id, ProcessTreeEnded(epoch=run.epoch, at=at(TIMEOUT_SEC + 1)))).id


async def canceled_in_a_turn(store: Store) -> str:
    run = await running(store, new_run(sticky=True))
    await move(store, run.id, CancelRequested(at=NOON))
    return (await move(store, run.id, ProcessTreeEnded(epoch=run.epoch, at=at(1)))).id


async def still_waiting(store: Store) -> str:
    run = await waiting(store, new_run(options=DECIDED))
    run = await move(store, run.id, DeadlinePassed(interaction_id="colour", at=at(TIMEOUT_SEC)))
    return (await ask(store, await start(store, run), QUESTION)).id


async def crashed(store: Store) -> str:
    run = await name_handle(store, await start(store, await create(store, new_run(options=RunOptions(model="m")))))
    error = RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="m", cause=ErrorCode.ENGINE_CRASHED, detail="d")
    ended = TurnEnded(epoch=run.epoch, outcome=TurnError(error=error), at=NOON, usage=USAGE)
    return (await move(store, run.id, ended)).id


async def finished_at_once(store: Store) -> str:
    return (await finish(store, await running(store, new_run()), {"ok": True})).id


LIVES = [
    answered_twice_and_repaired,
    lost_until_given_up,
    sticky_and_expired,
    canceled_in_a_turn,
    still_waiting,
    crashed,
    finished_at_once,
]


class Replayer:
    """A run as its events tell it. Knows the events' meaning, and nothing of the code that writes them."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.state: str | None = None
        self.attempt_number = 1
        self.warnings: list[tuple[str, str]] = []
        self.error: dict[str, Any] | None = None
        self.interactions: dict[str, dict[str, Any]] = {}
        self.usage: dict[str, Any] = {}
        self._used: Usage | None = None
        for event in events:
            getattr(self, "on_" + event.type.replace(".", "_"), lambda event: None)(event)

    def on_run_state(self, event: Event) -> None:
        assert event.data["from"] == self.state
        self.state = event.data["to"]
        self.error = event.data.get("error")

    def on_run_warning(self, event: Event) -> None:
        warning = (event.data["code"], event.data["message"])
        self.warnings += [] if warning in self.warnings else [warning]

    def on_turn_started(self, event: Event) -> None:
        self.attempt_number = event.data["attempt_number"]

    def on_usage(self, event: Event) -> None:
        used = msgspec.convert({name: event.data[name] for name in Usage.__slots__ if name in event.data}, Usage)
        self._used = self._used + used if self._used else used
        self.usage = {name: getattr(self._used, name) for name in Usage.__slots__}

    def on_interaction_asked(self, event: Event) -> None:
        facts = {"asked_at": event.at, "outcome": "pending", "response": None, "answered_by": None, "answered_at": None}
        facts["answered_with"] = None
        self.interactions[event.data["interaction_id"]] = {"questions": [], **event.data, **facts}

    def on_interaction_closed(self, event: Event) -> None:
        self.interactions[event.data["interaction_id"]] |= {**event.data, "answered_at": event.at}


def told(run: Run) -> dict[str, Any]:
    error = run.error
    return {
        "state": run.state,
        "attempt_number": run.attempt_number,
        "warnings": [(warning.code, warning.message) for warning in run.warnings],
        "error": None if error is None else {name: getattr(error, name) for name in error.__slots__},
        "usage": {} if run.usage is None else {name: getattr(run.usage, name) for name in run.usage.__slots__},
    }


@pytest.mark.contract("A-2")
@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.__name__)
def test_the_whole_run_can_be_replayed_from_its_events(open_store: OpenStore, life: Any) -> None:
    async def main() -> None:
        async with open_store() as store:
            run = await store.get(await life(store))
            events = await store.events(run.id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            replayed = Replayer(events)
            assert {name: getattr(replayed, name) for name in told(run)} == told(run)
            kept = [
                {name: getattr(interaction, name) for name in interaction.__slots__}
                for interaction in await store.interactions(run.id)
            ]
            for interaction in kept:
                interaction["options"] = list(interaction["options"])
                interaction["questions"] = list(interaction["questions"])
                who = interaction["answered_with"]
                interaction["answered_with"] = who and {"name": who.name, "via": who.via}
            assert list(replayed.interactions.values()) == kept

    asyncio.run(main())
