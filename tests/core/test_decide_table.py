"""Every state x every signal x profile x mode x cancel asked or not x epoch, against the table that the contract gives.

The table is read from the top; the first row that fits is the expected answer:

    -> STATE        the run moves to that state (with the error code, where it fails)
    repairs         the run stays `running` and begins a repair turn
    rebuilds        the run stays `running` and begins a turn in a new session
    noted           the run is changed and keeps its state
    stays           the signal is in order and changes nothing
    refused CODE    nothing changes, and the sender gets the code
    never           no run gets there; tests/core/test_reachable_runs.py proves that
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple, get_args

import pytest

from askback.core.actors import Actor, Channel
from askback.core.approvals import Answered, RunPermissions
from askback.core.errors import ErrorCode, Limit, LimitKind, RunError
from askback.core.lifecycle import Decision, Refusal, Stay, decide
from askback.core.outcomes import TurnError
from askback.core.permissions import Ruling
from askback.core.runs import (
    Mode,
    OnLimit,
    OnLostSession,
    Parking,
    ProfileKind,
    Run,
    RunOptions,
    RunState,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import (
    Adopted,
    CallDecided,
    CancelRequested,
    DeadlineNear,
    DeadlinePassed,
    FilesStored,
    HandleNamed,
    LimitKnown,
    ParkEnded,
    ProcessLost,
    ProcessStarted,
    ProcessTreeEnded,
    Replied,
    Signal,
    SlotAcquired,
    TurnEnded,
    TurnLost,
)
from support.specimens import (
    ASKING,
    BROKEN,
    CREATED,
    DONE,
    EPOCH,
    HANDLE,
    LOST,
    NOW,
    OTHER_HANDLE,
    OWNER,
    PROCESS,
    SOFT,
    WRONG,
    event_types,
    final_run,
    queued_run,
    running_run,
    waiting_run,
)

TABLE = """
# signal            state         profile    mode         cancel  epoch    answer

# Only a run that waits with its process can be waiting for its end.
  expired-reply     final         *          *            *       *        never
  expired-deadline  final         *          *            *       *        never
  expired-gone      final         *          *            *       *        never
  expired-lost      final         *          *            *       *        never
  expired-cancel    final         *          *            *       *        never

# Final states refuse everything.
  cancel            final         *          *            *       *        refused RUN_FINAL
  adopt             final         *          *            *       *        refused RUN_FINAL
  adopt-again       final         *          *            *       *        refused RUN_FINAL
  adopt-late        final         *          *            *       *        refused RUN_FINAL
  keep              final         *          *            *       *        refused STATE_UNSUITABLE
  keep-again        final         *          *            *       *        refused STATE_UNSUITABLE
  reply             final         *          *            *       *        refused INTERACTION_NOT_PENDING
  reply-other       final         *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-required final         *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-auto     final         *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-early    final         *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-other    final         *          *            *       *        refused INTERACTION_NOT_PENDING
  near              final         *          *            *       *        refused INTERACTION_NOT_PENDING
  near-again        final         *          *            *       *        refused INTERACTION_NOT_PENDING
  near-late         final         *          *            *       *        refused INTERACTION_NOT_PENDING
  near-other        final         *          *            *       *        refused INTERACTION_NOT_PENDING
  slot              final         *          *            *       *        refused STATE_UNSUITABLE
  slot-parked       final         *          *            *       *        refused STATE_UNSUITABLE
  limit-known       final         *          *            *       *        refused STATE_UNSUITABLE
  limit-unwanted    final         *          *            *       *        refused STATE_UNSUITABLE
  park-over         final         *          *            *       *        refused STATE_UNSUITABLE
  park-early        final         *          *            *       *        refused STATE_UNSUITABLE
  park-resumed      final         *          *            *       *        refused STATE_UNSUITABLE
  *                 final         *          *            *       *        refused RUN_STALE

