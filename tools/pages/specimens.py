"""Runs in every state and signals in every relevant circumstance, to call the lifecycle with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from askback.core.errors import ErrorCode, RunError
from askback.core.interactions import Interaction, Question
from askback.core.lifecycle import MAX_RESTARTS, Decision, Refusal, Stay, decide
from askback.core.outcomes import AskUser, Final, TurnError, TurnOutcome
from askback.core.runs import (
    SHARED,
    Handle,
    Mode,
    OnLostSession,
    ProcessIdentity,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
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

EARLY = datetime(2026, 1, 1, tzinfo=UTC)
LATE = EARLY + timedelta(days=1)
EPOCH = 1
HANDLE = Handle(engine="scripted", handle_type="session_id", handle_value="one", created_at_turn=1)
OTHER_HANDLE = Handle(engine="scripted", handle_type="session_id", handle_value="two", created_at_turn=1)
PROCESS = ProcessIdentity(pid=1, start_ticks=1, boot_id="boot")

DONE = Final(data={}, done=True)
SOFT = Final(data={}, done=False)
WRONG = Final(data={}, done=True, problems=("output: wrong",))
ASKS = AskUser(question=Question(interaction_id="q", prompt="?"))
LOST = TurnError(error=RunError(code=ErrorCode.SESSION_RESUME_FAILED, message="lost"))
FAILED = TurnError(error=RunError(code=ErrorCode.ENGINE_CRASHED, message="failed"))


def run_in(state: RunState, *, sticky: bool = False) -> Run:
    """A run in or after its first turn, with everything that its state requires."""
    kind = ProfileKind.STICKY_PROCESS if sticky else ProfileKind.RESUMABLE
    waiting = state is RunState.WAITING_USER
    held = state is RunState.RUNNING or (waiting and sticky)
    question = Interaction(interaction_id="q", kind="text", prompt="?", attempt_number=1, asked_at=EARLY)
    return Run(
        id="run",
        state=state,
        skill=SkillRef(id="skill", version=None, digest=""),
        engine="scripted",
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=kind, reason="", session_timeout_sec=60),
        options=RunOptions(),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=EARLY,
        updated_at=EARLY,
        epoch=EPOCH,
        handle=HANDLE,
        worker="worker" if held else None,
        process=PROCESS if held else None,
        pending_interaction=question if waiting else None,
        interaction_ids=("q",) if waiting else (),
        wait_deadline_at=EARLY if waiting and sticky else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstance:
    """A signal and the circumstances in which it comes. `prepare` changes the run accordingly."""

    when: str
    signal: Signal
    prepare: Callable[[Run], Run] = lambda run: run

    @property
    def name(self) -> str:
        return type(self.signal).__name__

    def ask(self, run: Run) -> Decision | Stay | Refusal:
        return decide(self.prepare(run), self.signal)


def turn_ended(outcome: TurnOutcome) -> TurnEnded:
    return TurnEnded(epoch=EPOCH, outcome=outcome, at=LATE)


def cancel_requested(run: Run) -> Run:
    return run.evolve(cancel_requested_at=EARLY)


def expired(run: Run) -> Run:
    """A sticky run with a required reply after its deadline; any other run unchanged."""
    answer = decide(run, DeadlinePassed(interaction_id="q", at=LATE))
    return answer.run if isinstance(answer, Decision) else run


def _decided(run: Run) -> Run:
    """The user's reply is not required."""
    deadline = EARLY if run.pending_interaction else None
    return run.evolve(options=RunOptions(interactive_require_user_reply=False), wait_deadline_at=deadline)


def _before_deadline(run: Run) -> Run:
    """If it waits: with a deadline that is ahead."""
    return run.evolve(wait_deadline_at=LATE + timedelta(seconds=1)) if run.pending_interaction else run


def _announced(run: Run) -> Run:
    return _before_deadline(run).evolve(expiring_interaction_id="q")


def _in_auto(run: Run) -> Run:
    return run.evolve(mode=Mode.AUTO)


def _repaired(run: Run) -> Run:
    return run.evolve(repairs=run.options.repair_attempts)


def _at_last_turn(run: Run) -> Run:
    return run.evolve(max_attempt=run.attempt_number)


def _without_handle(run: Run) -> Run:
    return run.evolve(handle=None)


def _in_later_turn(run: Run) -> Run:
    order = TurnOrder(kind=TurnKind.REPLY, attempt_number=2, interaction_id="q")
    return run.evolve(attempt_number=2, next_turn=order)


def _often_lost(run: Run) -> Run:
    return run.evolve(restarts=MAX_RESTARTS)


def _rebuilding(run: Run) -> Run:
    return _in_later_turn(run).evolve(options=RunOptions(on_lost_session=OnLostSession.REBUILD))


