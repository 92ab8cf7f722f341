"""A plain model of a run's life, written from the contract, and the real lifecycle on a real store: never a difference.

Hypothesis sends both the same signals, also stale, early and mistaken ones, to a few runs at a time.
`pytest tests/core/test_lifecycle_machine.py --hypothesis-profile deep` goes through millions of steps.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lifecycle_model import OPEN, TO_BE_SEEN, Model, facts_of

from askback.core.errors import Conflict, ErrorCode, RunError
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Question
from askback.core.lifecycle import Decision, create, decide
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import (
    Handle,
    Mode,
    ProcessIdentity,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
    Usage,
)
from askback.core.signals import (
    Adopted,
    CancelRequested,
    DeadlinePassed,
    HandleNamed,
    ProcessLost,
    ProcessStarted,
    Replied,
    Signal,
    SlotAcquired,
    TreeGone,
    TurnEnded,
    TurnLost,
)
from askback.store.base import StaleWrite, Store, move
from askback.store.sqlite import SqliteStore

TIMEOUT_SEC = 100


RUNS = 3
STEPS = st.lists(st.tuples(st.integers(0, RUNS), st.integers(0, 99)), min_size=12, max_size=30)
"""Which run, and what happens to it."""
FACTS = {
    "keeper": st.sampled_from(["first", "second"]),
    "auto": st.sampled_from([False, False, True]),
    "sticky": st.booleans(),
    "require_reply": st.booleans(),
    "max_attempt": st.sampled_from([None, None, 2, 4]),
    "repair_attempts": st.integers(0, 2),
}
OUTCOMES: dict[str, TurnOutcome] = {
    "done": Final(data={"ok": True}, done=True),
    "soft": Final(data={"ok": True}, done=False),
    "wrong": Final(data=1, done=True, problems=("output: 1 is not an object",)),
    "error": TurnError(error=RunError(code=ErrorCode.ENGINE_CRASHED, message="it ended")),
}


class Lifecycles(RuleBasedStateMachine):
    """Every example has runs and keepers of its own in the one store that all of them share."""

    numbers = itertools.count()

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        super().__init__()
        self.runner = runner
        self.store = store
        self.prefix = f"example-{next(self.numbers)}"
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.models: dict[str, Model] = {}
        self.rows: dict[str, Run] = {}
        self.old_rows: list[Run] = []
        self.last_seq: dict[str, int] = {}
        self.told: dict[str, Counter[str]] = {}
        self.queue: list[str] = []
        self.asked: dict[str, datetime] = {}

    def keeper(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def open_runs(self) -> list[str]:
        return [model.id for model in self.models.values() if model.state in OPEN]

    # What Hypothesis chooses.

    @initialize(**FACTS)
    def create_first(self, **facts: Any) -> None:
        self.create(**facts)

    @precondition(lambda self: not self.open_runs() or len(self.models) < RUNS)
    @rule(**FACTS)
    def create_another(self, **facts: Any) -> None:
        self.create(**facts)

    @rule(steps=STEPS)
    def send_signals(self, steps: list[tuple[int, int]]) -> None:
        for which, choice in steps:
            open_ = self.open_runs()
            if choice < 80 and open_:
                self.fitting(open_[which % len(open_)], choice)
            else:
                self.any(list(self.models)[-1 - which % len(self.models)], choice)

    def fitting(self, run: str, choice: int) -> None:
        """What is likely to bring the run on: chance alone would seldom bring one far."""
        match self.models[run].state, choice % 10:
            case "queued", _:
                self.start(run)
            case "running", 0 | 1 | 2:
                self.name_session(run, 0, "s-1")
            case "running", 3 | 4 | 5:
                self.ask(run, 0, [None, "colour", "count", "not an id"][choice % 4])
            case "running", 6 | 7:
                self.end_turn(run, 0, "wrong" if choice < 60 else "soft", choice)
            case "running", _:
                self.lose_turn(run, 0, counted=choice < 60)
            case "waiting_user", 0 | 1 | 2 | 3 | 4 | 5 | 6:
                self.reply(run, True, "red" if choice < 40 else None, "first" if choice < 40 else "second")
            case "waiting_user", 7 | 8:
                self.pass_deadline(run, True, TIMEOUT_SEC if choice < 60 else TIMEOUT_SEC - 1)
            case "waiting_user", _:
                self.lose_process(run, 0)

    def any(self, run: str, choice: int) -> None:
        """Whatever may come, at any time, and from a worker that may long have lost the run."""
        off = (0, 0, -1, 1)[choice % 4]
        signals: list[Callable[[], None]] = [
            lambda: self.start(run),
            lambda: self.note_process(run, off),
            lambda: self.name_session(run, off, "s-2"),
            lambda: self.end_turn(run, off, sorted(OUTCOMES)[choice % 4], choice),
            lambda: self.ask(run, off, None),
            lambda: self.reply(run, off == 0, "blue", "first"),
            lambda: self.pass_deadline(run, off == 0, TIMEOUT_SEC),
            lambda: self.cancel(run),
            lambda: self.tree_gone(run, off),
            lambda: self.lose_turn(run, off, counted=True),
            lambda: self.lose_process(run, off),
            lambda: self.adopt(run, "first" if choice % 2 else "second"),
            lambda: self.append(run, off, choice % 3),
        ]
        signals[choice % len(signals)]()

    @precondition(lambda self: self.old_rows)
    @rule(data=st.data())
    def write_from_an_old_copy(self, data: st.DataObject) -> None:
        """Whoever decided on a run that has moved since writes nothing."""
        old = data.draw(st.sampled_from(self.old_rows))
        answer = decide(old, CancelRequested(at=self.now))
        if isinstance(answer, Decision):
            with pytest.raises(StaleWrite):
                self.runner.run(self.store.apply(old, answer))
        self.compare(old.id)

    # Signals.

    def create(self, keeper: str, **facts: Any) -> None:
        model = Model(id=f"{self.prefix}-{len(self.models)}", keeper=self.keeper(keeper), **facts)
        self.models[model.id] = model
        self.told[model.id] = Counter()
        self.last_seq[model.id] = 0
        model.told.update({"run.created": 1, "run.state": 1})
        row = self.runner.run(self.store.create(create(self.new_run(model), {}), RunRequest()))
        self.rows[model.id] = row
        self.queue.append(model.id)
        self.compare(model.id)

    def start(self, run: str) -> None:
        self.send(run, SlotAcquired(worker="worker", at=self.now), Model.start)

    def note_process(self, run: str, off: int) -> None:
        epoch = self.models[run].epoch + off
        process = ProcessIdentity(pid=1, start_ticks=2, boot_id="boot")
        signal = ProcessStarted(epoch=epoch, process=process, at=self.now)
        self.send(run, signal, lambda model: model.holds(epoch) or None)

    def name_session(self, run: str, off: int, session: str) -> None:
        model = self.models[run]
        epoch = model.epoch + off
        handle = Handle(
            engine="scripted", handle_type="session_id", handle_value=session, created_at_turn=model.attempt
        )
        signal = HandleNamed(epoch=epoch, handle=handle, at=self.now)
        self.send(run, signal, lambda model: model.name_session(epoch, session))

    def end_turn(self, run: str, off: int, kind: str, tokens: int) -> None:
        self.end(run, off, kind, OUTCOMES[kind], tokens)

    def ask(self, run: str, off: int, wanted: str | None) -> None:
        question = Question(prompt="?", interaction_id=wanted, default="default")
        asked_at = self.now
        self.end(run, off, "ask", AskUser(question=question), 1)
        model, row = self.models[run], self.rows[run]
        if model.pending == TO_BE_SEEN:
            assert row.pending_interaction is not None
            model.pending = row.pending_interaction.interaction_id
            assert row.interaction_ids.count(model.pending) == 1
            if wanted in ("colour", "count") and row.interaction_ids.index(model.pending) == 0:
                assert model.pending == wanted
            model.outcomes.append(("pending", None, None))
            if model.sticky or not model.require_reply:
                model.deadline = asked_at + timedelta(seconds=TIMEOUT_SEC)
            self.asked[run] = asked_at
            self.compare(run)

    def reply(self, run: str, right: bool, response: str | None, keeper: str) -> None:
        interaction_id = self.interaction_id(run, right)
        signal = Replied(interaction_id=interaction_id, response=response, keeper=self.keeper(keeper), at=self.now)
        self.send(run, signal, lambda model: model.reply(interaction_id, response, signal.keeper))

    def pass_deadline(self, run: str, right: bool, wait_sec: int) -> None:
        interaction_id = self.interaction_id(run, right)
        at = self.asked.get(run, self.now) + timedelta(seconds=wait_sec)
        signal = DeadlinePassed(interaction_id=interaction_id, at=at)
        self.send(run, signal, lambda model: model.pass_deadline(interaction_id, at, "default"))

    def cancel(self, run: str) -> None:
        self.send(run, CancelRequested(at=self.now), Model.ask_to_cancel)

    def tree_gone(self, run: str, off: int) -> None:
        epoch = self.models[run].epoch + off
        self.send(run, TreeGone(epoch=epoch, at=self.now), lambda model: model.tree_gone(epoch))

    def lose_turn(self, run: str, off: int, counted: bool) -> None:
        epoch = self.models[run].epoch + off
        signal = TurnLost(epoch=epoch, at=self.now, counted=counted)
        self.send(run, signal, lambda model: model.lose_turn(epoch, counted))

    def lose_process(self, run: str, off: int) -> None:
        epoch = self.models[run].epoch + off
        self.send(run, ProcessLost(epoch=epoch, at=self.now), lambda model: model.lose_process(epoch))

    def adopt(self, run: str, keeper: str) -> None:
        signal = Adopted(keeper=self.keeper(keeper), at=self.now)
        self.send(run, signal, lambda model: model.adopt(signal.keeper))

    def append(self, run: str, off: int, count: int) -> None:
        model = self.models[run]
        epoch = model.epoch + off
        events = [NewEvent(type=EventType.ASSISTANT_MESSAGE, at=self.now, data={"text": "hm"})] * count
        try:
            self.runner.run(self.store.append(run, epoch, events))
        except StaleWrite:
            assert not model.holds(epoch)
        else:
            assert model.holds(epoch)
            model.told["assistant.message"] += count
        self.compare(run)

    # Both sides.

    def end(self, run: str, off: int, kind: str, outcome: TurnOutcome, tokens: int) -> None:
        epoch = self.models[run].epoch + off
        usage = Usage(total_tokens=tokens)
        signal = TurnEnded(epoch=epoch, outcome=outcome, at=self.now, usage=usage)
        self.send(run, signal, lambda model: model.end_turn(epoch, kind, tokens))

    def send(self, run: str, signal: Signal, step: Callable[[Model], bool | None]) -> None:
        """Give both sides the signal, and hold what they made of it against each other."""
        model, before = self.models[run], self.rows[run]
        was = model.state
        expected = step(model)
        model.version += bool(expected)
        try:
            after = self.runner.run(move(self.store, run, signal, seen=before))
        except Conflict:
            assert expected is None, (signal, model)
            after = before
        else:
            assert expected is not None, (signal, model)
        if after != before:
            self.old_rows.append(before)
        self.rows[run] = after
        self.keep_queue(run, was)
        self.now += timedelta(seconds=1)
        if model.pending != TO_BE_SEEN:
            self.compare(run)

    def keep_queue(self, run: str, was: str) -> None:
        is_ = self.models[run].state
        if was == "queued" and is_ != "queued":
            self.queue.remove(run)
        if was != "queued" and is_ == "queued":
            self.queue.append(run)

    def interaction_id(self, run: str, right: bool) -> str:
        pending = self.models[run].pending
        return pending if right and pending is not None else "no-such-question"

    def new_run(self, model: Model) -> Run:
        kind = ProfileKind.STICKY_PROCESS if model.sticky else ProfileKind.RESUMABLE
        options = RunOptions(interactive_require_user_reply=model.require_reply, repair_attempts=model.repair_attempts)
        return Run(
            id=model.id,
            state=RunState.QUEUED,
            skill=SkillRef(id="skill", version=None, digest="digest"),
            engine="scripted",
            mode=Mode.AUTO if model.auto else Mode.INTERACTIVE,
            profile=Profile(kind=kind, reason="seen", session_timeout_sec=TIMEOUT_SEC),
            options=options,
            next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
            created_at=self.now,
            updated_at=self.now,
            keeper=model.keeper,
            max_attempt=model.max_attempt,
        )

    # What must be equal.

    def compare(self, run: str) -> None:
        self.runner.run(self.compare_run(self.models[run]))

    async def compare_run(self, model: Model) -> None:
        row = await self.store.get(model.id)
        assert row == self.rows[model.id]
        assert facts_of(row) == model.facts()
        await self.compare_events(model)
        interactions = await self.store.interactions(model.id)
        assert [(each.outcome, each.response, each.answered_by) for each in interactions] == model.outcomes
        assert [each.interaction_id for each in interactions] == list(row.interaction_ids)
        assert await self.store.result(model.id) == ({"ok": True} if model.state == "succeeded" else None)

    async def compare_events(self, model: Model) -> None:
        last = self.last_seq[model.id]
        new = await self.store.events(model.id, after=last)
        assert [event.seq for event in new] == list(range(last + 1, last + 1 + len(new)))
        self.last_seq[model.id] += len(new)
        # How a turn's end is told is the journal's; that it began, and what became of the run, is the contract's.
        self.told[model.id].update(event.type for event in new if event.type is not EventType.TURN_ENDED)
        assert self.told[model.id] == +model.told
        moves = [event.data for event in new if event.type is EventType.RUN_STATE]
        assert not moves or moves[-1]["to"] == model.state

    @invariant()
    def lists_agree(self) -> None:
        self.runner.run(self.compare_lists())

    async def compare_lists(self) -> None:
        for keeper in (self.keeper("first"), self.keeper("second")):
            queued = await self.store.queued([keeper], without_engines=[], limit=100)
            assert [run.id for run in queued] == [id_ for id_ in self.queue if self.models[id_].keeper == keeper]
        keepers = [self.keeper("first"), self.keeper("second")]
        deadlines = [m.deadline for m in self.models.values() if m.deadline and not m.canceling]
        assert await self.store.next_deadline(keepers) == min(deadlines, default=None)

    def teardown(self) -> None:
        """Runs of this example must not stand in the lists that the next one reads whole."""
        for run in self.models:
            self.compare(run)
        self.runner.run(self.compare_all_lists())
        for run in self.models:
            self.cancel(run)
            self.tree_gone(run, 0)

    async def compare_all_lists(self) -> None:
        models = self.models.values()
        waiting = sorted((self.asked[m.id], m.id) for m in models if m.state == "waiting_user")
        pending = (await self.store.pending(limit=1000)).items
        assert [run.id for run in pending if run.id in self.models] == [id_ for _, id_ in waiting]
        held = [m.id for m in models if m.state == "running" or (m.state == "waiting_user" and m.sticky)]
        assert sorted(run.id for run in await self.store.held() if run.id in self.models) == sorted(held)
        keepers = {keeper for keeper in await self.store.keepers() if keeper.startswith(self.prefix + "-")}
        assert keepers == {m.keeper for m in models if m.state in OPEN}
        for keeper in keepers:
            kept = [m for m in models if m.state in OPEN and m.keeper == keeper]
            assert [run.id for run in await self.store.kept_by(keeper)] == [m.id for m in kept]
            overdue = await self.store.overdue([keeper], self.now, 100)
            assert len(overdue) == sum(bool(m.deadline and m.deadline <= self.now and not m.canceling) for m in kept)


def search() -> settings:
    """The same examples each time; the deep search also makes a short one of what it finds."""
    if settings.get_current_profile_name() == "deep":
        return settings()
    return settings(
        max_examples=60,
        stateful_step_count=12,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.contract("A-2", "W-13", "B-1", "C-3", "C-6")
def test_model_and_store_never_differ(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(SqliteStore.open(tmp_path / "askback.db"))
        try:
            run_state_machine_as_test(lambda: Lifecycles(runner, store), settings=search())
        finally:
            runner.run(store.close())
