"""The tables of the queue, which are Procrastinate's: its package has them, and says how they change.

Every migration of the package is noted by its name once it is applied, so that a newer package finds what is left to do.
`steps` says which of them a program needs, and which it cannot work with.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

from procrastinate.schema import SchemaManager

from askback.store.postgres import steps
from askback.store.postgres.connection import PostgresConnection

_APPLIED = "SELECT name FROM queue_migrations ORDER BY name"
_NOTE = "INSERT INTO queue_migrations (name) VALUES (:name)"


@cache
def known() -> tuple[str, ...]:
    """The names of the package's migrations, in order."""
    return tuple(sorted(path.stem for path in _folder().glob("*.sql")))


def _folder() -> Path:
    return Path(SchemaManager.get_migrations_path())


def applied(connection: PostgresConnection) -> tuple[str, ...]:
    """The names of the migrations that the tables have had; empty if there are no tables."""
    if connection.value("SELECT to_regclass('queue_migrations')") is None:
        return ()
    return tuple(name for (name,) in connection.fetch(_APPLIED))


def upgrade(connection: PostgresConnection, older: Collection[str] = ()) -> str | None:
    """Create the tables, or apply what they lack. Call it in a transaction, after our own migrations.

    `older` has the last migration that each living program knows. Returns the first migration that must wait, because
    a program that does not know it cannot work with it; those after it wait as well.
    """
    before, waits = applied(connection), None
    if not before:
        connection.raw.execute(SchemaManager.get_schema().encode())
    for name in known():
        if name not in before:
            if before:
                if not steps.is_additive(name) and any(each < name for each in older):
                    waits = name
                    break
                connection.raw.execute((_folder() / f"{name}.sql").read_bytes())
            connection.execute(_NOTE, {"name": name})
    for statement in ("index_runs", "index_fetched", "index_parties"):
        connection.execute(connection.sql[statement])
    return waits
