"""Removing runs that are over, with all that belongs to them. A run that is not over is never touched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import apsw

from askback.store import rows
from askback.store.connection import fetch
from askback.store.statements import statements
from askback.store.writes import Change

# What belongs to a run goes before it, and deliveries before their webhooks.
_ORDER = ("deliveries", "webhooks", "keys", "events", "interactions", "request", "result", "run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    run_ids: tuple[str, ...]

    @classmethod
    def of(cls, run_ids: Sequence[str]) -> Forgetting:
        return cls(run_ids=tuple(rows.clean(run_id) for run_id in run_ids))

    def write(self, connection: apsw.Connection) -> Change:
        return Change(forgotten=tuple(run_id for run_id in self.run_ids if _forget(connection, run_id)))


def _forget(connection: apsw.Connection, run_id: str) -> bool:
    sql = statements("forgetting")
    found = fetch(connection, sql["number_of_over"], (run_id,))
    for (number,) in found:
        for what in _ORDER:
            connection.execute(sql[f"forget_{what}"], (number,))
    return bool(found)