# A run without a process is canceled at once, and no auto run ever waits (B-2, C-7).
  *                 queued        *          *            asked   *        never
  *                 waiting_user  resumable  *            asked   *        never
  *                 waiting_user  *          auto         *       *        never

# queued -> running: a slot was acquired.
  slot              queued        *          *            *       *        -> running
  slot              *             *          *            *       *        refused STATE_UNSUITABLE

# What the worker that holds the run has seen (H-12, H-11).
  process           running       *          *            *       current  noted
  process           *             *          *            *       *        refused RUN_STALE
  handle            running       *          *            *       current  noted
  handle-again      running       *          *            *       current  stays
  handle-other      running       *          *            *       current  refused STATE_UNSUITABLE
  handle            *             *          *            *       *        refused RUN_STALE
  call              running       *          *            *       current  noted
  call-used-up      running       *          *            *       current  refused STATE_UNSUITABLE
  call              *             *          *            *       *        refused RUN_STALE
  call-used-up      *             *          *            *       *        refused RUN_STALE
  handle-again      *             *          *            *       *        refused RUN_STALE
  handle-other      *             *          *            *       *        refused RUN_STALE

# The end of a turn. Canceled only once nothing lives: a sticky run's process lives on after its turn, and so does a warm one (B-2).
  ends-asking-alive running       *          *            asked   current  noted
  ends-asking-alive running       *          interactive  no      current  -> waiting_user
  ends-asking-alive running       *          auto         no      current  repairs
  ends-asking-alive *             *          *            *       *        refused RUN_STALE
  ends-done         running       resumable  *            asked   current  -> canceled
  ends-soft         running       resumable  *            asked   current  -> canceled
  ends-wrong        running       resumable  *            asked   current  -> canceled
  ends-asking       running       resumable  *            asked   current  -> canceled
  ends-broken       running       resumable  *            asked   current  -> canceled
  ends-lost         running       resumable  *            asked   current  -> canceled
  ends-lost-rebuild running       resumable  *            asked   current  -> canceled
  ends-done         running       sticky     *            asked   current  noted
  ends-soft         running       sticky     *            asked   current  noted
  ends-wrong        running       sticky     *            asked   current  noted
  ends-asking       running       sticky     *            asked   current  noted
  ends-broken       running       sticky     *            asked   current  noted
  ends-lost         running       sticky     *            asked   current  noted
  ends-lost-rebuild running       sticky     *            asked   current  noted
  ends-done         running       *          *            no      current  -> succeeded
  ends-soft         running       *          *            no      current  -> succeeded
  ends-wrong        running       *          *            no      current  repairs
  ends-asking       running       *          interactive  no      current  -> waiting_user
  ends-asking       running       *          auto         no      current  repairs
  ends-broken       running       *          *            no      current  -> failed ENGINE_CRASHED
  ends-lost         running       *          *            no      current  -> failed SESSION_RESUME_FAILED
  ends-lost-rebuild running       resumable  *            no      current  rebuilds
  ends-lost-rebuild running       sticky     auto         no      current  rebuilds
  ends-lost-rebuild running       sticky     interactive  no      current  -> failed SESSION_RESUME_FAILED
  ends-done         *             *          *            *       *        refused RUN_STALE
  ends-soft         *             *          *            *       *        refused RUN_STALE
  ends-wrong        *             *          *            *       *        refused RUN_STALE
  ends-asking       *             *          *            *       *        refused RUN_STALE
  ends-broken       *             *          *            *       *        refused RUN_STALE
  ends-lost         *             *          *            *       *        refused RUN_STALE
  ends-lost-rebuild *             *          *            *       *        refused RUN_STALE

