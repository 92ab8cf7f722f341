"""Times as text."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: datetime) -> str:
    """In UTC, with `Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
