"""What a provider's limit is, and when it ends: read from an engine's error text.

A time without a zone is read only in wordings of programs that are started in UTC. A provider's own time without a zone, or
one that is implausible, is no time: a wrong one is worse than none.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from askback.core.errors import Limit, LimitKind

_FURTHEST = timedelta(days=400)
"""No provider has a longer window than a year."""
_LATE = timedelta(minutes=10)
"""A text may be read this long after the moment that it names, by a slow program or a clock that is wrong."""

# The order matters: a usage limit may advise to buy credits, and any of them may mention a quota.
_KINDS: tuple[tuple[LimitKind, str], ...] = (
    (LimitKind.SPENDING_CAP, r"spend(ing)? (cap|limit)|specified API usage limit"),
    (LimitKind.USAGE_WINDOW, r"usage.limit|(hour|daily|weekly|monthly|session) (limit|quota)"),
    (LimitKind.CREDITS, r"credit|insufficient (balance|fund)|payment required|\b402\b"),
    (LimitKind.RATE, r"rate.?limit|too many requests"),
    (LimitKind.QUOTA, r"quota|exhausted"),
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = r"(\d+(?:\.\d+)?) ?(ms|[smhd])(?:ec|econds?|in|inutes?|ours?|r|rs|ays?)?s?(?![a-z])"
_RELATIVE = re.compile(rf"(?:reset|retry|try again|available)\w* (?:after|in):? ((?:{_AMOUNT} ?)+)", re.IGNORECASE)
_ABSOLUTE = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:T| | at )(\d\d:\d\d(?::\d\d)?)(?:\.\d+)? ?(Z|UTC|GMT|[+-]\d\d:?\d\d)\b", re.IGNORECASE
)
# Codex: `try again at Nov 20th, 2026 9:54 PM`. Claude: `resets Nov 20, 9:53pm (UTC)`. Both leave out today's date.
_CLOCK = re.compile(
    r"(?P<how>try again at|resets) (?:(?P<month>[A-Z][a-z]{2}) (?P<day>\d{1,2})(?:[a-z]{2})?,? (?:(?P<year>\d{4}),? )?)?"
    r"(?:at )?(?P<hour>\d{1,2})(?::(?P<minute>\d\d))? ?(?P<half>[ap])m\b(?: \((?P<zone>[\w/+-]{1,40})\))?",
    re.IGNORECASE,
)


def read_limit(words: str, at: datetime, reported: datetime | timedelta | None = None) -> Limit:
    """The limit in an error text that was read at `at`. `reported` is its end by a structured source, which comes first."""
    kind = next((kind for kind, sign in _KINDS if re.search(sign, words, re.IGNORECASE)), LimitKind.RATE)
    found = reported if reported is not None else _read_end(words, at)
    end = at + found if isinstance(found, timedelta) else found
    plausible = end is not None and at - _FURTHEST < end < at + _FURTHEST
    return Limit(kind=kind, resets_at=end if plausible else None)


def moment_of(seconds: object) -> datetime | None:
    """A time in seconds since 1970, as programs report it; None if it is not one."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def _read_end(words: str, at: datetime) -> datetime | timedelta | None:
    if exact := _ABSOLUTE.search(words):
        zone = re.sub("UTC|GMT|z", "Z", exact[3], flags=re.IGNORECASE)
        try:
            return datetime.fromisoformat(f"{exact[1]}T{exact[2]}{zone}")
        except ValueError:
            return None
    if relative := _RELATIVE.search(words):
        amounts = re.findall(_AMOUNT, relative[1], re.IGNORECASE)
        seconds = sum(float(number) * _UNITS[unit.lower()] for number, unit in amounts)
        return timedelta(seconds=seconds) if seconds < _FURTHEST.total_seconds() else None
    clock = _CLOCK.search(words)
    return None if clock is None else _by_clock(clock, at)


def _by_clock(clock: re.Match[str], at: datetime) -> datetime | None:
    zone = _zone(clock["zone"], clock["how"])
    if zone is None:
        return None
    now = at.astimezone(zone)
    date = f"{clock['month']} {clock['day']} {clock['year'] or now.year}" if clock["month"] else f"{now:%b %d %Y}"
    try:
        text = f"{date} {clock['hour']}:{clock['minute'] or '00'} {clock['half']}m"
        end = datetime.strptime(text, "%b %d %Y %I:%M %p").replace(tzinfo=zone)
        if clock["month"] and not clock["year"] and end < now - timedelta(days=180):
            end = end.replace(year=end.year + 1)
    except ValueError:
        return None
    if clock["month"]:
        return end
    # Without a date it is the next such time, or one that has just passed.
    if end < now - _LATE:
        return end + timedelta(days=1)
    return end - timedelta(days=1) if end >= now + timedelta(days=1) - _LATE else end


def _zone(name: str | None, how: str) -> tzinfo | None:
    if name is None:
        # Codex names no zone, and is started in UTC.
        return UTC if how.lower() == "try again at" else None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return None