def circumstances() -> list[Circumstance]:
    """Without a cancel, and with the epoch under which the run is held."""
    reply = Replied(interaction_id="q", response="", owner="", at=LATE)
    other_reply = Replied(interaction_id="another", response="", owner="", at=LATE)
    deadline = DeadlinePassed(interaction_id="q", at=LATE)
    near = DeadlineNear(interaction_id="q", at=LATE)
    lost = TurnLost(epoch=EPOCH, at=LATE)
    first_handle = HandleNamed(epoch=EPOCH, handle=HANDLE, at=LATE)
    other_handle = HandleNamed(epoch=EPOCH, handle=OTHER_HANDLE, at=LATE)
    too_early = DeadlinePassed(interaction_id="q", at=EARLY - timedelta(seconds=1))
    return [
        Circumstance(when="a slot is free", signal=SlotAcquired(worker="worker", at=LATE)),
        Circumstance(
            when="the engine's process was started", signal=ProcessStarted(epoch=EPOCH, process=PROCESS, at=LATE)
        ),
        Circumstance(when="the engine names its session", signal=first_handle, prepare=_without_handle),
        Circumstance(when="it names the same session again", signal=first_handle),
        Circumstance(when="it names another session", signal=other_handle),
        Circumstance(when="marker, and the output passes", signal=turn_ended(DONE)),
        Circumstance(when="no marker, and the output passes", signal=turn_ended(SOFT)),
        Circumstance(when="the output does not pass, a repair is left", signal=turn_ended(WRONG)),
        Circumstance(when="the output does not pass, no repair is left", signal=turn_ended(WRONG), prepare=_repaired),
        Circumstance(when="the engine asks", signal=turn_ended(ASKS)),
        Circumstance(
            when="it asks in `auto` mode, no repair is left",
            signal=turn_ended(ASKS),
            prepare=lambda run: _in_auto(_repaired(run)),
        ),
        Circumstance(when="it asks in turn `max_attempt`", signal=turn_ended(ASKS), prepare=_at_last_turn),
        Circumstance(when="it asks, and named no session", signal=turn_ended(ASKS), prepare=_without_handle),
        Circumstance(when="the turn failed", signal=turn_ended(FAILED)),
        Circumstance(when="the engine has lost the session", signal=turn_ended(LOST), prepare=_in_later_turn),
        Circumstance(when="the same, with `on_lost_session=rebuild`", signal=turn_ended(LOST), prepare=_rebuilding),
        Circumstance(when="the pending question is answered", signal=reply),
        Circumstance(when="another question is answered", signal=other_reply),
        Circumstance(when="a deadline is near", signal=near, prepare=_before_deadline),
        Circumstance(when="it was announced before", signal=near, prepare=_announced),
        Circumstance(when="a reply is required", signal=deadline),
        Circumstance(when="a reply is not required", signal=deadline, prepare=_decided),
        Circumstance(when="it has not passed yet", signal=too_early, prepare=_decided),
        Circumstance(when="the user cancels", signal=CancelRequested(at=LATE)),
        Circumstance(when="the first turn was interrupted", signal=lost),
        Circumstance(when="a later turn was interrupted", signal=lost, prepare=_in_later_turn),
        Circumstance(when=f"a turn was interrupted after {MAX_RESTARTS} restarts", signal=lost, prepare=_often_lost),
        Circumstance(when="a sticky run's process ended", signal=ProcessLost(epoch=EPOCH, at=LATE)),
        Circumstance(
            when="files that only one machine had are stored",
            signal=FilesStored(epoch=EPOCH, archive_key="archive", at=LATE),
        ),
        Circumstance(
            when="the owner has died, and another program takes over",
            signal=Adopted(owner="another", left_by=SHARED, at=LATE),
        ),
        Circumstance(
            when="the same, but a third program has done so already",
            signal=Adopted(owner="another", left_by="dead", at=LATE),
        ),
    ]


def cancel_circumstances() -> list[Circumstance]:
    """After a cancel request, while a process of the run was alive."""
    return [
        Circumstance(
            when="no process is alive", signal=ProcessTreeEnded(epoch=EPOCH, at=LATE), prepare=cancel_requested
        ),
        Circumstance(when="the turn ended in any way", signal=turn_ended(DONE), prepare=cancel_requested),
        Circumstance(when="the turn was interrupted", signal=TurnLost(epoch=EPOCH, at=LATE), prepare=cancel_requested),
        Circumstance(when="the process ended", signal=ProcessLost(epoch=EPOCH, at=LATE), prepare=cancel_requested),
        Circumstance(
            when="the question is answered",
            signal=Replied(interaction_id="q", response="", owner="", at=LATE),
            prepare=cancel_requested,
        ),
        Circumstance(
            when="the deadline passes", signal=DeadlinePassed(interaction_id="q", at=LATE), prepare=cancel_requested
        ),
        Circumstance(when="the user cancels again", signal=CancelRequested(at=LATE), prepare=cancel_requested),
    ]


def expiry_circumstances() -> list[Circumstance]:
    """After the deadline of a sticky run, while its process was alive."""
    return [
        Circumstance(when="no process is alive", signal=ProcessTreeEnded(epoch=EPOCH, at=LATE), prepare=expired),
        Circumstance(when="the process ended", signal=ProcessLost(epoch=EPOCH, at=LATE), prepare=expired),
        Circumstance(
            when="the question is answered",
            signal=Replied(interaction_id="q", response="", owner="", at=LATE),
            prepare=expired,
        ),
        Circumstance(when="the user cancels", signal=CancelRequested(at=LATE), prepare=expired),
    ]
