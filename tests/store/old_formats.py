"""Databases of older formats: a new one with its later migrations undone."""

from __future__ import annotations

from collections.abc import Iterator

_UNDO = {
    2: ("DROP TABLE deliveries", "DROP TABLE webhooks"),
    3: ("DROP INDEX runs_open_by_creator", "ALTER TABLE runs DROP COLUMN creator"),
    4: (
        "ALTER TABLE runs RENAME COLUMN owner TO keeper",
        "ALTER TABLE queue RENAME COLUMN owner TO keeper",
    ),
    5: ("DROP TABLE daily_runs",),
    6: ("DROP INDEX runs_waiting_by_deadline", "DROP INDEX interactions_closed"),
    7: ("ALTER TABLE requests DROP COLUMN env",),
    8: ("DROP INDEX runs_open_in_workdirs", "ALTER TABLE runs DROP COLUMN workdir"),
    9: ("DROP TABLE run_labels", "ALTER TABLE webhooks DROP COLUMN labels"),
    10: (
        "DROP INDEX runs_unannounced",
        "ALTER TABLE runs DROP COLUMN expiring",
        "ALTER TABLE webhooks DROP COLUMN remind_after",
        "ALTER TABLE webhooks DROP COLUMN expiring",
        "DELETE FROM deliveries WHERE place > 0",
        "ALTER TABLE deliveries RENAME TO deliveries_later",
        """CREATE TABLE deliveries (
            number INTEGER PRIMARY KEY AUTOINCREMENT, webhook INTEGER NOT NULL REFERENCES webhooks (number),
            run INTEGER NOT NULL REFERENCES runs (number), seq INTEGER NOT NULL, old TEXT, new TEXT NOT NULL,
            at INTEGER NOT NULL, doc TEXT, attempts INTEGER NOT NULL DEFAULT 0, last_status INTEGER, last_error TEXT,
            next_attempt_at INTEGER, delivered_at INTEGER, UNIQUE (webhook, run, seq)
        ) STRICT""",
        """INSERT INTO deliveries SELECT number, webhook, run, seq, old, new, at, doc, attempts, last_status,
            last_error, next_attempt_at, delivered_at FROM deliveries_later""",
        "DROP TABLE deliveries_later",
        "CREATE INDEX deliveries_run ON deliveries (run)",
        "CREATE INDEX deliveries_due ON deliveries (next_attempt_at) WHERE next_attempt_at IS NOT NULL",
    ),
    11: ("DROP TABLE chat_messages",),
    12: ("DROP TABLE audit",),
    13: (
        "DROP INDEX queue_by_age",
        "DROP INDEX queue_lanes",
        "ALTER TABLE queue DROP COLUMN priority",
        "CREATE INDEX queue_lanes ON queue (owner, engine)",
    ),
    14: ("DROP TABLE file_store",),
    15: (
        "DROP INDEX runs_held_by_creator",
        "DROP TABLE queue_service",
        "DROP INDEX queue_lanes",
        "ALTER TABLE queue DROP COLUMN party",
        "CREATE INDEX queue_lanes ON queue (owner, engine, priority DESC)",
    ),
    16: (),
    17: ("DROP INDEX runs_parked",),
    18: ("DROP TABLE turn_usage",),
}
"""By the number of the migration. A new migration adds its entry."""


def downgrade(version: int) -> Iterator[str]:
    """The statements that turn a new database into one of this version."""
    for number in sorted(_UNDO, reverse=True):
        if number > version:
            yield from _UNDO[number]
    yield f"PRAGMA user_version = {version}"
