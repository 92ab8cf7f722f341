"""The first decision of a run that starts with a question of another run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from askback.core.interactions import AnsweredBy, Interaction, InteractionOutcome
from askback.core.lifecycle import Decision, decide, fork
from askback.core.runs import RunOptions, RunState, TurnKind
from askback.core.signals import CancelRequested, Replied, SlotAcquired
from support.specimens import queued_run

AT = datetime(2026, 3, 1, tzinfo=UTC)
ANSWERED = Interaction(
    interaction_id="pace",
    kind="text",
    prompt="Which pace?",
    attempt_number=4,
    asked_at=AT - timedelta(days=1),
    outcome=InteractionOutcome.ANSWERED,
    response="relaxed",
    answered_by=AnsweredBy.USER,
    answered_at=AT - timedelta(hours=1),
)


@pytest.mark.contract("J-4")
def test_a_fork_waits_with_the_question_and_without_its_answer() -> None:
    queued = queued_run()
    decision = fork(queued, {}, ANSWERED)
    run = decision.run
    assert (run.state, run.wait_deadline_at, run.interaction_ids) == (RunState.WAITING_USER, None, ("pace",))
    assert (
        decision.asked
        == run.pending_interaction
        == Interaction(
            interaction_id="pace", kind="text", prompt="Which pace?", attempt_number=1, asked_at=queued.created_at
        )
    )
    assert [event.type for event in decision.events] == ["run.created", "interaction.asked", "run.state"]


def test_a_fork_is_answered_and_canceled_like_any_run_that_waits() -> None:
    waiting = fork(queued_run(), {}, ANSWERED).run
    replied = decide(waiting, Replied(interaction_id="pace", response="packed", owner="", at=AT))
    assert isinstance(replied, Decision)
    assert (replied.run.state, replied.run.next_turn.kind) == (RunState.QUEUED, TurnKind.REPLY)
    started = decide(replied.run, SlotAcquired(worker="w", at=AT))
    assert isinstance(started, Decision)
    assert started.run.attempt_number == 2
    canceled = decide(waiting, CancelRequested(at=AT))
    assert isinstance(canceled, Decision)
    assert canceled.run.state is RunState.CANCELED


def test_a_fork_that_needs_no_reply_has_a_deadline() -> None:
    queued = queued_run()
    deciding = replace(queued, options=RunOptions(interactive_require_user_reply=False))
    waits = timedelta(seconds=queued.profile.session_timeout_sec)
    assert fork(deciding, {}, ANSWERED).run.wait_deadline_at == queued.created_at + waits
