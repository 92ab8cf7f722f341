"""What all benchmarks share: progress on stderr, a table, and one JSON document with the machine and the command."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_SAMPLES = 2000
"""A JSON document keeps at most so many samples of a row, evenly chosen."""


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def p99(values: Sequence[float]) -> float:
    return quantile(values, 0.99)


def progress(text: str) -> None:
    print(f"   {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    what: str
    unit: str
    samples: tuple[float, ...]
    floor: tuple[float, ...] = ()
    """The same without Askback, or without what is measured; from the same run of the benchmark."""
    x: float | None = None
    """The size that the row was measured with."""
    more_is_better: bool = False

    @property
    def ratio(self) -> float | None:
        if not self.floor or not statistics.median(self.floor):
            return None
        return statistics.median(self.samples) / statistics.median(self.floor)

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "x": self.x,
            "more_is_better": self.more_is_better,
            "ratio": self.ratio,
            **_figures(self.samples),
            "floor": _figures(self.floor) if self.floor else None,
        }


def _figures(samples: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(samples)
    step = max(1, -(-len(ordered) // MAX_SAMPLES))
    return {
        "count": len(ordered),
        "median": statistics.median(ordered),
        "low": ordered[0],
        "p10": quantile(ordered, 0.1),
        "p90": quantile(ordered, 0.9),
        "p99": p99(ordered),
        "high": ordered[-1],
        "samples": [round(each, 4) for each in ordered[::step]],
    }


@dataclass
class Report:
    name: str
    title: str
    floor_is: str
    """What the floor of the rows is, in a few words."""
    rows: list[Row] = field(default_factory=list)
    load: float = field(default_factory=lambda: os.getloadavg()[0])
    """How many processes wanted a processor in the minute before."""

    def add(self, what: str, unit: str, samples: Sequence[float], floor: Sequence[float] = (), **more: Any) -> None:
        self.rows.append(Row(what=what, unit=unit, samples=tuple(samples), floor=tuple(floor), **more))

    def table(self) -> str:
        heads = ("", "median", "spread", "p99", "floor", "ratio")
        lines = [heads, *(self._cells(row) for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
        texts = []
        for line in lines:
            first, *rest = line
            texts.append("  ".join((first.ljust(widths[0]), *map(str.rjust, rest, widths[1:]))).rstrip())
        return "\n".join((self.title, f"floor: {self.floor_is}", *texts))

    def _cells(self, row: Row) -> tuple[str, ...]:
        low, high = quantile(row.samples, 0.1), quantile(row.samples, 0.9)
        many = len(row.samples) > 1
        return (
            row.what,
            f"{short(statistics.median(row.samples))} {row.unit}",
            f"{short(low)} to {short(high)}" if many else "",
            short(p99(row.samples)) if len(row.samples) >= 20 and not row.more_is_better else "",
            short(statistics.median(row.floor)) if row.floor else "",
            "" if row.ratio is None else _ratio(row),
        )

    def document(self, asked: argparse.Namespace) -> dict[str, Any]:
        parameters = {name: value for name, value in vars(asked).items() if name != "json"}
        return {
            "benchmark": self.name,
            "title": self.title,
            "floor_is": self.floor_is,
            "command": " ".join(("python", f"benchmarks/{self.name}.py", *_without_json(sys.argv[1:]))),
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(),
            "load": round(self.load, 1),
            "parameters": {
                name: value if isinstance(value, int | float) else str(value) for name, value in parameters.items()
            },
            "rows": [row.document() for row in self.rows],
        }


def _ratio(row: Row) -> str:
    assert row.ratio is not None
    return f"{row.ratio:.0%}" if row.more_is_better else f"{row.ratio:.2f}x"


def short(figure: float) -> str:
    """Three significant digits."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"


def _without_json(words: Sequence[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if not skip and not word.startswith("--json"):
            kept.append(word)
        skip = word == "--json"
    return kept


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def parser(docs: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=docs, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the figures as one JSON document")
    return made


def run(arguments: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], Report]) -> None:
    asked = arguments.parse_args()
    report = measure(asked)
    print(report.table(), flush=True)
    if asked.json is not None:
        asked.json.write_text(_one_line_samples(json.dumps(report.document(asked), indent=1)) + "\n")


def _one_line_samples(text: str) -> str:
    """A list of numbers in one line: a document with thousands of samples stays readable, and so do its changes."""
    return re.sub(r"\[\s+([-+.eE\d,\s]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]
