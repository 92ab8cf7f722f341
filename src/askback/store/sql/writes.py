"""Writes of more than one step, and what a write of a run changes. The writer opens and ends their transactions.

The rows of a run are encoded in the caller's thread, so that the file is locked only for SQLite's own work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from askback.core.access import AuditEntry
from askback.core.errors import Conflict, Invalid, RefusalCode
from askback.core.interactions import Interaction
from askback.core.lifecycle import Decision
from askback.core.queue import UNLIMITED, Shares
from askback.core.runs import Run, RunRequest, RunState
from askback.core.webhooks import Webhook
from askback.store.pages import EventPage, IdempotencyKey, StaleWrite
from askback.store.sql import outbox, rows, statistics
from askback.store.sql.connection import Connection
from askback.text.json_text import clean

EventRows = tuple[tuple[str, int, str], ...]

_MAX_CARRIED_BYTES = 64_000
_MAX_AUDIT_CHARACTERS = 1000
_MOST_AT_ONCE = 400
"""More transactions than the programs on one database can have open. A token that is further from its limit cannot exceed
it together with others, so its submissions need not wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a write has done to a run. Listeners are notified of it if it has a `changed_id`.

    `run` is the stored run, unless only `events` were added to it, numbered from `first_seq`.
    """

    run: Run | None = None
    changed_id: str | None = None
    before: Run | None = None
    decision: Decision | None = None
    first_seq: int = 0
    events: EventRows = ()

    def event_page(self, committed_at: float | None = None) -> EventPage:
        """The events in decoded form, or an empty page with `more` if they are too large to decode here."""
        size = sum(len(data) for *_, data in self.events)
        if size > _MAX_CARRIED_BYTES or self.changed_id is None:
            return EventPage.of((), more=True)
        numbered = [(seq, *event) for seq, event in enumerate(self.events, self.first_seq)]
        return rows.event_page(self.changed_id, numbered, more=False, committed_at=committed_at)


class CreateRun:
    """A new run, encoded before the transaction begins."""

    def __init__(
        self,
        decision: Decision,
        request: RunRequest,
        key: IdempotencyKey | None,
        webhooks: Sequence[Webhook] = (),
        max_open: int | None = None,
    ) -> None:
        self.decision = decision
        self.run, doc = rows.stored(decision.run)
        self.events = rows.event_rows(decision.events)
        self.columns = rows.run_columns(self.run, doc, len(self.events))
        self.notices = outbox.notices(decision.events)
        self.webhooks = tuple(outbox.webhook_columns(webhook) for webhook in webhooks)
        self.input, self.parameter, self.env = rows.dump(request.input), rows.dump(request.parameter), request.env
        self.asked = _interaction_columns(decision.asked)
        self.closed = _interaction_columns(decision.closed)
        self.key = key and IdempotencyKey(key=clean(key.key), body_digest=clean(key.body_digest))
        self.max_open = max_open

    def write(self, connection: Connection) -> Change:
        if self.key is not None:
            connection.exclude_others(f"idempotency key {self.key.key}")
            if (earlier := _made_by(connection, self.key)) is not None:
                return Change(run=earlier)
        self._refuse_over_quota(connection)
        self._refuse_shared_workdir(connection)
        sql = connection.sql
        made = connection.fetch(sql["insert_run"], self.columns)
        if not made:
            raise Conflict(RefusalCode.STATE_UNSUITABLE, f"run {self.run.id} already exists; use another id")
        number, last_seq = made[0]
        first = _add_events(connection, number, last_seq, self.events)
        labels = [(clean(name), clean(value), number, self.columns["ended"]) for name, value in self.run.labels.items()]
        connection.executemany(sql["insert_label"], labels)
        connection.execute(sql["insert_request"], (number, self.input, self.parameter, self.env))
        if self.asked is not None:
            connection.execute(sql["insert_interaction"], self.asked | {"run": number})
        if self.closed is not None:
            connection.execute(sql["close_interaction"], self.closed | {"run": number})
        update_queue_row(connection, number, None, self.run)
        outbox.add_webhooks(connection, number, self.webhooks)
        outbox.add_deliveries(connection, number, first, self.run, self.columns["doc"], self.notices)
        if self.key is not None:
            key = {"key": self.key.key, "body_digest": self.key.body_digest, "run": number}
            connection.execute(sql["insert_key"], key | {"created_at": self.columns["created_at"]})
        add_audit_entry(connection, self.decision.audit)
        return Change(run=self.run, changed_id=self.run.id, decision=self.decision, first_seq=first, events=self.events)

    def _refuse_over_quota(self, connection: Connection) -> None:
        """Checked in the transaction that creates the run, so that concurrent requests cannot exceed the limit."""
        if self.max_open is None or self._count_open(connection) + _MOST_AT_ONCE < self.max_open:
            return
        connection.exclude_others(f"quota of {self.columns['creator']}")
        count = self._count_open(connection)
        if count >= self.max_open:
            message = f"this token has {count} unfinished runs, which is its limit; wait, or cancel some"
            raise Conflict(RefusalCode.QUOTA_EXCEEDED, message)

    def _count_open(self, connection: Connection) -> int:
        creator = {"creator": self.columns["creator"]}
        return int(connection.value(connection.sql["count_open"], creator))

    def _refuse_shared_workdir(self, connection: Connection) -> None:
        """One run at a time: two would change each other's files, and nobody could tell whose changes are whose."""
        if self.run.workdir is None:
            return
        connection.exclude_others("workdirs")
        wanted = PurePath(self.run.workdir.path)
        for run_id, path in connection.fetch(connection.sql["open_workdirs"]):
            if wanted.is_relative_to(path) or PurePath(path).is_relative_to(wanted):
                message = (
                    f"run {run_id} works in {path} and is not over; wait for it, answer its question, or cancel it"
                )
                raise Conflict(RefusalCode.WORKDIR_IN_USE, message)


