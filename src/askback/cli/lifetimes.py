"""Lifetimes as they are typed: `30d`, `12h`, `45m`."""

from __future__ import annotations

import re
from datetime import timedelta

import click

from askback.text.formatting import one_line

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_TYPED = re.compile(r"([0-9]+)([smhdw])", re.ASCII)
_MAX_DIGITS = 12


def lifetime(text: str, most: timedelta, most_in_words: str) -> timedelta:
    """The value of `--expires-in`. Raises `click.UsageError` unless it is from a second to `most`."""
    found = _TYPED.fullmatch(text.strip())
    if found is None:
        raise click.UsageError(f"--expires-in {one_line(text, 40)!r}: write it as 4w, 30d, 12h, 45m or 90s")
    unit = _UNITS[found[2]]
    # A number of many digits is not a timedelta.
    number = int(found[1]) if len(found[1]) <= _MAX_DIGITS else 0
    if not 1 <= number <= most // timedelta(**{unit: 1}):
        raise click.UsageError(f"--expires-in {one_line(text, 40)!r}: must be from 1s to {most_in_words}")
    return timedelta(**{unit: number})
