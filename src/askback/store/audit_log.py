"""The interface of the audit log. Entries about runs are stored with the runs: see `Decision.audit`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from askback.core.access import AuditEntry, StoredEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are wanted. `since` is part of the time, `until` is not."""

    actor: str | None = None
    action: str | None = None
    run_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """Newest first. `next_cursor` is None on the last page."""

    items: tuple[StoredEntry, ...]
    next_cursor: str | None


class AuditStore(Protocol):
    async def record(self, entry: AuditEntry) -> None:
        """Add an entry about a write that was not a change of a run, right after it."""
        ...

    async def audit_entries(self, where: AuditFilter, cursor: str | None = None, limit: int = 50) -> AuditPage: ...

    async def expire_audit(self, before: datetime, limit: int) -> int:
        """Remove the oldest entries of that time, at most `limit`. Returns their number."""
        ...
