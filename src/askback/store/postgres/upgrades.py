"""Creates and upgrades the tables, in one transaction, while programs of other versions work on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from askback.core.instances import Instance
from askback.store.postgres import errors, instances, schema, steps
from askback.store.postgres.connection import SCHEMA, PostgresConnection

_LOCK = f"SELECT pg_advisory_xact_lock(hashtextextended('{SCHEMA} migrations', 0))"
_SCHEMA = f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"
_HAS_PROGRAMS = "SELECT to_regclass('programs') IS NOT NULL"
_NO_NEW_PROGRAMS = "LOCK TABLE programs IN SHARE ROW EXCLUSIVE MODE"
"""Who registers meanwhile waits, and then finds the new format. Renewals wait as well, so such steps must be short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    before: schema.SchemaStatus
    after: schema.SchemaStatus
    blocked_by: tuple[Instance, ...] = ()
    """The programs that are too old for the next step."""


def upgrade(connection: PostgresConnection, *, force: bool = False) -> Upgrade:
    """Apply all steps up to the first one that a living program is too old for. `force`: also those.

    Raises `Unavailable` if the tables are too new for this program, or if a step that this program needs must wait.
    """
    schema.check_server(connection)
    with connection.raw.transaction():
        connection.execute(_LOCK)
        before = schema.status(connection)
        if before.newer:
            raise schema.misfit(connection.raw.info.dsn, before)
        if before.waiting:
            connection.execute(_SCHEMA)
            connection.raw.execute(steps.LEDGER.encode())
        blocked_by = _apply(connection, before, force=force)
        connection.raw.execute(connection.sql["index_search"].encode())
        after = schema.status(connection)
        if not after.fits:
            # Nothing is kept: half an upgrade helps nobody.
            raise errors.older_programs(connection.raw.info.dsn, [each.name for each in blocked_by])
    return Upgrade(before=before, after=after, blocked_by=blocked_by)


def _apply(connection: PostgresConnection, before: schema.SchemaStatus, *, force: bool) -> tuple[Instance, ...]:
    living: Sequence[Instance] = ()
    if before.found and any(map(_is_removing, before.waiting)) and not force:
        living = living_instances(connection, alone=True)
    for step in steps.steps()[before.found :]:
        if older := tuple(each for each in living if each.facts.format < step.oldest):
            return older
        steps.apply(connection, step)
    waits = steps.upgrade_queue(connection, [each.facts.queue_format for each in living])
    return () if waits is None else tuple(each for each in living if each.facts.queue_format < waits)


def _is_removing(step: str) -> bool:
    """Whether a step, by its name in `SchemaStatus.waiting`, is not additive."""
    return not (steps.steps()[int(step) - 1].additive if step.isdigit() else steps.is_additive(step))


def living_instances(connection: PostgresConnection, *, alone: bool = False) -> Sequence[Instance]:
    """The programs whose lease is not over. `alone`: no other one registers until the transaction ends."""
    if not connection.value(_HAS_PROGRAMS):
        return ()
    if alone:
        connection.execute(_NO_NEW_PROGRAMS)
    return instances.living(connection)
