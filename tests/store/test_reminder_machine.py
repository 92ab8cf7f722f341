"""Whatever happens, and in whatever order: a question has as many reminders as were wanted, and none after its end.

Hypothesis asks, answers, cancels, lets time pass, lets attempts fail, restarts the program and changes the settings. The
model knows only which questions are open. `--hypothesis-profile deep` searches for longer.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from lives import DECIDED, NOON, QUESTION, TIMEOUT_SEC, create, name_handle, new_run

from askback.core.errors import Conflict
from askback.core.outcomes import AskUser
from askback.core.runs import SHARED
from askback.core.signals import (
    CancelRequested,
    DeadlineNear,
    DeadlinePassed,
    ProcessLost,
    Replied,
    Signal,
    SlotAcquired,
    TurnEnded,
)
from askback.core.webhooks import Attempt, DeliveryReason, DueDelivery, Reminders, Webhook, WebhookKind
from askback.store.base import Store, move
from support.opened_store import opened_store

POLICIES = [
    Reminders(after_sec=(60.0, 300.0)),
    Reminders(after_sec=(60.0, 120.0, 180.0, 900.0), expiring=False),
    Reminders.repeated((30.0,), repeat_sec=100.0, limit=5),
    None,
]
ANNOUNCED = timedelta(seconds=600)
CLAIM_SEC = 60
KINDS = [{}, {"options": DECIDED}, {"sticky": True}]


@dataclass(slots=True, kw_only=True)
class Asked:
    """A question, in the model."""

    run_id: str
    at: datetime
    deadline: datetime | None
    most: int
    policy: Reminders | None
    is_open: bool = True
    sent: Counter[tuple[DeliveryReason, int]] = field(default_factory=Counter)
    delivered: set[int] = field(default_factory=set)


class Questions(RuleBasedStateMachine):
    """Every example has a store of its own."""

    numbers = itertools.count()

    def __init__(self, runner: asyncio.Runner, folder: Path) -> None:
        super().__init__()
        self.runner = runner
        self.folder = folder / f"{next(self.numbers)}"
        self.folder.mkdir()
        self.now = NOON
        self.policy: Reminders | None = POLICIES[0]
        self.asked: list[Asked] = []
        self.store: Store = self.runner.run(self._opened())

    async def _opened(self) -> Store:
        store = await opened_store(self.folder)
        hook = Webhook(url="https://one.example/hook", kind=WebhookKind.NTFY, reminders=self.policy)
        await store.register_webhooks([hook], self.now)
        return store

    # What happens to questions.

    @rule(kind=st.sampled_from(KINDS))
    def ask(self, kind: dict[str, object]) -> None:
        self.runner.run(self._ask(new_run(f"run-{len(self.asked)}", **kind).id, kind))  # type: ignore[arg-type]

    async def _ask(self, run_id: str, kind: dict[str, object]) -> None:
        made = await create(self.store, new_run(run_id, **kind))  # type: ignore[arg-type]
        started = await move(self.store, made.id, SlotAcquired(worker="worker", at=self.now))
        await name_handle(self.store, started)
        outcome = AskUser(question=QUESTION)
        run = await move(self.store, made.id, TurnEnded(epoch=started.epoch, outcome=outcome, at=self.now))
        count = 0 if self.policy is None else len(self.policy.after_sec)
        deadline = run.wait_deadline_at
        self.asked.append(Asked(run_id=run_id, at=self.now, deadline=deadline, most=count, policy=self.policy))

    @rule(which=st.integers(0, 9), how=st.sampled_from(["reply", "cancel", "lost"]))
    def close(self, which: int, how: str) -> None:
        open_ = [each for each in self.asked if each.is_open]
        if open_:
            self.runner.run(self._close(open_[which % len(open_)], how))

    async def _close(self, question: Asked, how: str) -> None:
        signals: dict[str, Signal] = {
            "reply": Replied(interaction_id="colour", response="red", owner=SHARED, at=self.now),
            "cancel": CancelRequested(at=self.now),
            "lost": ProcessLost(epoch=1, at=self.now),
        }
        try:
            await move(self.store, question.run_id, signals[how])
        except Conflict:
            assert how == "lost", "only a sticky run has a process that can be lost"
        else:
            question.is_open = False

    @rule()
    def watch_deadlines(self) -> None:
        self.runner.run(self._watch_deadlines())

    async def _watch_deadlines(self) -> None:
        for run in await self.store.overdue([SHARED], self.now, 100):
            await move(self.store, run.id, DeadlinePassed(interaction_id="colour", at=self.now))
            self._question(run.id).is_open = False
        for run in await self.store.expiring([SHARED], self.now, ANNOUNCED, 100):
            await move(self.store, run.id, DeadlineNear(interaction_id="colour", at=self.now))
        for question in self.asked:
            events = await self.store.events(question.run_id)
            announced = sum(event.type == "interaction.expiring" for event in events)
            near = question.deadline is not None and self.now >= question.deadline - ANNOUNCED
            assert announced <= 1
            assert announced == 1 or not (near and question.is_open)

    # What happens to the program.

    @rule(seconds=st.sampled_from([1, 29, 60, 61, 150, 300, 601, TIMEOUT_SEC]))
    def time_passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def restart(self) -> None:
        self.runner.run(self._restart())

    async def _restart(self) -> None:
        await self.store.close()
        self.store = await self._opened()

    @rule(policy=st.sampled_from(POLICIES))
    def change_settings(self, policy: Reminders | None) -> None:
        self.policy = policy
        for question in self.asked:
            count = 0 if policy is None else len(policy.after_sec)
            question.most = max(question.most, count)
            if question.policy != policy:
                question.policy = None
        self.restart()

    @rule(outcome=st.sampled_from(["sent", "fails", "killed"]), closed=st.booleans(), limit=st.integers(1, 5))
    def send(self, outcome: str, closed: bool, limit: int) -> None:
        self.runner.run(self._send(outcome, closed=closed, limit=limit))

    async def _send(self, outcome: str, *, closed: bool = False, limit: int = 100) -> None:
        until = self.now + timedelta(seconds=CLAIM_SEC)
        claimed = await self.store.claim_deliveries(self.now, until=until, limit=limit)
        if closed and claimed and (question := self._question(claimed[0].run.id)).is_open:
            await self._close(question, "reply")
        for due in claimed:
            if due.delivery.reason is DeliveryReason.STATE or await self.store.is_due(due.delivery):
                self._came(due)
                await self._note(due, outcome)

    def _came(self, due: DueDelivery) -> None:
        """A message has come to its receiver."""
        delivery = due.delivery
        if delivery.reason is DeliveryReason.STATE:
            return
        question = self._question(delivery.run_id)
        assert question.is_open, "nobody is reminded of a closed question"
        assert question.deadline is None or delivery.at < question.deadline
        assert delivery.at <= self.now
        question.sent[delivery.reason, delivery.place] += 1

    async def _note(self, due: DueDelivery, outcome: str) -> None:
        if outcome == "sent":
            await self.store.record_attempt(due.delivery, Attempt(status=204, delivered_at=self.now))
            if due.delivery.reason is DeliveryReason.REMINDER:
                self._question(due.delivery.run_id).delivered.add(due.delivery.place)
        elif outcome == "fails":
            again = self.now + timedelta(seconds=200)
            await self.store.record_attempt(due.delivery, Attempt(status=500, error="down", next_attempt_at=again))

    # What must be true.

    def _question(self, run_id: str) -> Asked:
        return next(each for each in self.asked if each.run_id == run_id)

    def teardown(self) -> None:
        try:
            self.runner.run(self._send_the_rest())
            self._check()
        finally:
            self.runner.run(self.store.close())

    async def _send_the_rest(self) -> None:
        """From now on every attempt works, and the program is always there."""
        await self._watch_deadlines()
        while (at := await self.store.next_delivery()) is not None:
            self.now = max(self.now, at)
            await self._watch_deadlines()
            await self._send("sent")

    def _check(self) -> None:
        for question in self.asked:
            reminders = {place for reason, place in question.sent if reason is DeliveryReason.REMINDER}
            assert len(reminders) <= question.most
            assert sum(reason is DeliveryReason.EXPIRING for reason, _ in question.sent) <= 1
            if question.is_open and question.policy is not None:
                assert question.delivered, "it was never closed, and its reminders never changed"
                assert max(question.delivered) == self._last(question, question.policy)

    def _last(self, question: Asked, policy: Reminders) -> int:
        """The place of its last reminder."""
        until = None if question.deadline is None else (question.deadline - question.at).total_seconds()
        return sum(until is None or seconds < until for seconds in policy.after_sec)


def search(examples: int) -> settings:
    if settings.get_current_profile_name() == "deep":
        return settings()
    return settings(
        max_examples=examples,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.contract("N-4")
def test_a_question_has_the_reminders_that_were_wanted_and_none_after_its_end(
    tmp_path: Path, database_of_test: str
) -> None:
    # Each example takes a new database.
    examples = 6 if database_of_test == "postgres" else 40
    with asyncio.Runner() as runner:
        run_state_machine_as_test(lambda: Questions(runner, tmp_path), settings=search(examples))  # type: ignore[arg-type]
