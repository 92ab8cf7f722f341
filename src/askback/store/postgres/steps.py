"""The steps that make the tables, and which versions of Askback can use the tables after each of them.

A step is *additive* unless it says otherwise: a program that does not know it works on, and so old and new programs run
side by side. A step that takes something away from older programs names the oldest format that a program must know:

    -- oldest format: 8

Such a step is applied only when no older program is alive, and no program needs it: the version that has it works with
the tables as they were before. The queue's tables follow the same rule. Procrastinate names its steps `pre` if they are
additive; its `post` steps are for when every program has the new package.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

from askback.store.postgres.connection import FOLDER, PostgresConnection
from askback.store.sql.connection import migrations

LEDGER = """
CREATE TABLE IF NOT EXISTS migrations (version BIGINT PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now());
ALTER TABLE migrations ADD COLUMN IF NOT EXISTS oldest BIGINT NOT NULL DEFAULT 0
"""
OLDEST = "SELECT coalesce(max((to_jsonb(step) ->> 'oldest')::bigint), 0) FROM migrations AS step"
"""The oldest format that a program must know. The column is missing until the first upgrade by a version that has it."""
OLDEST_QUEUE = "SELECT coalesce(max(name), '') FROM queue_migrations WHERE strpos(name, '_pre_') = 0"
"""The same for the queue: the last step that is not additive."""
_NOTE = "INSERT INTO migrations (version, oldest) VALUES (:version, :oldest)"
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
    scripts = migrations(FOLDER.joinpath("migrations"))
    return tuple(
        Step(version=version, script=script, oldest=_oldest(script)) for version, script in enumerate(scripts, start=1)
    )


def _oldest(script: str) -> int:
    found = _OLDEST_FORMAT.search(script)
    return 0 if found is None else int(found[1])


def newest() -> int:
    """The format that this program knows."""
    return len(steps())


def needed() -> int:
    """The format that this program needs: that of the last additive step."""
    return max(step.version for step in steps() if step.additive)


def apply(connection: PostgresConnection, step: Step) -> None:
    connection.raw.execute(step.script.encode())
    connection.execute(_NOTE, {"version": step.version, "oldest": step.oldest})


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