# A limit of the provider (U-4). No run is parked with a process that it needs.
  ends-limited      running       resumable  *            asked   current  -> canceled
  ends-limited      running       sticky     *            asked   current  noted
  ends-limited      running       *          *            no      current  -> queued
  ends-limited      *             *          *            *       *        refused RUN_STALE
  limit-known       queued        *          *            *       *        noted
  limit-known       *             *          *            *       *        refused STATE_UNSUITABLE
  limit-unwanted    queued        *          *            *       *        stays
  limit-unwanted    *             *          *            *       *        refused STATE_UNSUITABLE
  slot-parked       *             *          *            *       *        refused STATE_UNSUITABLE
  park-over         queued        *          *            *       *        noted
  park-over         *             *          *            *       *        refused STATE_UNSUITABLE
  park-early        queued        *          *            *       *        stays
  park-early        *             *          *            *       *        refused STATE_UNSUITABLE
  park-resumed      queued        *          *            *       *        noted
  park-resumed      *             *          *            *       *        refused STATE_UNSUITABLE

# The end of a wait (H-6, W-6 to W-10, W-13).
  reply             waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  reply             waiting_user  resumable  *            *       *        -> queued
  reply             waiting_user  sticky     *            *       *        -> running
  reply             *             *          *            *       *        refused INTERACTION_NOT_PENDING
  reply-other       *             *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-required waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  deadline-required waiting_user  resumable  *            *       *        stays
  deadline-required waiting_user  sticky     *            *       *        noted
  deadline-required *             *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-auto     waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  deadline-auto     waiting_user  resumable  *            *       *        -> queued
  deadline-auto     waiting_user  sticky     *            *       *        -> running
  deadline-auto     *             *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-early    waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  deadline-early    waiting_user  *          *            *       *        stays
  deadline-early    *             *          *            *       *        refused INTERACTION_NOT_PENDING
  deadline-other    *             *          *            *       *        refused INTERACTION_NOT_PENDING

# A deadline is announced once, before it passes (N-4).
  near              waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  near              waiting_user  *          *            *       *        noted
  near              *             *          *            *       *        refused INTERACTION_NOT_PENDING
  near-again        waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  near-again        waiting_user  *          *            *       *        stays
  near-again        *             *          *            *       *        refused INTERACTION_NOT_PENDING
  near-late         waiting_user  *          *            asked   *        refused INTERACTION_NOT_PENDING
  near-late         waiting_user  *          *            *       *        stays
  near-late         *             *          *            *       *        refused INTERACTION_NOT_PENDING
  near-other        *             *          *            *       *        refused INTERACTION_NOT_PENDING

# Cancel (B-2).
  cancel            queued        *          *            no      *        -> canceled
  cancel            running       *          *            no      *        noted
  cancel            waiting_user  resumable  *            no      *        -> canceled
  cancel            waiting_user  sticky     *            no      *        noted
  cancel            *             *          *            asked   *        stays
  gone              running       *          *            asked   current  -> canceled
  gone              waiting_user  sticky     *            asked   current  -> canceled
  gone              *             *          *            *       *        refused RUN_STALE

# A sticky run whose deadline has passed takes no answer, and fails once nothing of its process lives (W-7, B-3).
  expired-reply     waiting_user  sticky     *            *       *        refused INTERACTION_NOT_PENDING
  expired-deadline  waiting_user  sticky     *            *       *        refused INTERACTION_NOT_PENDING
  expired-reply     *             *          *            *       *        never
  expired-deadline  *             *          *            *       *        never
  expired-gone      waiting_user  sticky     *            asked   current  -> canceled
  expired-gone      waiting_user  sticky     *            no      current  -> failed INTERACTION_WAIT_TIMEOUT
  expired-lost      waiting_user  sticky     *            asked   current  -> canceled
  expired-lost      waiting_user  sticky     *            no      current  -> failed INTERACTION_WAIT_TIMEOUT
  expired-cancel    waiting_user  sticky     *            no      *        noted
  expired-cancel    waiting_user  sticky     *            asked   *        stays
  expired-gone      *             *          *            *       *        never
  expired-lost      *             *          *            *       *        never
  expired-cancel    *             *          *            *       *        never

