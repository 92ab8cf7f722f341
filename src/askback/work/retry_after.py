"""`Retry-After`: for how long a receiver asks to be left alone. Pure; what it says is bounded, for it may be a mistake."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_SEC = 24 * 3600.0
"""Nobody is waited for any longer than this, whatever he asks for."""
_SECONDS = re.compile(r"[0-9]+", re.ASCII)


def asked_pause_sec(header: str | None, now: datetime) -> float:
    """The seconds that the header asks for, as a number or as a date; none for what is neither, or is past."""
    if header is None:
        return 0.0
    text = header.strip()
    seconds = float(text) if _SECONDS.fullmatch(text) else _until(text, now)
    return min(max(seconds, 0.0), LONGEST_SEC)


def _until(date: str, now: datetime) -> float:
    try:
        moment = parsedate_to_datetime(date)
        # A date of HTTP is in UTC, also where it does not say so.
        return (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