class ApplyDecision:
    """What a run becomes, encoded before the transaction begins."""

    def __init__(self, before: Run, decision: Decision, shares: Shares = UNLIMITED) -> None:
        self.before = before
        self.decision = decision
        self.run, doc = rows.stored(decision.run)
        self.events = rows.event_rows(decision.events)
        self.columns = rows.run_columns(self.run, doc, len(self.events)) | {"before": before.version}
        self.notices = outbox.notices(decision.events)
        self.asked = _interaction_columns(decision.asked)
        self.closed = _interaction_columns(decision.closed)
        self.result = rows.dump(decision.result) if self.run.state is RunState.SUCCEEDED else None
        self.shares = shares

    def write(self, connection: Connection) -> Change:
        self._refuse_over_quota(connection)
        sql = connection.sql
        moved = connection.fetch(sql[self._update], self.columns)
        if not moved:
            raise StaleWrite(self.run.id)
        number, last_seq = moved[0]
        first = _add_events(connection, number, last_seq, self.events)
        add_audit_entry(connection, self.decision.audit)
        update_queue_row(connection, number, self.before, self.run)
        if self.before.answerable and not self.run.answerable:
            outbox.stop_reminders(connection, number)
        outbox.add_deliveries(connection, number, first, self.run, self.columns["doc"], self.notices)
        if self.closed is not None and not connection.fetch(sql["close_interaction"], self.closed | {"run": number}):
            raise RuntimeError(f"run {self.run.id} has no open question {self.closed['interaction_id']} to close")
        if self.asked is not None:
            connection.execute(sql["insert_interaction"], self.asked | {"run": number})
        if self.result is not None:
            connection.execute(sql["insert_result"], (number, self.result))
        if self.run.state.final:
            # Secret answers were needed until now, to send them to the engine and to mask them in its output.
            _erase_secrets(connection, number)
            connection.execute(sql["erase_env"], (number,))
            if self.run.labels:
                connection.execute(sql["end_labels"], (self.run.state, number))
        if self.decision.usage is not None:
            statistics.add_usage(connection, number, self.run, self.decision.usage)
        if self.run.state.final and not self.before.state.final:
            statistics.add_finished(connection, self.run)
        return Change(
            run=self.run,
            changed_id=self.run.id,
            before=self.before,
            decision=self.decision,
            first_seq=first,
            events=self.events,
        )

    def _refuse_over_quota(self, connection: Connection) -> None:
        """Checked in the transaction that claims the run, so that workers cannot exceed the limit together."""
        creator, engine = self.run.created_by, self.run.engine
        most, most_of_engine = self.shares.of(creator), self.shares.of_engine(creator, engine)
        if most is None and most_of_engine is None:
            return
        connection.exclude_others(f"slots of {self.columns['creator']}")
        which = {"creator": self.columns["creator"], "engine": self.columns["engine"]}
        ((count, of_engine),) = connection.fetch(connection.sql["count_held"], which)
        if most is not None and count >= most:
            message = f"this token has {count} slots, which is its limit; see the setting quotas.running"
            raise Conflict(RefusalCode.QUOTA_EXCEEDED, message)
        if most_of_engine is not None and of_engine >= most_of_engine:
            message = f"this token has {of_engine} slots of engine '{engine}', which is its limit; see quotas.running"
            raise Conflict(RefusalCode.QUOTA_EXCEEDED, message)

    @property
    def _update(self) -> str:
        """The statement that writes only changed columns: every written column makes SQLite update its indices."""
        if self.run.state.final:
            return "end_run"
        return "update_doc" if _searched(self.before) == _searched(self.run) else "update_run"