# A turn or a process that was lost (B-1, W-11).
  lost              running       *          *            asked   current  -> canceled
  lost-planned      running       *          *            asked   current  -> canceled
  lost-later        running       *          *            asked   current  -> canceled
  lost              running       *          *            no      current  -> queued
  lost-planned      running       *          *            no      current  -> queued
  lost-later        running       resumable  *            no      current  -> queued
  lost-later        running       sticky     *            no      current  -> failed INTERACTION_PROCESS_LOST
  lost              *             *          *            *       *        refused RUN_STALE
  lost-planned      *             *          *            *       *        refused RUN_STALE
  lost-later        *             *          *            *       *        refused RUN_STALE
  process-lost      waiting_user  sticky     *            asked   current  -> canceled
  process-lost      waiting_user  sticky     *            no      current  -> failed INTERACTION_PROCESS_LOST
  process-lost      *             *          *            *       *        refused RUN_STALE

# Files that were on one machine are stored.
  keep              running       *          *            *       *        refused STATE_UNSUITABLE
  keep-again        running       *          *            *       *        refused STATE_UNSUITABLE
  keep              waiting_user  sticky     *            *       *        refused STATE_UNSUITABLE
  keep-again        waiting_user  sticky     *            *       *        refused STATE_UNSUITABLE
  keep              *             *          *            *       stale    refused RUN_STALE
  keep-again        *             *          *            *       stale    refused RUN_STALE
  keep              *             *          *            *       *        noted
  keep-again        *             *          *            *       *        stays

# Another program takes over.
  adopt             *             *          *            *       *        noted
  adopt-again       *             *          *            *       *        stays
  adopt-late        *             *          *            *       *        refused RUN_HELD
"""

TRANSITIONS = {
    ("queued", "running"),
    ("running", "waiting_user"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "canceled"),
    ("waiting_user", "queued"),
    ("waiting_user", "running"),
    ("waiting_user", "failed"),
    ("running", "queued"),
    ("queued", "canceled"),
    ("waiting_user", "canceled"),
}
"""The contract's table of state changes."""


class Row(NamedTuple):
    signal: str
    state: str
    profile: str
    mode: str
    cancel: str
    epoch: str
    answer: str

    def fits(self, case: tuple[str, ...]) -> bool:
        return all(
            cell in ("*", value) or (cell == "final" and final(value)) for cell, value in zip(self, case, strict=False)
        )


def final(state: str) -> bool:
    return state in ("succeeded", "failed", "canceled")


def rows() -> list[Row]:
    lines = [line for line in TABLE.splitlines() if line.strip() and not line.startswith("#")]
    return [Row(*line.split(maxsplit=6)) for line in lines]


ROWS = rows()


def expected(case: tuple[str, ...]) -> str:
    fitting = [row for row in ROWS if row.fits(case)]
    assert fitting, f"the table has no row for {case}"
    return fitting[0].answer


# The signals of the table, each made to measure for a run.

Maker = Callable[[Run, int], tuple[Run, Signal]]


def reply_required(run: Run, required: bool) -> Run:
    if run.state is not RunState.WAITING_USER:
        return run
    options = RunOptions(session_timeout_sec=1200, interactive_require_user_reply=required)
    fresh = waiting_run(profile=run.profile.kind, mode=run.mode, options=options)
    return fresh.evolve(cancel_requested_at=run.cancel_requested_at)


def ahead(run: Run) -> Run:
    """If it waits: with a deadline that has not passed."""
    waits = run.state is RunState.WAITING_USER
    return run.evolve(wait_deadline_at=NOW + timedelta(seconds=1)) if waits else run


def expired(run: Run) -> Run:
    """As its deadline leaves it."""
    decision = decide(run.evolve(cancel_requested_at=None), DeadlinePassed(interaction_id="colour", at=NOW))
    assert isinstance(decision, Decision)
    return decision.run.evolve(cancel_requested_at=run.cancel_requested_at)


def in_later_turn(run: Run) -> Run:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="colour")
    return run.evolve(attempt_number=2, next_turn=order)


