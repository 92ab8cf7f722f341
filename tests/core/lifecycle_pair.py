"""The model of a run's life and the real one, on a real store: both get every signal, and must agree after each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lifecycle_model import OPEN, TO_BE_SEEN, Model, facts_of

from askback.core.errors import Conflict, ErrorCode, RunError
from askback.core.events import EventType, NewEvent
from askback.core.interactions import Question
from askback.core.lifecycle import Decision, create, decide
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import (
    Handle,
    Mode,
    OnLostSession,
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
    DeadlineNear,
    DeadlinePassed,
    FilesStored,
    HandleNamed,
    ProcessLost,
    ProcessStarted,
    ProcessTreeEnded,
    Replied,
    Signal,
    SlotAcquired,
    TurnEnded,
    TurnLost,
)
from askback.store.base import Store, move
from askback.store.pages import StaleWrite

TIMEOUT_SEC = 100
HURRIED = ("running", "waiting_user")
"""Runs that were queued from these states go first, in this order: interrupted turns, then answers."""
OUTCOMES: dict[str, TurnOutcome] = {
    "done": Final(data={"ok": True}, done=True),
    "soft": Final(data={"ok": True}, done=False),
    "wrong": Final(data=1, done=True, problems=("output: 1 is not an object",)),
    "lost": TurnError(error=RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="no such session")),
    "error": TurnError(error=RunError(code=ErrorCode.ENGINE_CRASHED, message="it ended")),
}


class Pair:
    """A few runs, in the model and in the store, with owners that no other pair has."""

    def __init__(self, runner: asyncio.Runner, store: Store, name: str) -> None:
        self.runner = runner
        self.store = store
        self.prefix = name
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.models: dict[str, Model] = {}
        self.rows: dict[str, Run] = {}
        self.old_rows: list[Run] = []
        self.last_seq: dict[str, int] = {}
        self.events_seen: dict[str, Counter[str]] = {}
        self.compared: dict[str, int] = {}
        self.queue: list[str] = []
        self.came_from: dict[str, str] = {}
        """The state in which each run was before it was queued, for those that had one."""
        self.asked: dict[str, datetime] = {}

    def owner(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def open_runs(self) -> list[str]:
        return [model.id for model in self.models.values() if model.state in OPEN]

    # Signals.

    def create(self, owner: str, **facts: Any) -> None:
        model = Model(id=f"{self.prefix}-{len(self.models)}", owner=self.owner(owner), **facts)
        self.models[model.id] = model
        self.events_seen[model.id] = Counter()
        self.last_seq[model.id] = 0
        model.events.update({"run.created": 1, "run.state": 1})
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
        self.end(run, off, "ask", AskUser(question=question), 1, alive=len(self.old_rows) % 2 == 0)
        model, row = self.models[run], self.rows[run]
        if model.pending == TO_BE_SEEN:
            assert row.pending_interaction is not None
            model.pending = row.pending_interaction.interaction_id
            assert row.interaction_ids.count(model.pending) == 1
            if wanted in ("colour", "count") and row.interaction_ids.index(model.pending) == 0:
                assert model.pending == wanted
            model.outcomes.append(("pending", None, None))
            if model.stays or not model.require_reply:
                model.deadline = asked_at + timedelta(seconds=TIMEOUT_SEC)
            self.asked[run] = asked_at
            self.compare(run)

    def reply(self, run: str, right: bool, response: str | None, owner: str) -> None:
        interaction_id = self.interaction_id(run, right)
        signal = Replied(interaction_id=interaction_id, response=response, owner=self.owner(owner), at=self.now)
        self.send(run, signal, lambda model: model.reply(interaction_id, response, signal.owner))

    def pass_deadline(self, run: str, right: bool, wait_sec: int) -> None:
        interaction_id = self.interaction_id(run, right)
        at = self.asked.get(run, self.now) + timedelta(seconds=wait_sec)
        signal = DeadlinePassed(interaction_id=interaction_id, at=at)
        self.send(run, signal, lambda model: model.pass_deadline(interaction_id, at, "default"))

    def announce_deadline(self, run: str, right: bool, wait_sec: int) -> None:
        interaction_id = self.interaction_id(run, right)
        at = self.asked.get(run, self.now) + timedelta(seconds=wait_sec)
        signal = DeadlineNear(interaction_id=interaction_id, at=at)
        self.send(run, signal, lambda model: model.announce_deadline(interaction_id, at))

    def cancel(self, run: str) -> None:
        self.send(run, CancelRequested(at=self.now), Model.ask_to_cancel)

    def tree_gone(self, run: str, off: int) -> None:
        epoch = self.models[run].epoch + off
        self.send(run, ProcessTreeEnded(epoch=epoch, at=self.now), lambda model: model.tree_gone(epoch))

    def lose_turn(self, run: str, off: int, counted: bool) -> None:
        epoch = self.models[run].epoch + off
        signal = TurnLost(epoch=epoch, at=self.now, counted=counted)
        self.send(run, signal, lambda model: model.lose_turn(epoch, counted))

    def lose_process(self, run: str, off: int) -> None:
        epoch = self.models[run].epoch + off
        self.send(run, ProcessLost(epoch=epoch, at=self.now), lambda model: model.lose_process(epoch))

    def keep_files(self, run: str, off: int) -> None:
        signal = FilesStored(epoch=self.models[run].epoch + off, archive_key="archive", at=self.now)
        self.send(run, signal, lambda model: model.keep_files(signal.epoch, signal.archive_key))

    def adopt(self, run: str, owner: str, left_by: str) -> None:
        signal = Adopted(owner=self.owner(owner), left_by=self.owner(left_by), at=self.now)
        self.send(run, signal, lambda model: model.adopt(signal.owner, signal.left_by))
        self.lists_agree()

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
            model.events["assistant.message"] += count
        self.compare(run)

    # Both sides.

    def end(self, run: str, off: int, kind: str, outcome: TurnOutcome, tokens: int, *, alive: bool = False) -> None:
        epoch = self.models[run].epoch + off
        usage = Usage(total_tokens=tokens)
        signal = TurnEnded(epoch=epoch, outcome=outcome, at=self.now, usage=usage, process_alive=alive)
        self.send(run, signal, lambda model: model.end_turn(epoch, kind, tokens, alive=alive))

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
            self.came_from[run] = was

    def interaction_id(self, run: str, right: bool) -> str:
        pending = self.models[run].pending
        return pending if right and pending is not None else "no-such-question"

    def new_run(self, model: Model) -> Run:
        kind = ProfileKind.STICKY_PROCESS if model.sticky else ProfileKind.RESUMABLE
        options = RunOptions(
            interactive_require_user_reply=model.require_reply,
            repair_attempts=model.repair_attempts,
            on_lost_session=OnLostSession.REBUILD if model.rebuild else OnLostSession.FAIL,
        )
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
            owner=model.owner,
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
        if model.version == self.compared.get(model.id):
            return
        self.compared[model.id] = model.version
        interactions = await self.store.interactions(model.id)
        assert [(each.outcome, each.response, each.answered_by) for each in interactions] == model.outcomes
        assert [each.interaction_id for each in interactions] == list(row.interaction_ids)
        assert await self.store.result(model.id) == ({"ok": True} if model.state == "succeeded" else None)

    async def compare_events(self, model: Model) -> None:
        last = self.last_seq[model.id]
        new = await self.store.events(model.id, after=last)
        assert [event.seq for event in new] == list(range(last + 1, last + 1 + len(new)))
        self.last_seq[model.id] += len(new)
        # The contract does not say how the end of a turn is reported, only its start and the state of the run.
        self.events_seen[model.id].update(event.type for event in new if event.type is not EventType.TURN_ENDED)
        assert self.events_seen[model.id] == +model.events
        moves = [event.data for event in new if event.type is EventType.RUN_STATE]
        assert not moves or moves[-1]["to"] == model.state

    def write_from_an_old_copy(self, choice: int) -> None:
        """Whoever decided on a run that has moved since writes nothing."""
        if not self.old_rows:
            return
        old = self.old_rows[choice % len(self.old_rows)]
        answer = decide(old, CancelRequested(at=self.now))
        if isinstance(answer, Decision):
            with pytest.raises(StaleWrite):
                self.runner.run(self.store.apply(old, answer))
        self.compare(old.id)

    def lists_agree(self) -> None:
        self.runner.run(self.compare_lists())

    async def compare_lists(self) -> None:
        for owner in (self.owner("first"), self.owner("second")):
            queued = await self.store.queued([owner], without_engines=[], limit=100)
            lost, answered = ([id_ for id_ in self.queue if self.came_from.get(id_) == was] for was in HURRIED)
            expected = [*lost, *answered, *(id_ for id_ in self.queue if id_ not in self.came_from)]
            assert [run.id for run in queued] == [id_ for id_ in expected if self.models[id_].owner == owner]
        owners = [self.owner("first"), self.owner("second")]
        deadlines = [m.deadline for m in self.models.values() if m.deadline and not m.canceling]
        assert await self.store.next_deadline(owners) == min(deadlines, default=None)
        quiet = [
            m.deadline for m in self.models.values() if m.deadline and not m.canceling and m.announced != m.pending
        ]
        ahead = [deadline for deadline in quiet if deadline > self.now]
        announced = timedelta(seconds=TIMEOUT_SEC - 1)
        assert await self.store.next_expiring(owners, self.now, announced) == min(ahead, default=None)
        assert await self.store.next_expiring(owners, self.now, timedelta(seconds=TIMEOUT_SEC)) is None

    def all_lists_agree(self) -> None:
        self.runner.run(self.compare_all_lists())

    async def compare_all_lists(self) -> None:
        models = self.models.values()
        # A question may be closed before its resident process has ended: nobody can answer it then.
        asking = [m for m in models if m.state == "waiting_user" and m.pending is not None]
        waiting = sorted((self.asked[m.id], m.id) for m in asking)
        pending = (await self.store.pending(limit=1000)).items
        assert [run.id for run in pending if run.id in self.models] == [id_ for _, id_ in waiting]
        held = [m.id for m in models if m.state == "running" or (m.state == "waiting_user" and m.stays)]
        assert sorted(run.id for run in await self.store.held() if run.id in self.models) == sorted(held)
        owners = {owner for owner in await self.store.owners() if owner.startswith(self.prefix + "-")}
        assert owners == {m.owner for m in models if m.state in OPEN}
        for owner in owners:
            kept = [m for m in models if m.state in OPEN and m.owner == owner]
            assert [run.id for run in await self.store.owned_by(owner)] == [m.id for m in kept]
            overdue = await self.store.overdue([owner], self.now, 100)
            assert len(overdue) == sum(bool(m.deadline and m.deadline <= self.now and not m.canceling) for m in kept)
