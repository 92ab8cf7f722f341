"""Charts as data: stacked columns by day, in units of an SVG view box. The templates draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

WIDTH = 600.0
HEIGHT = 120.0
_GAP = 0.22
_LEAST = 2.0
"""A part that is not zero can be seen, however small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    kind: str
    count: int
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    day: date
    counts: Mapping[str, int]
    x: float
    width: float
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    columns: tuple[Column, ...]
    top: int
    """The value at the upper edge."""

    @property
    def totals(self) -> dict[str, int]:
        kinds = self.columns[0].counts if self.columns else {}
        return {kind: sum(column.counts[kind] for column in self.columns) for kind in kinds}

    @property
    def total(self) -> int:
        return sum(self.totals.values())

    @property
    def busiest(self) -> Column:
        return max(self.columns, key=lambda column: sum(column.counts.values()))


def chart(days: Sequence[tuple[date, Mapping[str, int]]], height: float = HEIGHT) -> Chart:
    """One column for each day; the kinds are stacked in their order, the first at the bottom."""
    top = round_up(max((sum(counts.values()) for _, counts in days), default=0))
    step = WIDTH / max(len(days), 1)
    made = [
        Column(
            day=day,
            counts=counts,
            x=round(number * step + step * _GAP / 2, 2),
            width=round(step * (1 - _GAP), 2),
            parts=_stacked(counts, top, height),
        )
        for number, (day, counts) in enumerate(days)
    ]
    return Chart(columns=tuple(made), top=top)


def round_up(value: int) -> int:
    """The next of 1, 2, 4, 6, 8, 10, 20, 40 and so on."""
    power = 1
    while power * 10 <= value:
        power *= 10
    return next((step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value), power * 10)


def _stacked(counts: Mapping[str, int], top: int, height: float) -> tuple[Part, ...]:
    parts, floor = [], height
    for kind, count in counts.items():
        if count:
            tall = max(count / top * height, _LEAST)
            floor = max(floor - tall, 0.0)
            parts.append(Part(kind=kind, count=count, y=round(floor, 2), height=round(tall, 2)))
    return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    name: str
    count: int
    width: float
    """In percent of the longest bar."""


def bars(counts: Sequence[tuple[str, int]], most: int) -> list[Bar]:
    """Horizontal bars, the longest first; those without a value are left out."""
    there = sorted(((name, count) for name, count in counts if count), key=lambda each: (-each[1], each[0]))[:most]
    return [Bar(name=name, count=count, width=round(100 * count / there[0][1], 1)) for name, count in there]