def rebuilding(run: Run) -> Run:
    """One in a later turn that allows a new session."""
    options = replace(run.options, on_lost_session=OnLostSession.REBUILD)
    return in_later_turn(run).evolve(options=options)


def guarded(run: Run) -> Run:
    """With permissions, and an approval that was used up."""
    answered = Answered(interaction_id="colour", digest="d", approved=True, started=True)
    return run.evolve(permissions=RunPermissions(policies=(), answered=answered))


def call_decided(epoch: int, *, uses_approval: bool = False) -> CallDecided:
    return CallDecided(
        epoch=epoch, tool="t", digest="d", decision=Ruling.ALLOW, rule="r", at=NOW, uses_approval=uses_approval
    )


def parking(run: Run) -> Run:
    """In its first turn, with the option to be parked."""
    return run.evolve(options=replace(run.options, on_limit=OnLimit.PARK), next_turn=FIRST)


def parked(run: Run) -> Run:
    until = NOW - timedelta(seconds=60)
    found = Parking(limit=LIMIT, until=until, not_before=NOW, since=CREATED, times=1)
    return parking(run).evolve(parking=found)


FIRST = TurnOrder(kind=TurnKind.START, attempt_number=1)
LIMIT = Limit(kind=LimitKind.USAGE_WINDOW, resets_at=NOW + timedelta(hours=1))
LIMITED = TurnError(error=RunError(code=ErrorCode.ENGINE_RATE_LIMITED, message="no more", limit=LIMIT))

