"""The writes for notifications: the server's webhooks, claims of due deliveries, and results of attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from askback.core.webhooks import Attempt, BusyReceivers, Delivery, Webhook
from askback.store.sql import outbox, rows
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change, Write
from askback.text.json_text import clean


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration(Write):
    """Replaces the server's webhooks. A webhook with the same URL, kind and labels as before keeps its deliveries.

    If its reminders have changed, those of open questions are planned again from `at` on.
    """

    webhooks: Sequence[rows.Columns]
    at: datetime | None

    @classmethod
    def of(cls, webhooks: Sequence[Webhook], at: datetime | None) -> Registration:
        return cls(webhooks=tuple(outbox.webhook_columns(webhook) for webhook in webhooks), at=at)

    def write(self, connection: Connection) -> Change:
        # Two servers that start at once must not both add the same webhook.
        connection.exclude_others("webhooks of the server")
        sql = connection.statements("outbox")
        known = connection.fetch(sql["server_webhooks"])
        existing = {(url, kind, labels): (number, after) for number, url, kind, labels, after in known}
        for columns in self.webhooks:
            same = (columns["url"], columns["kind"], columns["labels"])
            number, after = existing.pop(same, (None, None))
            if number is None:
                outbox.add_webhooks(connection, None, [columns])
                continue
            connection.execute(sql["update_webhook"], columns | {"number": number})
            if after != columns["remind_after"]:
                outbox.plan_again(connection, number, self.at)
        for number, _ in existing.values():
            connection.execute(sql["retire_webhook"], {"number": number})
            outbox.plan_again(connection, number, None)
            connection.execute(sql["retire_deliveries"], {"number": number})
        return Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Write):
    at: datetime
    until: datetime
    busy: BusyReceivers
    limit: int

    def write(self, connection: Connection) -> Change:
        which = outbox.busy_columns(self.busy) | {
            "at": rows.micros(self.at),
            "until": rows.micros(self.until),
            "limit": self.limit,
        }
        numbers = sorted(number for (number,) in connection.fetch(connection.statements("outbox")["claim"], which))
        wanted = [number for number in numbers if not self._is_outdated(connection, number)]
        return Change(deliveries=tuple(outbox.due(connection, number) for number in wanted))

    def _is_outdated(self, connection: Connection, number: int) -> bool:
        """Of the reminders of a question that were missed, or could not be sent, only the last one is sent."""
        which = {"number": number, "at": rows.micros(self.at)}
        return bool(connection.fetch(connection.statements("outbox")["drop_outdated"], which))


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(Write):
    """The result of an attempt. Written only if nobody has claimed the delivery since."""

    delivery: Delivery
    attempt: Attempt

    def write(self, connection: Connection) -> Change:
        again, delivered = self.attempt.next_attempt_at, self.attempt.delivered_at
        columns = {
            "number": self.delivery.number,
            "attempts": self.delivery.attempts,
            "status": self.attempt.status,
            "error": None if self.attempt.error is None else clean(self.attempt.error),
            "next_attempt_at": None if again is None else rows.micros(again),
            "delivered_at": None if delivered is None else rows.micros(delivered),
        }
        connection.execute(connection.statements("outbox")["record_attempt"], columns)
        return Change()
