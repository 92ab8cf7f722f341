"""Notifications as rows: webhooks, and the outbox of deliveries, which are added in the transaction of their events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from askback.core.events import EventType, NewEvent
from askback.core.runs import SHARED, Run, RunState
from askback.core.webhooks import (
    BusyReceivers,
    Delivery,
    DeliveryReason,
    DueDelivery,
    Reminders,
    Webhook,
    WebhookKind,
)
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.text.json_text import clean

# Webhooks.


def webhook_columns(webhook: Webhook) -> rows.Columns:
    reminders = webhook.reminders
    times = () if reminders is None else reminders.after_sec
    after = [rows.span(timedelta(seconds=seconds)) for seconds in times]
    return {
        "url": clean(webhook.url),
        "host": clean(webhook.host),
        "secret": None if webhook.secret is None else clean(webhook.secret),
        "kind": webhook.kind,
        "states": None if webhook.states is None else f",{','.join(webhook.states)},",
        "labels": json.dumps(webhook.labels, sort_keys=True) if webhook.labels else None,
        "remind_after": json.dumps(after) if after else None,
        "expiring": reminders is not None and reminders.expiring,
    }


def add_webhooks(connection: Connection, run: int | None, webhooks: Sequence[rows.Columns]) -> None:
    for columns in webhooks:
        connection.execute(connection.sql["insert_webhook"], columns | {"run": run})


def register_webhooks(connection: Connection, webhooks: Sequence[rows.Columns], at: datetime | None) -> None:
    """Replace the server's webhooks. A webhook with the same URL, kind and labels as before keeps its deliveries.

    If its reminders have changed, those of open questions are planned again from `at` on.
    """
    # Two servers that start at once must not both add the same webhook.
    connection.exclude_others("webhooks of the server")
    sql = connection.sql
    known = connection.fetch(sql["server_webhooks"])
    existing = {(url, kind, labels): (number, after) for number, url, kind, labels, after in known}
    for columns in webhooks:
        same = (columns["url"], columns["kind"], columns["labels"])
        number, after = existing.pop(same, (None, None))
        if number is None:
            add_webhooks(connection, None, [columns])
            continue
        connection.execute(sql["update_webhook"], columns | {"number": number})
        if after != columns["remind_after"]:
            _plan_again(connection, number, at)
    for number, _ in existing.values():
        connection.execute(sql["retire_webhook"], {"number": number})
        _plan_again(connection, number, None)
        connection.execute(sql["retire_deliveries"], {"number": number})


def _plan_again(connection: Connection, webhook: int, at: datetime | None) -> None:
    """Replace the reminders of a webhook that are not sent yet. Those that would have been due by `at` are left out."""
    for name in ("forget_planned", "stop_planned"):
        connection.execute(connection.sql[name], {"webhook": webhook})
    if at is not None:
        connection.execute(connection.sql["plan_again"], {"webhook": webhook, "at": rows.micros(at)})


# Deliveries.


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event of a write that webhooks are notified of: a change of state, or a near deadline. `place` is its index."""

    place: int
    reason: DeliveryReason
    old: RunState | None
    new: RunState
    at: int


def notices(events: Sequence[NewEvent]) -> tuple[Notice, ...]:
    found = (_notice(place, event) for place, event in enumerate(events))
    return tuple(notice for notice in found if notice is not None)


def _notice(place: int, event: NewEvent) -> Notice | None:
    at = rows.micros(event.at)
    match event.type:
        case EventType.RUN_STATE:
            old, new = event.data["from"], event.data["to"]
            return Notice(place=place, reason=DeliveryReason.STATE, old=old, new=new, at=at)
        case EventType.INTERACTION_EXPIRING:
            waits = RunState.WAITING_USER
            return Notice(place=place, reason=DeliveryReason.EXPIRING, old=waits, new=waits, at=at)
        case EventType.RUN_PARKED:
            return Notice(place=place, reason=DeliveryReason.PARKED, old=RunState.QUEUED, new=RunState.QUEUED, at=at)
        case EventType.RUN_RESUMED:
            return Notice(place=place, reason=DeliveryReason.RESUMED, old=RunState.QUEUED, new=RunState.QUEUED, at=at)
        case _:
            return None


