"""A run's life as the contract tells it, as plainly as can be. Shares nothing with the code that it is held against."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from askback.core.runs import Run

OPEN = ("queued", "running", "waiting_user")
TO_BE_SEEN = "to be seen"
"""The id of a question that was just asked: the store says which it is."""


@dataclass(kw_only=True)
class Model:
    """What the contract says a run is. A method is a signal: True when it was taken and changed something, False when
    it was in order and changed nothing, None when it was refused.
    """

    id: str
    owner: str
    auto: bool
    sticky: bool
    require_reply: bool
    max_attempt: int | None
    repair_attempts: int
    rebuild: bool
    state: str = "queued"
    attempt: int = 1
    next_attempt: int = 1
    first_turn: bool = True
    epoch: int = 0
    version: int = 1
    restarts: int = 0
    repairs: int = 0
    rebuilds: int = 0
    session: str | None = None
    session_turn: int = 0
    canceling: bool = False
    deadline: datetime | None = None
    announced: str | None = None
    pending: str | None = None
    error: str | None = None
    outcomes: list[tuple[str, Any, str | None]] = field(default_factory=list)
    tokens: int = 0
    kept: str | None = None
    events: Counter[str] = field(default_factory=Counter)

    @property
    def stays(self) -> bool:
        """It keeps its process; a run that never asks has no need to."""
        return self.sticky and not self.auto

    def facts(self) -> dict[str, Any]:
        names = ("state", "owner", "attempt", "epoch", "version", "restarts", "repairs", "rebuilds", "session")
        facts = {
            name: getattr(self, name)
            for name in (*names, "canceling", "pending", "deadline", "error", "tokens", "kept")
        }
        return {**facts, "next attempt": self.next_attempt}

    # Turns.

    def start(self) -> bool | None:
        if self.state != "queued":
            return None
        self.epoch += 1
        self.attempt = self.next_attempt
        self.events["turn.started"] += 1
        return self.become("running")

    def holds(self, epoch: int) -> bool:
        return self.state == "running" and self.epoch == epoch

    def name_session(self, epoch: int, session: str) -> bool | None:
        if not self.holds(epoch) or self.session not in (None, session):
            return None
        known = self.session == session
        if not known:
            self.session, self.session_turn = session, self.attempt
        return not known

    def end_turn(self, epoch: int, kind: str, tokens: int, *, alive: bool = False) -> bool | None:
        if not self.holds(epoch):
            return None
        self.restarts = 0
        self.kept = None
        self.tokens += tokens
        self.events["usage"] += 1
        if self.canceling:
            return True if self.stays or alive else self.become("canceled")
        if kind == "error":
            return self.fail("ENGINE_CRASHED")
        if kind == "lost":
            return self.lose_session()
        if kind == "wrong" or (kind == "ask" and self.auto):
            return self.repair()
        if kind == "ask":
            return self.wait()
        if kind == "soft" and not self.auto:
            self.events["run.warning"] += 1
        return self.become("succeeded")

    def at_the_last_attempt(self) -> bool:
        return self.max_attempt is not None and self.attempt >= self.max_attempt

    def can_go_on(self) -> bool:
        return self.stays or self.session is not None

    def repair(self) -> bool:
        if self.repairs >= self.repair_attempts or self.at_the_last_attempt() or not self.can_go_on():
            return self.fail("OUTPUT_SCHEMA_INVALID")
        self.repairs += 1
        self.attempt = self.next_attempt = self.attempt + 1
        self.first_turn = False
        self.events["turn.started"] += 1
        return True

    def resumes(self) -> bool:
        return self.session is not None and self.session_turn < self.attempt and not self.stays

    def lose_session(self) -> bool:
        """Only a turn that resumes can find its session gone, and only once after each wait is it told all again."""
        if not self.rebuild or not self.resumes() or self.rebuilds or self.at_the_last_attempt():
            return self.fail("SESSION_RESUME_FAILED")
        self.rebuilds += 1
        self.session, self.session_turn = None, 0
        self.attempt = self.next_attempt = self.attempt + 1
        self.events["run.warning"] += 1
        self.events["turn.started"] += 1
        return True

    def lose_turn(self, epoch: int, counted: bool) -> bool | None:
        if not self.holds(epoch):
            return None
        self.restarts += counted
        if self.session_turn == self.attempt:
            self.session, self.session_turn = None, 0
        if self.canceling:
            return self.become("canceled")
        if self.stays and not self.first_turn:
            return self.fail("INTERACTION_PROCESS_LOST")
        if self.restarts > 3:
            return self.fail("ORCHESTRATOR_RESTART_INTERRUPTED")
        return self.become("queued")

    # Waiting.

    def wait(self) -> bool:
        if self.at_the_last_attempt():
            return self.fail("INTERACTIVE_MAX_ATTEMPT_EXCEEDED")
        if not self.can_go_on():
            return self.fail("SESSION_RESUME_FAILED")
        self.repairs = self.rebuilds = 0
        self.pending = TO_BE_SEEN
        self.events["interaction.asked"] += 1
        return self.become("waiting_user")

    def waits_for(self, interaction_id: str) -> bool:
        return self.state == "waiting_user" and not self.canceling and self.pending == interaction_id

    def reply(self, interaction_id: str, response: str | None, owner: str) -> bool | None:
        if not self.waits_for(interaction_id):
            return None
        self.owner = owner
        return self.proceed("answered", response, "user")

    def announce_deadline(self, interaction_id: str, now: datetime) -> bool | None:
        if not self.waits_for(interaction_id):
            return None
        if self.deadline is None or now >= self.deadline or self.announced == interaction_id:
            return False
        self.announced = interaction_id
        self.events["interaction.expiring"] += 1
        return True

    def pass_deadline(self, interaction_id: str, now: datetime, default: str) -> bool | None:
        if not self.waits_for(interaction_id):
            return None
        if self.deadline is None or now < self.deadline:
            return False
        if not self.require_reply:
            return self.proceed("auto_decided", default, "auto_decide")
        self.close("expired")
        self.error, self.deadline = "INTERACTION_WAIT_TIMEOUT", None
        return True

    def proceed(self, outcome: str, response: str | None, who: str) -> bool:
        self.close(outcome, response, who)
        self.next_attempt = self.attempt + 1
        self.first_turn = False
        if not self.stays:
            return self.become("queued")
        self.attempt = self.next_attempt
        self.events["turn.started"] += 1
        return self.become("running")

    def lose_process(self, epoch: int) -> bool | None:
        if self.state != "waiting_user" or not self.stays or self.epoch != epoch:
            return None
        if self.canceling or self.error is not None:
            return self.end_held()
        return self.fail("INTERACTION_PROCESS_LOST", "abandoned")

    # Canceling and keeping.

    def ask_to_cancel(self) -> bool | None:
        if self.state not in OPEN:
            return None
        if self.canceling:
            return False
        self.canceling = True
        held = self.state == "running" or (self.state == "waiting_user" and self.stays)
        return True if held else self.cancel_now()

    def tree_gone(self, epoch: int) -> bool | None:
        if self.state not in ("running", "waiting_user") or self.epoch != epoch:
            return None
        return self.end_held() if self.canceling or self.error is not None else None

    def end_held(self) -> bool:
        return self.cancel_now() if self.canceling else self.fail(str(self.error))

    def keep_files(self, epoch: int, kept: str) -> bool | None:
        if self.state not in ("queued", "waiting_user") or (self.state == "waiting_user" and self.stays):
            return None
        if self.epoch != epoch:
            return None
        if self.kept is not None:
            return False
        self.kept = kept
        return True

    def adopt(self, owner: str, left_by: str) -> bool | None:
        if self.state not in OPEN:
            return None
        if owner == self.owner:
            return False
        if left_by != self.owner:
            return None
        self.owner = owner
        return True

    # What the above have in common.

    def become(self, state: str) -> bool:
        self.state = state
        self.events["run.state"] += 1
        if state != "waiting_user":
            self.deadline = None
        return True

    def close(self, outcome: str, response: Any = None, who: str | None = None) -> None:
        if self.pending is not None:
            self.events["interaction.closed"] += 1
            self.outcomes[-1] = (outcome, response, who)
        self.pending = None

    def cancel_now(self) -> bool:
        self.close("canceled")
        self.error = None
        return self.become("canceled")

    def fail(self, code: str, outcome: str = "none") -> bool:
        self.close(outcome)
        self.error = code
        return self.become("failed")


def facts_of(run: Run) -> dict[str, Any]:
    return {
        "state": run.state,
        "owner": run.owner,
        "attempt": run.attempt_number,
        "next attempt": run.next_turn.attempt_number,
        "epoch": run.epoch,
        "version": run.version,
        "restarts": run.restarts,
        "repairs": run.repairs,
        "rebuilds": run.rebuilds,
        "session": None if run.handle is None else run.handle.handle_value,
        "canceling": run.cancel_requested,
        "pending": None if run.pending_interaction is None else run.pending_interaction.interaction_id,
        "deadline": run.wait_deadline_at,
        "error": None if run.error is None else run.error.code,
        "tokens": 0 if run.usage is None else run.usage.total_tokens,
        "kept": run.kept,
    }