SIGNALS: dict[str, Maker] = {
    "ends-limited": lambda run, epoch: (parking(run), TurnEnded(epoch=epoch, outcome=LIMITED, at=NOW)),
    "limit-known": lambda run, epoch: (parking(run), LimitKnown(limit=LIMIT, until=NOW, at=NOW)),
    "limit-unwanted": lambda run, epoch: (run, LimitKnown(limit=LIMIT, until=NOW, at=NOW)),
    "slot-parked": lambda run, epoch: (parked(run), SlotAcquired(worker="worker", at=NOW)),
    "park-over": lambda run, epoch: (parked(run), ParkEnded(at=NOW)),
    "park-early": lambda run, epoch: (
        parked(run).evolve(parking=replace(parked(run).parking, not_before=NOW + timedelta(seconds=1))),
        ParkEnded(at=NOW),
    ),
    "park-resumed": lambda run, epoch: (
        parked(run).evolve(parking=replace(parked(run).parking, not_before=NOW + timedelta(seconds=1))),
        ParkEnded(at=NOW, by=Actor(name="ann", via=Channel.PAGE)),
    ),
    "slot": lambda run, epoch: (run, SlotAcquired(worker="worker", at=NOW)),
    "process": lambda run, epoch: (run, ProcessStarted(epoch=epoch, process=PROCESS, at=NOW)),
    "handle": lambda run, epoch: (run.evolve(handle=None), HandleNamed(epoch=epoch, handle=HANDLE, at=NOW)),
    "handle-again": lambda run, epoch: (run, HandleNamed(epoch=epoch, handle=HANDLE, at=NOW)),
    "handle-other": lambda run, epoch: (run, HandleNamed(epoch=epoch, handle=OTHER_HANDLE, at=NOW)),
    "call": lambda run, epoch: (guarded(run), call_decided(epoch)),
    "call-used-up": lambda run, epoch: (guarded(run), call_decided(epoch, uses_approval=True)),
    "ends-done": lambda run, epoch: (run, TurnEnded(epoch=epoch, outcome=DONE, at=NOW)),
    "ends-soft": lambda run, epoch: (run, TurnEnded(epoch=epoch, outcome=SOFT, at=NOW)),
    "ends-wrong": lambda run, epoch: (run, TurnEnded(epoch=epoch, outcome=WRONG, at=NOW)),
    "ends-asking": lambda run, epoch: (run, TurnEnded(epoch=epoch, outcome=ASKING, at=NOW)),
    "ends-asking-alive": lambda run, epoch: (
        run,
        TurnEnded(epoch=epoch, outcome=ASKING, at=NOW, process_alive=True),
    ),
    "ends-broken": lambda run, epoch: (run, TurnEnded(epoch=epoch, outcome=BROKEN, at=NOW)),
    "ends-lost": lambda run, epoch: (in_later_turn(run), TurnEnded(epoch=epoch, outcome=LOST, at=NOW)),
    "ends-lost-rebuild": lambda run, epoch: (rebuilding(run), TurnEnded(epoch=epoch, outcome=LOST, at=NOW)),
    "reply": lambda run, epoch: (run, Replied(interaction_id="colour", response="red", owner=OWNER, at=NOW)),
    "reply-other": lambda run, epoch: (run, Replied(interaction_id="size", response="red", owner=OWNER, at=NOW)),
    "deadline-required": lambda run, epoch: (
        reply_required(run, True),
        DeadlinePassed(interaction_id="colour", at=NOW),
    ),
    "deadline-auto": lambda run, epoch: (reply_required(run, False), DeadlinePassed(interaction_id="colour", at=NOW)),
    "deadline-early": lambda run, epoch: (
        reply_required(run, False),
        DeadlinePassed(interaction_id="colour", at=CREATED),
    ),
    "deadline-other": lambda run, epoch: (reply_required(run, False), DeadlinePassed(interaction_id="size", at=NOW)),
    "near": lambda run, epoch: (ahead(run), DeadlineNear(interaction_id="colour", at=NOW)),
    "near-again": lambda run, epoch: (
        ahead(run).evolve(expiring_interaction_id="colour"),
        DeadlineNear(interaction_id="colour", at=NOW),
    ),
    "near-late": lambda run, epoch: (reply_required(run, False), DeadlineNear(interaction_id="colour", at=NOW)),
    "near-other": lambda run, epoch: (ahead(run), DeadlineNear(interaction_id="size", at=NOW)),
    "cancel": lambda run, epoch: (run, CancelRequested(at=NOW)),
    "gone": lambda run, epoch: (run, ProcessTreeEnded(epoch=epoch, at=NOW)),
    "lost": lambda run, epoch: (run, TurnLost(epoch=epoch, at=NOW)),
    "lost-planned": lambda run, epoch: (run, TurnLost(epoch=epoch, at=NOW, counted=False)),
    "lost-later": lambda run, epoch: (in_later_turn(run), TurnLost(epoch=epoch, at=NOW)),
    "process-lost": lambda run, epoch: (run, ProcessLost(epoch=epoch, at=NOW)),
    "expired-reply": lambda run, epoch: (
        expired(run),
        Replied(interaction_id="colour", response="red", owner=OWNER, at=NOW),
    ),
    "expired-deadline": lambda run, epoch: (expired(run), DeadlinePassed(interaction_id="colour", at=NOW)),
    "expired-gone": lambda run, epoch: (expired(run), ProcessTreeEnded(epoch=epoch, at=NOW)),
    "expired-lost": lambda run, epoch: (expired(run), ProcessLost(epoch=epoch, at=NOW)),
    "expired-cancel": lambda run, epoch: (expired(run), CancelRequested(at=NOW)),
    "keep": lambda run, epoch: (run, FilesStored(epoch=epoch, archive_key="new", at=NOW)),
    "keep-again": lambda run, epoch: (run.evolve(kept="old"), FilesStored(epoch=epoch, archive_key="new", at=NOW)),
    "adopt": lambda run, epoch: (run, Adopted(owner="another", left_by=OWNER, at=NOW)),
    "adopt-again": lambda run, epoch: (run, Adopted(owner=OWNER, left_by="another", at=NOW)),
    "adopt-late": lambda run, epoch: (run, Adopted(owner="another", left_by="third", at=NOW)),
}

PROFILES = {"resumable": ProfileKind.RESUMABLE, "sticky": ProfileKind.STICKY_PROCESS}
DIMENSIONS = (PROFILES, ("interactive", "auto"), ("no", "asked"), ("current", "stale"))


