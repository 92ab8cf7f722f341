"""The dashboard: how busy the server is, what waits, and how long people take to answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from askback.core.runs import RunState
from askback.web.desk import Desk, Page
from askback.web.figures import duration_text, size_text

_BAR_WIDTH = 600
_LEAST_BAR = 4
_MOST_SQUARES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A part of the picture of runs by state, in the units of its view box."""

    state: RunState
    count: int
    x: float
    width: float


async def dashboard(desk: Desk, request: Request) -> Response:
    tally, health = await desk.service.tally(), await desk.health()
    oldest = (await desk.service.pending(limit=1)).items
    waits = sorted(tally.answer_sec)
    return desk.show(
        request,
        "dashboard.html",
        counts=tally.runs,
        bars=bars([(state, tally.runs[state]) for state in RunState]),
        bar_width=_BAR_WIDTH,
        slots=health["slots"],
        squares=squares(health["slots"]["taken"], health["slots"]["total"]),
        health=health,
        disk_free=size_text(health["disk_free_bytes"]),
        oldest_asked=oldest[0].pending_interaction if oldest else None,
        oldest_queued=_duration(health["oldest_queued_sec"]),
        answers=len(waits),
        median=_duration(quantile(waits, 0.5)),
        p90=_duration(quantile(waits, 0.9)),
    )


def squares(taken: int, total: int) -> list[bool]:
    """The slots as a row of squares, those in use first; of very many, as many as a row holds."""
    shown = min(total, _MOST_SQUARES)
    return [place < taken * shown / total for place in range(shown)]


def _duration(seconds: float | None) -> str | None:
    """Not broken between a number and its unit, in the narrow boxes it stands in."""
    return None if seconds is None else duration_text(seconds).replace(" ", "\u00a0")


def bars(counts: Sequence[tuple[RunState, int]]) -> list[Bar]:
    """One bar in parts: each as wide as its share, but none that is there too thin to be seen."""
    there = [(state, count) for state, count in counts if count]
    total = sum(count for _, count in there)
    widths = [max(_BAR_WIDTH * count / total, _LEAST_BAR) for _, count in there]
    scale = _BAR_WIDTH / sum(widths) if widths else 1
    made: list[Bar] = []
    x = 0.0
    for (state, count), width in zip(there, widths, strict=True):
        made.append(Bar(state=state, count=count, x=round(x, 2), width=round(width * scale, 2)))
        x += width * scale
    return made


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The value that this share of them does not exceed; none of nothing."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


PAGES = (Page(path="/dashboard", show=dashboard),)
