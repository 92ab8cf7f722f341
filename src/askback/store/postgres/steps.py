"""The steps that make the tables, and which versions of Askback can use the tables after each of them.

A step is *additive* unless it says otherwise: a program that does not know it works on, and so old and new programs run
side by side. A step that takes something away from older programs names the oldest format that a program must know:

    -- oldest format: 8

Such a step is applied only when no older program is alive, and no program needs it: the version that has it works with
the tables as they were before.

The tables of the queue follow the same rule. They are Procrastinate's: its package has the steps, and names them `pre` if
they are additive; its `post` steps are for when every program has the new package. Each is recorded by its name once it is
applied, so that a newer package finds what is left to do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from procrastinate.schema import SchemaManager

from askback.store.postgres.connection import FOLDER, PostgresConnection
from askback.store.sql.connection import migrations

LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (version BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());
ALTER TABLE migrations ADD COLUMN IF NOT EXISTS oldest BIGINT NOT NULL DEFAULT 0
"""
_OLDEST_FORMAT = re.compile(r"^-- oldest format: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    version: int
    """The format of the tables after it."""
    script: str
    oldest: int
    """The oldest format that a program must know afterwards; 0 if it is additive."""

    @property
    def additive(self) -> bool:
        return self.oldest == 0


@cache
def steps() -> Sequence[Step]:
    found: list[Step] = []
    for version, script in enumerate(migrations(FOLDER.joinpath("migrations")), start=1):
        oldest = _OLDEST_FORMAT.search(script)
        found.append(Step(version=version, script=script, oldest=0 if oldest is None else int(oldest[1])))
    return tuple(found)


def newest() -> int:
    """The format that this program knows."""
    return len(steps())


def needed() -> int:
    """The format that this program needs: that of the last additive step."""
    return max(step.version for step in steps() if step.additive)


def apply(connection: PostgresConnection, step: Step) -> None:
    connection.raw.execute(step.script.encode())
    connection.execute(connection.sql["record_step"], {"version": step.version, "oldest": step.oldest})


# The tables of the queue.


@cache
def queue_steps() -> tuple[str, ...]:
    """The names of the package's steps, in order."""
    return tuple(sorted(path.stem for path in Path(SchemaManager.get_migrations_path()).glob("*.sql")))


def applied_queue_steps(connection: PostgresConnection) -> tuple[str, ...]:
    """The names of the steps that the tables have had; empty if there are no tables."""
    if connection.value("SELECT to_regclass('queue_migrations')") is None:
        return ()
    return tuple(name for (name,) in connection.fetch(connection.sql["applied_queue_steps"]))


def upgrade_queue(connection: PostgresConnection, older: Collection[str] = ()) -> str | None:
    """Create the tables, or apply what they lack. Call it in a transaction, after our own steps.

    `older` has the last step that each living program knows. Returns the first step that must wait, because a program
    that does not know it cannot work with it; those after it wait as well.
    """
    before, waits = applied_queue_steps(connection), None
    if not before:
        connection.raw.execute(SchemaManager.get_schema().encode())
    for name in queue_steps():
        if name not in before:
            if before:
                if not is_additive(name) and any(each < name for each in older):
                    waits = name
                    break
                script = Path(SchemaManager.get_migrations_path()) / f"{name}.sql"
                connection.raw.execute(script.read_bytes())
            connection.execute(connection.sql["record_queue_step"], {"name": name})
    for statement in ("index_runs", "index_fetched", "index_parties", "quiet_jobs"):
        connection.execute(connection.sql[statement])
    return waits


def is_additive(queue_step: str) -> bool:
    """Whether a step of Procrastinate is."""
    return "_pre_" in queue_step


def queue_fits(applied: Collection[str], known: Collection[str]) -> bool:
    """Whether this program can use the queue: nothing is missing that it needs, and nothing was taken away from it."""
    missing = [name for name in known if name not in applied]
    return not any("_post_" not in name for name in missing) and not newer_queue(applied, known)


def newer_queue(applied: Collection[str], known: Collection[str]) -> Sequence[str]:
    """The steps of a newer Procrastinate that this program cannot work with."""
    return [name for name in applied if name not in known and not is_additive(name)]
