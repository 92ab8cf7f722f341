"""The rows of the audit log: added, read in pages, and removed by age."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from askback.core.access import AuditEntry, StoredEntry
from askback.store.audit_log import AuditFilter, AuditPage
from askback.store.sql import rows
from askback.store.sql.connection import Connection
from askback.text.json_text import clean

_MOST_CHARACTERS = 1000
_CONDITIONS = {
    "actor": "actor = :actor",
    "action": "action = :action",
    "run_id": "run_id = :run_id",
    "since": "at >= :since",
    "until": "at < :until",
}


def add(connection: Connection, entry: AuditEntry | None) -> None:
    """Add an entry, in the transaction of the write that it is about."""
    if entry is None:
        return
    columns = {
        "at": rows.micros(entry.at),
        "actor": _text(entry.actor.name),
        "via": entry.actor.via,
        "action": entry.action,
        "run_id": _text(entry.run_id),
        "interaction_id": _text(entry.interaction_id),
        "object": _text(entry.object),
        "address": _text(entry.address),
    }
    connection.execute(connection.statements("audit")["insert"], columns)


def page(connection: Connection, where: AuditFilter, before: int, limit: int) -> AuditPage:
    """Entries before this number, newest first."""
    given: dict[str, Any] = {
        "actor": where.actor,
        "action": where.action,
        "run_id": where.run_id,
        "since": None if where.since is None else rows.micros(where.since),
        "until": None if where.until is None else rows.micros(where.until),
    }
    wanted = {
        name: clean(value) if isinstance(value, str) else value for name, value in given.items() if value is not None
    }
    conditions = "".join(f" AND {_CONDITIONS[name]}" for name in wanted)
    query = connection.statements("audit")["page"].replace("{conditions}", conditions)
    found = connection.fetch(query, {**wanted, "before": before, "limit": limit + 1})
    items = tuple(_entry(row) for row in found[:limit])
    return AuditPage(items=items, next_cursor=str(items[-1].number) if len(found) > limit else None)


def expire(connection: Connection, before: datetime, limit: int) -> int:
    """Remove some of the entries before a time, oldest first."""
    which = {"before": rows.micros(before), "limit": limit}
    return len(connection.fetch(connection.statements("audit")["expire"], which))


def _entry(row: Any) -> StoredEntry:
    number, at, name, via, action, run_id, interaction_id, about, address = row
    return StoredEntry(
        number=number,
        at=rows.moment(at),
        name=name,
        via=via,
        action=action,
        run_id=run_id,
        interaction_id=interaction_id,
        object=about,
        address=address,
    )


def _text(value: str | None) -> str | None:
    return None if value is None else clean(value)[:_MOST_CHARACTERS]
