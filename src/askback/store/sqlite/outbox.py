"""Webhooks and deliveries as rows: adds deliveries to the outbox on changes of state, and reads them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import apsw

from askback.core.events import EventType, NewEvent
from askback.core.runs import SHARED, Run, RunState
from askback.core.webhooks import Delivery, DueDelivery, Webhook, WebhookKind
from askback.store.base import LabelSet
from askback.store.sqlite import rows
from askback.store.sqlite.connection import fetch, statements
from askback.store.sqlite.labels import label_values
from askback.text.json_text import clean

_COLUMNS = ", ".join(
    (
        "deliveries.number, deliveries.webhook, webhooks.url, webhooks.secret, webhooks.kind, webhooks.states",
        "runs.id, deliveries.seq, deliveries.old, deliveries.new, deliveries.at, deliveries.attempts",
        "deliveries.last_status, deliveries.last_error, deliveries.next_attempt_at, deliveries.delivered_at",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A change of state among the events of one write; `place` is the event's index."""

    place: int
    old: RunState | None
    new: RunState
    at: int


def state_changes(events: Sequence[NewEvent]) -> tuple[StateChange, ...]:
    return tuple(
        StateChange(place=place, old=event.data["from"], new=event.data["to"], at=rows.micros(event.at))
        for place, event in enumerate(events)
        if event.type is EventType.RUN_STATE
    )


def webhook_columns(webhook: Webhook) -> rows.Columns:
    return {
        "url": clean(webhook.url),
        "host": clean(webhook.host),
        "secret": None if webhook.secret is None else clean(webhook.secret),
        "kind": webhook.kind,
        "states": None if webhook.states is None else f",{','.join(webhook.states)},",
        "labels": json.dumps(webhook.labels, sort_keys=True) if webhook.labels else None,
    }


def add_webhooks(connection: apsw.Connection, run: int | None, webhooks: Sequence[rows.Columns]) -> None:
    for columns in webhooks:
        connection.execute(statements("outbox")["insert_webhook"], columns | {"run": run})


def add_deliveries(
    connection: apsw.Connection, number: int, first_seq: int, run: Run, doc: str, changes: Sequence[StateChange]
) -> None:
    """Add a delivery for each webhook of the run and, if servers own the run, of the server."""
    for change in changes:
        columns = {"run": number, "seq": first_seq + change.place, "shared": run.owner == SHARED, "doc": doc}
        columns |= {"old": change.old, "new": change.new, "at": change.at}
        connection.execute(statements("outbox")["insert_deliveries"], columns)


# Reading.


def statement(name: str) -> str:
    """The statement, with the columns of a delivery filled in."""
    return statements("outbox")[name].replace("{columns}", _COLUMNS)


def next_delivery(connection: apsw.Connection, *, without_hosts: Collection[str] = ()) -> datetime | None:
    at = connection.execute(statement("next_delivery"), {"without_hosts": json.dumps(sorted(without_hosts))}).get
    return None if at is None else rows.moment(at)


def due(connection: apsw.Connection, number: int) -> DueDelivery:
    *delivery, doc = fetch(connection, statement("claimed"), {"number": number})[0]
    return DueDelivery(delivery=load_delivery(*delivery), run=rows.load_run(doc))


def page(connection: apsw.Connection, run: int | None, before: int, limit: int, labels: LabelSet) -> Sequence[Delivery]:
    """Newest first. Labels do not matter for the deliveries of one run."""
    name = "deliveries_of_run" if run is not None else "deliveries_labelled" if labels else "deliveries"
    where = {"before": before, "limit": limit, **label_values(labels), **({} if run is None else {"run": run})}
    return tuple(load_delivery(*row) for row in fetch(connection, statement(name), where))


def load_delivery(
    number: int,
    webhook: int,
    url: str,
    secret: str | None,
    kind: str,
    states: str | None,
    run_id: str,
    seq: int,
    old: str | None,
    new: str,
    at: int,
    attempts: int,
    *how: Any,
) -> Delivery:
    last_status, last_error, next_attempt_at, delivered_at = how
    wanted = None if states is None else tuple(RunState(state) for state in states.split(",") if state)
    return Delivery(
        number=number,
        webhook_number=webhook,
        webhook=Webhook(url=url, secret=secret, kind=WebhookKind(kind), states=wanted),
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
