"""Text for people: safe to print, cut to a length, counts, sizes, durations, times, search, and suggestions.

Every face of Askback formats with these functions, so that a figure looks the same everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
    return cut(" ".join(printable(text).split()), most)


def cut(text: str, most: int) -> str:
    """At most `most` characters of the text; an ellipsis is in the place of the rest."""
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def cut_bytes(text: str, most: int, encoding: str = "utf-8") -> str:
    """As `cut`, for a limit in bytes of an encoding."""
    data, ellipsis = text.encode(encoding, errors="replace"), "…".encode(encoding)
    if len(data) <= most:
        return text
    return data[: max(most - len(ellipsis), 0)].decode(encoding, errors="ignore") + "…"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """`999 B`, `1.5 kB`, `640 MB`; a kilobyte has 1,000 bytes."""
    amount, units = float(number), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.0f} {units[0]}" if amount >= 100 or units[0] == "B" else f"{amount:.1f} {units[0]}"


_DAY, _HOUR, _MINUTE = 86_400, 3600, 60


def units_of(seconds: float) -> Sequence[tuple[int, str]]:
    """The units of a duration, from the largest that is not 0: 3, `d`; 4, `h`; 0, `min`; 7, `s`."""
    whole = max(int(seconds), 0)
    units = ((whole // _DAY, "d"), (whole // _HOUR % 24, "h"), (whole // _MINUTE % 60, "min"), (whole % 60, "s"))
    first = next((place for place, (number, _) in enumerate(units) if number), len(units) - 1)
    return units[first:]


def rough_duration(seconds: float, *, smallest: str = "second") -> str:
    """In words, in the largest unit of which there is more than one: `10 minutes`, `24 hours`, `3 days`."""
    for noun, length in (("day", _DAY), ("hour", _HOUR), ("minute", _MINUTE), ("second", 1)):
        if seconds >= 1.5 * length or noun == smallest:
            break
    return count(max(round(seconds / length), 0), noun)


def duration(seconds: float) -> str:
    """`12 s`, `3 min 05 s`, `26 h 04 min`."""
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


# The search for words. Everything that people can search uses it.

MAX_SEARCH_CHARACTERS = 200
"""Of a search. The rest is ignored."""


def words_in(search: str) -> list[str]:
    """The words of a search, for `has_all`."""
    return search[:MAX_SEARCH_CHARACTERS].casefold().split()


def folded(texts: Iterable[str | None]) -> str:
    """The texts that are searched, as `has_all` expects them."""
    return "\n".join(text for text in texts if text).casefold()


def has_all(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)