def run_of(state: RunState, profile: str, mode: str, cancel: str) -> Run:
    changes = {"profile": PROFILES[profile], "mode": Mode(mode)}
    match state:
        case RunState.QUEUED:
            run = queued_run(**changes, epoch=EPOCH, handle=HANDLE)
        case RunState.RUNNING:
            run = running_run(**changes)
        case RunState.WAITING_USER:
            run = waiting_run(**changes)
        case _:
            run = final_run(state, **changes)
    return run.evolve(cancel_requested_at=CREATED) if cancel == "asked" else run


def cell(run: Run, answer: Decision | Stay | Refusal) -> str:
    """The answer in the words of the table."""
    match answer:
        case Refusal():
            return f"refused {answer.code}"
        case Stay():
            return "stays"
        case Decision() if answer.run.state is not run.state:
            error = f" {answer.run.error.code}" if answer.run.error else ""
            return f"-> {answer.run.state}{error}"
        case Decision():
            began = {TurnKind.REPAIR: "repairs", TurnKind.REBUILD: "rebuilds"}
            return began.get(answer.run.next_turn.kind, "noted")


def check_soundness(run: Run, answer: Decision) -> None:
    """What holds for every decision, whatever it decides."""
    assert answer.run.version == run.version + 1
    assert answer.run.updated_at == NOW
    moves = [event for event in answer.events if event.type == "run.state"]
    if answer.run.state is run.state:
        assert moves == []
    else:
        assert (run.state, answer.run.state) in TRANSITIONS
        assert [(event.data["from"], event.data["to"]) for event in moves] == [(run.state, answer.run.state)]


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("state", RunState)
def test_every_state_answers_every_signal_as_the_table_says(state: RunState, name: str) -> None:
    for case in itertools.product(*DIMENSIONS):
        profile, mode, cancel, epoch = case
        # A run that never asks keeps no process, whatever its engine can do.
        expectation = expected((name, state, profile if mode == "interactive" else "resumable", *case[1:]))
        if expectation == "never":
            continue
        run, signal = SIGNALS[name](run_of(state, profile, mode, cancel), EPOCH if epoch == "current" else EPOCH - 1)
        before = copy.deepcopy(run)
        answer = decide(run, signal)
        assert cell(run, answer) == expectation, case
        assert run == before
        if isinstance(answer, Decision):
            check_soundness(run, answer)


def test_the_table_names_every_signal_there_is() -> None:
    made = {type(maker(waiting_run(profile=ProfileKind.STICKY_PROCESS), EPOCH)[1]) for maker in SIGNALS.values()}
    assert made == set(get_args(Signal))


def test_every_row_of_the_table_decides_something() -> None:
    cases = [(name, state, *case) for name in SIGNALS for state in RunState for case in itertools.product(*DIMENSIONS)]
    first = {next(row for row in ROWS if row.fits(case)) for case in cases}
    assert [row for row in ROWS if row not in first] == []


def test_every_state_change_of_the_contract_is_in_the_table() -> None:
    """Only `waiting_user -> failed` of a resumable run is missing: its reply queues it, and the resumed turn fails."""
    seen = set()
    for name, state in itertools.product(SIGNALS, RunState):
        for case in itertools.product(*DIMENSIONS):
            answer = expected((name, state, *case))
            if answer.startswith("->"):
                seen.add((str(state), answer.split()[1]))
    assert seen == TRANSITIONS


def test_a_refusal_says_the_run_and_its_state() -> None:
    answer = decide(final_run(RunState.SUCCEEDED), CancelRequested(at=NOW))
    assert isinstance(answer, Refusal)
    assert "run-1" in answer.message
    assert "succeeded" in answer.message


def test_noting_something_tells_no_event() -> None:
    answer = decide(running_run(), CancelRequested(at=NOW))
    assert isinstance(answer, Decision)
    assert event_types(answer) == []
