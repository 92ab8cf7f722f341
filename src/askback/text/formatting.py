"""Human-readable text: safe to print on a terminal, sizes, timestamps, suggestions for misspelled names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|$)"  # OSC, DCS, SOS, PM, APC with their text
    r"|\x1b[ -/]*[0-~]?"  # every other escape
    r"|\x9b[0-?]*[ -/]*[@-~]",  # CSI as one C1 character
    re.DOTALL,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_HIDDEN = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """The text without control sequences. Invisible and bidi characters are shown as `<U+…>`."""
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    text = _CONTROLS.sub("", text)
    return _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", text)


def one_line(text: str, most: int) -> str:
    """The text on one line, cut to `most` characters."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= most else flat[: max(most - 1, 0)] + "…"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    amount = float(number)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


_MAX_COMPARED = 200
"""Comparing two names takes quadratic time."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar known name, or None if none is similar enough."""
    if len(name) > _MAX_COMPARED:
        return None
    import difflib  # importing it takes milliseconds, and most commands never need it

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def moment(at: datetime, zone: tzinfo = UTC) -> str:
    """For people, in a time zone and with its name: `2026-03-01 15:00 CET (Europe/Berlin)`."""
    local = at.astimezone(zone)
    short = local.tzname() or ""
    # Some zones have only a number.
    shown = f"{local:%Y-%m-%d %H:%M} {'UTC' if short.startswith(('+', '-')) else ''}{short}"
    name = str(zone)
    return shown if name == short else f"{shown} ({name})"


def rfc3339(at: datetime) -> str:
    """In UTC, with `Z`."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
