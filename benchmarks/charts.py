"""Plots as SVG: lines by size, and distributions. Plain shapes and text, so that any viewer and both themes show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 76, 40, 56, 52
LEGEND_LINE = 20
COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#475569")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: tuple[tuple[float, float], ...]
    bands: tuple[tuple[float, float], ...] = ()
    """The spread at each point: low and high."""
    dashed: bool = False
    markers: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    label: str
    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    text: Callable[[float], str] = lambda value: f"{value:,.6g}"

    def part(self, value: float) -> float:
        if self.log:
            value, low, high = (math.log10(max(each, self.low)) for each in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5


def linear(label: str, values: Sequence[float]) -> Axis:
    """From 0 to a round number above the highest value."""
    top = max((*values, 1e-9))
    step = 10 ** math.floor(math.log10(top))
    step = next(step * factor for factor in (0.2, 0.5, 1, 2, 5) if top / (step * factor) <= 6)
    count = math.ceil(top / step)
    return Axis(label=label, low=0, high=count * step, ticks=tuple(number * step for number in range(count + 1)))


def logarithmic(label: str, values: Sequence[float], ticks: Sequence[float] = ()) -> Axis:
    """Whole powers of ten around the values, or exactly the given ticks."""
    low = 10 ** math.floor(math.log10(min(values)))
    high = 10 ** math.ceil(math.log10(max(values)))
    if ticks:
        return Axis(label=label, low=min(ticks), high=max(ticks), ticks=tuple(ticks), log=True)
    powers = round(math.log10(high / low))
    return Axis(
        label=label, low=low, high=high, ticks=tuple(low * 10**number for number in range(powers + 1)), log=True
    )


def plot(title: str, subtitle: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """The whole picture."""
    legend, height = _legend(series)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        _text(LEFT, 24, title, size=15, weight=600),
        _text(LEFT, 42, subtitle, fill="#64748b"),
        *_axes(x, y),
        *(part for number, each in enumerate(series) for part in _drawn(each, COLOURS[number % 6], x, y)),
        *legend,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _axes(x: Axis, y: Axis) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for tick in y.ticks:
        at = _y(y, tick)
        parts.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}" stroke="#e2e8f0"/>')
        parts.append(_text(LEFT - 8, at + 4, y.text(tick), anchor="end", fill="#475569"))
    for tick in x.ticks:
        at = _x(x, tick)
        parts.append(f'<line x1="{at:.1f}" y1="{bottom}" x2="{at:.1f}" y2="{bottom + 5}" stroke="#475569"/>')
        parts.append(_text(at, bottom + 18, x.text(tick), anchor="middle", fill="#475569"))
    parts.append(f'<line x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}" stroke="#475569"/>')
    parts.append(_text(LEFT + (right - LEFT) / 2, bottom + 36, x.label, anchor="middle", fill="#334155"))
    middle = TOP + (bottom - TOP) / 2
    label = escape(y.label)
    parts.append(
        f'<text transform="translate(18 {middle:.0f}) rotate(-90)" text-anchor="middle" fill="#334155">{label}</text>'
    )
    return parts


def _drawn(series: Series, colour: str, x: Axis, y: Axis) -> list[str]:
    places = [(_x(x, px), _y(y, py)) for px, py in series.points]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    dash = ' stroke-dasharray="6 4"' if series.dashed else ""
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']
    for (px, _), (low, high) in zip(places, series.bands, strict=False):
        parts.append(
            f'<line x1="{px:.1f}" y1="{_y(y, low):.1f}" x2="{px:.1f}" y2="{_y(y, high):.1f}" '
            f'stroke="{colour}" stroke-width="5" stroke-opacity="0.3"/>'
        )
    if series.markers:
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{colour}"/>' for px, py in places]
    return parts


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """In as many lines as it takes, below the axis; and the height of the whole picture."""
    parts: list[str] = []
    at, y = LEFT, HEIGHT + 8
    for number, each in enumerate(series):
        colour, dash = COLOURS[number % 6], ' stroke-dasharray="6 4"' if each.dashed else ""
        wide = 26 + 7 * len(each.name) + 18
        if at > LEFT and at + wide > WIDTH:
            at, y = LEFT, y + LEGEND_LINE
        stroke = f'stroke="{colour}" stroke-width="2"{dash}'
        parts.append(f'<line x1="{at}" y1="{y - 4}" x2="{at + 20}" y2="{y - 4}" {stroke}/>')
        parts.append(_text(at + 26, y, each.name, fill="#334155"))
        at += wide
    return parts, y + 14


def _text(x: float, y: float, text: str, **look: object) -> str:
    anchor, size = look.get("anchor", "start"), look.get("size", 12)
    fill, weight = look.get("fill", "#0f172a"), look.get("weight", 400)
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
        f'fill="{fill}">{escape(text)}</text>'
    )


def _x(axis: Axis, value: float) -> float:
    return LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT)


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - axis.part(value) * (HEIGHT - TOP - BOTTOM)