def add_deliveries(
    connection: Connection, number: int, first_seq: int, run: Run, doc: str, found: Sequence[Notice]
) -> None:
    """Add a delivery for each webhook of the run and, if servers own the run, of the server."""
    for notice in found:
        columns = {"run": number, "seq": first_seq + notice.place, "doc": doc, "at": notice.at}
        match notice.reason:
            case DeliveryReason.EXPIRING:
                asked = run.pending_interaction
                columns |= rows.values(asked_at=None if asked is None else asked.asked_at)
                connection.execute(connection.sql["insert_expiring"], columns)
            case _:
                columns |= {
                    "shared": run.owner == SHARED,
                    "reason": notice.reason,
                    "old": notice.old,
                    "new": notice.new,
                }
                connection.execute(connection.sql["insert_deliveries"], columns)
                if notice.new is RunState.WAITING_USER and run.answerable:
                    # Reminders that are due before the deadline.
                    columns |= rows.values(deadline_at=run.wait_deadline_at)
                    connection.execute(connection.sql["insert_reminders"], columns)


def stop_reminders(connection: Connection, number: int) -> None:
    """The question of the run takes no answer any more: nobody is reminded of it."""
    for name in ("forget_reminders", "stop_reminders"):
        connection.execute(connection.sql[name], {"run": number})


def busy_values(busy: BusyReceivers) -> rows.Columns:
    return {
        "hosts": json.dumps(sorted(busy.hosts)),
        "hosts_of_callers": json.dumps(sorted(busy.hosts_of_callers)),
        "callers": json.dumps(sorted(busy.callers)),
        "devices": json.dumps(sorted(busy.devices)),
        "all_callers": busy.all_callers,
    }


def claim_deliveries(
    connection: Connection, at: datetime, until: datetime, limit: int, busy: BusyReceivers
) -> Sequence[DueDelivery]:
    which = busy_values(busy) | rows.values(at=at, until=until, limit=limit)
    numbers = sorted(number for (number,) in connection.fetch(connection.sql["claim_deliveries"], which))
    # Of the reminders of a question that were missed, or could not be sent, only the last one is sent.
    outdated = {"at": rows.micros(at)}
    due = [
        each for each in numbers if not connection.fetch(connection.sql["drop_outdated"], outdated | {"number": each})
    ]
    claimed = [connection.fetch(connection.sql["claimed_delivery"], {"number": number})[0] for number in due]
    return [DueDelivery(delivery=load_delivery(*delivery), run=rows.load_run(doc)) for *delivery, doc in claimed]


def load_delivery(*row: Any) -> Delivery:
    """The columns of the fragment `delivery_columns`."""
    number, webhook_number, url, secret, kind, states, remind_after, expiring, of_run, reason, place, *rest = row
    run_id, seq, old, new, at, attempts, last_status, last_error, next_attempt_at, delivered_at = rest
    reminders = None
    if remind_after is not None or expiring:
        times = () if remind_after is None else json.loads(remind_after)
        reminders = Reminders(after_sec=tuple(micros / 1_000_000 for micros in times), expiring=bool(expiring))
    wanted = None if states is None else tuple(RunState(state) for state in states.split(",") if state)
    return Delivery(
        number=number,
        webhook_number=webhook_number,
        webhook=Webhook(url=url, secret=secret, kind=WebhookKind(kind), states=wanted, reminders=reminders),
        reason=DeliveryReason(reason),
        place=place,
        of_run=bool(of_run),
        run_id=run_id,
        seq=seq,
        old=None if old is None else RunState(old),
        new=RunState(new),
        at=rows.moment(at),
        attempts=attempts,
        last_status=last_status,
        last_error=last_error,
        next_attempt_at=rows.moment_or_none(next_attempt_at),
        delivered_at=rows.moment_or_none(delivered_at),
    )
