"""Webhooks and deliveries as rows: adds deliveries to the outbox with the events that they are about, and reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from askback.core.events import EventType, NewEvent
from askback.core.runs import SHARED, Run, RunState
from askback.core.webhooks import (
    NOBODY,
    BusyReceivers,
    Delivery,
    DeliveryReason,
    DeliveryView,
    DueDelivery,
    Reminders,
    Webhook,
    WebhookKind,
)
from askback.store.base import LabelSet
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.store.sql.labels import label_values
from askback.text.json_text import clean


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
        case _:
            return None


def webhook_columns(webhook: Webhook) -> rows.Columns:
    return {
        "url": clean(webhook.url),
        "host": clean(webhook.host),
        "secret": None if webhook.secret is None else clean(webhook.secret),
        "kind": webhook.kind,
        "states": None if webhook.states is None else f",{','.join(webhook.states)},",
        "labels": json.dumps(webhook.labels, sort_keys=True) if webhook.labels else None,
        **_reminder_columns(webhook.reminders),
    }


def _reminder_columns(reminders: Reminders | None) -> rows.Columns:
    times = () if reminders is None else reminders.after_sec
    after = [rows.span(timedelta(seconds=seconds)) for seconds in times]
    expiring = reminders is not None and reminders.expiring
    return {"remind_after": json.dumps(after) if after else None, "expiring": expiring}


def add_webhooks(connection: Connection, run: int | None, webhooks: Sequence[rows.Columns]) -> None:
    for columns in webhooks:
        connection.execute(connection.statements("outbox")["insert_webhook"], columns | {"run": run})


def add_deliveries(
    connection: Connection, number: int, first_seq: int, run: Run, doc: str, found: Sequence[Notice]
) -> None:
    """Add a delivery for each webhook of the run and, if servers own the run, of the server."""
    for notice in found:
        columns = {"run": number, "seq": first_seq + notice.place, "doc": doc, "at": notice.at}
        match notice.reason:
            case DeliveryReason.EXPIRING:
                asked = run.pending_interaction
                asked_at = None if asked is None else rows.micros(asked.asked_at)
                connection.execute(connection.statements("outbox")["insert_expiring"], columns | {"asked_at": asked_at})
            case _:
                columns |= {"shared": run.owner == SHARED, "old": notice.old, "new": notice.new}
                connection.execute(connection.statements("outbox")["insert_deliveries"], columns)
                if notice.new is RunState.WAITING_USER and run.answerable:
                    _plan_reminders(connection, columns, run.wait_deadline_at)


def _plan_reminders(connection: Connection, asked: rows.Columns, deadline: datetime | None) -> None:
    """Those that are due before the deadline."""
    deadline_at = None if deadline is None else rows.micros(deadline)
    connection.execute(connection.statements("outbox")["insert_reminders"], asked | {"deadline_at": deadline_at})


def stop_reminders(connection: Connection, number: int) -> None:
    """The question of the run takes no answer any more: nobody is reminded of it."""
    for name in ("forget_reminders", "stop_reminders"):
        connection.execute(connection.statements("outbox")[name], {"run": number})


def plan_again(connection: Connection, webhook: int, at: datetime | None) -> None:
    """Replace the reminders of a webhook that are not sent yet. Those that would have been due by `at` are left out."""
    for name in ("forget_planned", "stop_planned"):
        connection.execute(connection.statements("outbox")[name], {"webhook": webhook})
    if at is not None:
        connection.execute(connection.statements("outbox")["plan_again"], {"webhook": webhook, "at": rows.micros(at)})


# Reading.


def busy_columns(busy: BusyReceivers) -> rows.Columns:
    return {
        "hosts": json.dumps(sorted(busy.hosts)),
        "hosts_of_callers": json.dumps(sorted(busy.hosts_of_callers)),
        "callers": json.dumps(sorted(busy.callers)),
        "devices": json.dumps(sorted(busy.devices)),
        "all_callers": busy.all_callers,
    }


def next_delivery(connection: Connection, *, busy: BusyReceivers = NOBODY) -> datetime | None:
    at = connection.value(connection.statements("outbox")["next_delivery"], busy_columns(busy))
    return None if at is None else rows.moment(at)


def is_due(connection: Connection, delivery: Delivery) -> bool:
    which = {"number": delivery.number, "attempts": delivery.attempts}
    return bool(connection.fetch(connection.statements("outbox")["is_due"], which))


def due(connection: Connection, number: int) -> DueDelivery:
    *delivery, doc = connection.fetch(connection.statements("outbox")["claimed"], {"number": number})[0]
    return DueDelivery(delivery=load_delivery(*delivery), run=rows.load_run(doc))


def page(
    connection: Connection, run: int | None, before: int, limit: int, labels: LabelSet, view: DeliveryView
) -> Sequence[Delivery]:
    """Newest first. Labels do not matter for the deliveries of one run."""
    name = "deliveries_of_run" if run is not None else "deliveries_labelled" if labels else "deliveries"
    devices = {"all_devices": view.devices is None, "devices": json.dumps(sorted(view.devices or ()))}
    where = {"before": before, "limit": limit, "of_server": view.of_server, **devices, **label_values(labels)}
    where |= {} if run is None else {"run": run}
    return tuple(load_delivery(*row) for row in connection.fetch(connection.statements("outbox")[name], where))


def load_delivery(number: int, webhook: int, *columns: Any) -> Delivery:
    (url, secret, kind, states, remind_after, expiring), rest = columns[:6], columns[6:]
    wanted = None if states is None else tuple(RunState(state) for state in states.split(",") if state)
    reminders = _load_reminders(remind_after, expiring)
    receiver = Webhook(url=url, secret=secret, kind=WebhookKind(kind), states=wanted, reminders=reminders)
    return _load_delivery(number, webhook, receiver, *rest)


def _load_reminders(remind_after: str | None, expiring: int) -> Reminders | None:
    if remind_after is None and not expiring:
        return None
    times = () if remind_after is None else json.loads(remind_after)
    return Reminders(after_sec=tuple(micros / 1_000_000 for micros in times), expiring=bool(expiring))


def _load_delivery(
    number: int,
    webhook_number: int,
    webhook: Webhook,
    of_run: int,
    reason: str,
    place: int,
    run_id: str,
    seq: int,
    old: str | None,
    new: str,
    at: int,
    attempts: int,
    *how: Any,
) -> Delivery:
    last_status, last_error, next_attempt_at, delivered_at = how
    return Delivery(
        number=number,
        webhook_number=webhook_number,
        webhook=webhook,
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
        next_attempt_at=None if next_attempt_at is None else rows.moment(next_attempt_at),
        delivered_at=None if delivered_at is None else rows.moment(delivered_at),
    )
