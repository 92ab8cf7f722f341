"""The arithmetic of the page about scale: what the measured costs of one turn and one waiting run come to in large numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from report import short

NEEDED = ("fleet", "turn_costs", "waiting_in_postgres", "listeners")
RATES = (10, 100, 1000)
"""Turns a second."""
TURN_SEC = 60
SLOTS = 64
"""Of a worker."""
DAY_SEC = 86_400
Document = Mapping[str, Any]


class Measured:
    """The medians of the documents."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents

    def __call__(self, name: str, what: str) -> float:
        return float(next(row["median"] for row in self._documents[name]["rows"] if row["what"] == what))

    def last(self, name: str, start: str) -> tuple[int, float]:
        """Of the rows that begin so, the one with the largest size: the size, and the median."""
        rows = [row for row in self._documents[name]["rows"] if row["what"].startswith(start)]
        row = max(rows, key=lambda each: float(each["x"]))
        return int(row["x"]), float(row["median"])

    def first_unit(self, name: str, start: str) -> float:
        return float(next(row["median"] for row in self._documents[name]["rows"] if row["what"].startswith(start)))


def arithmetic(documents: Mapping[str, Document]) -> str:
    """The tables; empty if one of the documents is not there."""
    if any(name not in documents for name in NEEDED):
        return ""
    measured = Measured(documents)
    machine = documents["turn_costs"]["machine"]
    head = (
        f"Measured on {machine['cores']} cores ({machine['processor']}) with PostgreSQL on the same machine; "
        f"[performance](performance.md) has the figures and their spread.{_disturbed(documents)}"
    )
    return "\n\n".join((head, _turns(measured), _waiting(measured), _bounds(measured)))


def _disturbed(documents: Mapping[str, Document]) -> str:
    if all(documents[name].get("load", 0) < documents[name]["machine"]["cores"] for name in NEEDED):
        return ""
    return " Other programs kept the machine busy meanwhile, so the times are too high, and the limits too low."


def _turns(measured: Measured) -> str:
    lines = [
        f"| | one turn | {' | '.join(f'{rate:,} turns/s' for rate in RATES)} |",
        f"|---|---|{'---|' * len(RATES)}",
    ]

    def add(what: str, one: float, unit: str, each: Callable[[float], str]) -> None:
        cells = " | ".join(each(one * rate) for rate in RATES)
        lines.append(f"| {what} | {short(one)}{unit} | {cells} |")

    costs = "turn_costs"
    notified = sum(measured(costs, f"notifications of {kind} in a turn") for kind in ("moved runs", "events"))
    add("transactions that write", measured(costs, "write transactions of a turn"), "", lambda n: f"{short(n)} /s")
    add("of these, with a notification", notified, "", lambda n: f"{short(n)} /s")
    add("WAL", measured(costs, "WAL of a turn"), " KB", _wal)
    add("rows of events", measured(costs, "events of a turn"), "", lambda n: f"{_large(n * DAY_SEC)} a day")
    add("objects written", measured(costs, "objects written in a turn"), "", lambda n: f"{_large(n * DAY_SEC)} a day")
    for part in ("database", "server", "worker"):
        name = f"CPU time of the {part}{'' if part == 'database' else 's'}"
        cpu = measured.first_unit("fleet", f"of it in the {part},")
        add(name, cpu, " ms", lambda n: f"{short(n / 1000)} cores")
    add(f"slots, if a turn takes {TURN_SEC} s", TURN_SEC, " s", lambda n: f"{n:,.0f}")
    workers = [max(1, round(rate * TURN_SEC / SLOTS)) for rate in RATES]
    own = measured(costs, "connections of a worker")
    lines.append(f"| workers of {SLOTS} slots | | {' | '.join(f'{each:,}' for each in workers)} |")
    lines.append(
        f"| connections of these workers | {own:.0f} each | {' | '.join(f'{each * own:,.0f}' for each in workers)} |"
    )
    return "\n".join(lines)


def _wal(kilobytes: float) -> str:
    return f"{short(kilobytes / 1024)} MB/s, {short(kilobytes * DAY_SEC / 1024**2)} GB a day"


def _large(number: float) -> str:
    return f"{short(number / 1e6)} million"


def _waiting(measured: Measured) -> str:
    _, tables = measured.last("waiting_in_postgres", "rows of the tables,")
    count, indexes = measured.last("waiting_in_postgres", "indexes,")
    size = tables + indexes
    cells = " | ".join(f"{short(size * number / 1024**2)} GB" for number in (1e6, 1e7, 1e8))
    return "\n".join(
        (
            f"| measured with {count:,} | one waiting run | 1 million | 10 million | 100 million |",
            "|---|---|---|---|---|",
            f"| size of the database | {short(size)} KB | {cells} |",
        )
    )


def _bounds(measured: Measured) -> str:
    listening, commits = measured.last("listeners", "commits,")
    notified = sum(measured("turn_costs", f"notifications of {kind} in a turn") for kind in ("moved runs", "events"))
    cpu = measured.first_unit("fleet", "of it in the database,")
    return (
        f"With {listening} listening programs, this machine performed {short(commits)} commits with a notification a second, "
        f"which are {short(commits / notified)} turns/s. One core of the database has time for {short(1000 / cpu)} turns/s."
    )
