"""Figures as people read them; units are the same in every language."""

from __future__ import annotations

import itertools


def duration_text(seconds: float) -> str:
    """`850 ms`, `12 s`, `4 min 7 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    largest = list(itertools.dropwhile(lambda part: part[0] == 0, parts))[:2]
    return " ".join(f"{count} {unit}" for count, unit in largest if count)


def size_text(size_bytes: int) -> str:
    """`640 MB`, `12.4 GB`."""
    size, units = float(size_bytes), ["B", "KB", "MB", "GB", "TB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} {units[0]}" if size >= 100 or units[0] == "B" else f"{size:.1f} {units[0]}"
