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
    10: ("DROP TABLE chat_messages",),
}
"""By the number of the migration. A new migration adds its entry."""


def downgrade(version: int) -> Iterator[str]:
    """The statements that turn a new database into one of this version."""
    for number in sorted(_UNDO, reverse=True):
        if number > version:
            yield from _UNDO[number]
    yield f"PRAGMA user_version = {version}"