def append_events(connection: Connection, run_id: str, epoch: int, events: EventRows) -> Change:
    """Add events to a run that is running under this epoch."""
    fence = {"id": run_id, "epoch": epoch, "added": len(events)}
    added = connection.fetch(connection.sql["add_to_running"], fence)
    if not added:
        raise StaleWrite(run_id)
    number, last_seq = added[0]
    first = _add_events(connection, number, last_seq, events)
    return Change(changed_id=run_id if events else None, first_seq=first, events=events)


def update_queue_row(connection: Connection, number: int, before: Run | None, run: Run) -> None:
    """Have a run in the queue exactly while a worker may take it."""
    if before is None or not before.in_queue:
        if run.in_queue:
            connection.queue.add(number, run)
    elif not run.in_queue:
        connection.queue.remove(number, before, claimed=run.state is RunState.RUNNING)
    elif before.owner != run.owner:
        connection.queue.hand_over(number, run)


def _made_by(connection: Connection, key: IdempotencyKey) -> Run | None:
    found = connection.fetch(connection.sql["find_key"], {"key": key.key})
    if not found:
        return None
    digest, doc = found[0]
    if digest != key.body_digest:
        message = f"the idempotency key {key.key!r} was used for another request; send a new key with a new request"
        raise Invalid(RefusalCode.IDEMPOTENCY_KEY_REUSED, message)
    return rows.load_run(doc)


def _add_events(connection: Connection, number: int, last_seq: int, events: EventRows) -> int:
    """Add events, and return the number of the first."""
    first = last_seq - len(events) + 1
    numbered = [(number, seq, *event) for seq, event in enumerate(events, start=first)]
    connection.executemany(connection.sql["insert_event"], numbered)
    return first


def _interaction_columns(interaction: Interaction | None) -> rows.Columns | None:
    return None if interaction is None else rows.interaction_columns(interaction)


def _erase_secrets(connection: Connection, number: int) -> None:
    """Erase secret answers, and the fields of answers that are secret by a schema."""
    sql = connection.sql
    for asked, doc in connection.fetch(sql["perhaps_secret"], (number,)):
        interaction = rows.load_interaction(doc)
        if interaction.secret_response is not None:
            erased = rows.dump(replace(interaction, response=interaction.shown_response))
            connection.execute(sql["set_interaction"], {"number": asked, "doc": erased})


def _searched(run: Run) -> tuple[object, ...]:
    """The values of a run that have their own columns, except the version."""
    return (
        run.state,
        run.epoch,
        run.owner,
        run.worker,
        run.wait_deadline_at,
        run.not_before,
        run.expiring,
        run.cancel_requested,
        run.pending_interaction,
    )


# Foreign keys: rows of a run are deleted before the run, and deliveries before their webhooks.
_ORDER = (
    "usage",
    "deliveries",
    "webhooks",
    "messages",
    "keys",
    "labels",
    "events",
    "interactions",
    "request",
    "result",
    "run",
)


def forget(connection: Connection, run_ids: Sequence[str], entry: AuditEntry | None) -> Sequence[str]:
    """Delete those of these runs that are finished. `entry` is added to the audit log if there are any."""
    forgotten = tuple(run_id for run_id in run_ids if _forget(connection, run_id))
    add_audit_entry(connection, entry if forgotten else None)
    return forgotten


def _forget(connection: Connection, run_id: str) -> bool:
    found = connection.fetch(connection.sql["number_of_finished"], (run_id,))
    for (number,) in found:
        for what in _ORDER:
            connection.execute(connection.sql[f"forget_{what}"], (number,))
        connection.queue.forget(run_id)
    return bool(found)


def add_audit_entry(connection: Connection, entry: AuditEntry | None) -> None:
    """Add an entry, in the transaction of the write that it is about."""
    if entry is None:
        return
    texts = {
        "actor": entry.actor.name,
        "run_id": entry.run_id,
        "interaction_id": entry.interaction_id,
        "object": entry.object,
        "address": entry.address,
    }
    columns: rows.Columns = {
        name: None if text is None else clean(text)[:_MAX_AUDIT_CHARACTERS] for name, text in texts.items()
    }
    columns |= {"at": rows.micros(entry.at), "via": entry.actor.via, "action": entry.action}
    connection.execute(connection.sql["insert_audit_entry"], columns)


def replace_file_store(connection: Connection, store_id: str | None) -> None:
    connection.execute(connection.sql["forget_file_store"])
    if store_id is not None:
        connection.execute(connection.sql["put_file_store"], {"id": store_id})
