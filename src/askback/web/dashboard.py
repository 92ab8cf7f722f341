"""The dashboard: what waits now, and runs, failures, tokens and answers of the last days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import UsageKey
from askback.http.routes.server import statistics
from askback.text.formatting import size
from askback.web.page_context import PageContext
from askback.wire.server import DayStats, Finished

PERIODS = (14, 30)
_FIRST_SHOWN = 30
_MAX_SQUARES = 16
_MAX_WAITING = 5
_MAX_NAMES = 6
_FEW_ANSWERS = 10
_SPARK_HEIGHT = 24.0
_OUTCOMES = ("succeeded", "failed", "canceled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    code: str
    count: int
    chart: Chart


async def dashboard(context: PageContext, request: Request) -> Response:
    given = request.query_params.get("days", "")
    days = next((each for each in PERIODS if str(each) == given), _FIRST_SHOWN)
    stats, health = await statistics(context.service, days), await context.health()
    pending = await context.service.store.pending(limit=_MAX_WAITING)
    return context.show(
        request,
        "dashboard.html",
        days=days,
        periods=PERIODS,
        stats=stats,
        runs=chart([(day.date, {name: getattr(day, name) for name in _OUTCOMES}) for day in stats.days]),
        share=success_share(stats.days),
        failures=failures(stats.days),
        tokens=chart([(day.date, _tokens(day)) for day in stats.days]),
        tokens_by={
            name: bars([(each.name, sum(_tokens(each).values())) for each in found], _MAX_NAMES)
            for name, found in (("skills", stats.skills), ("engines", stats.engines))
        },
        used=[(by, await context.service.usage(by, days)) for by in (UsageKey.SKILL, UsageKey.MODEL)],
        few_answers=stats.answers.count < _FEW_ANSWERS,
        waiting=pending.items,
        slots=health.slots,
        squares=squares(health.slots.taken, health.slots.total),
        health=health,
        disk_free=size(health.disk_free_bytes),
    )


def _tokens(day: Finished) -> dict[str, int]:
    return {"input": day.usage.input_tokens, "output": day.usage.output_tokens}


def success_share(finished: Sequence[Finished]) -> int | None:
    """The percentage of runs that succeeded; canceled runs do not count. Never 100 if one failed."""
    succeeded, failed = sum(each.succeeded for each in finished), sum(each.failed for each in finished)
    if succeeded + failed == 0:
        return None
    share = round(100 * succeeded / (succeeded + failed))
    return min(share, 99) if failed else share


def failures(days: Sequence[DayStats]) -> list[Failure]:
    """The reasons why runs failed, the most frequent first, each with a small chart."""
    totals: Counter[str] = Counter()
    for day in days:
        totals.update(day.failures)
    return [
        Failure(
            code=code,
            count=count,
            chart=chart([(day.date, {"failed": day.failures.get(code, 0)}) for day in days], _SPARK_HEIGHT),
        )
        for code, count in sorted(totals.items(), key=lambda each: (-each[1], each[0]))
    ]


def squares(taken: int, total: int) -> list[bool]:
    """The slots as a row of squares, used ones first, scaled down if there are many."""
    shown = min(total, _MAX_SQUARES)
    return [place < taken * shown / total for place in range(shown)]


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
