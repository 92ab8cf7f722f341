"""The pictures and tables of the pages about performance and scale, made from the JSON documents of the benchmarks.

python benchmarks/pictures.py [--results benchmarks/results] [--docs docs]
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from charts import Axis, Series, linear, logarithmic, plot
from report import short
from scale import arithmetic

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- figures: made by `make bench` from benchmarks/results, not to be edited -->"
END = "<!-- end of figures -->"
Document = Mapping[str, Any]
ORDER = (
    "warm_replies",
    "warm_starts",
    "replies",
    "by_hand",
    "throughput",
    "events",
    "server",
    "finished_runs",
    "waiting_runs",
    "fleet",
    "turn_costs",
    "waiting_in_postgres",
    "listeners",
    "backlog",
    "large_data",
    "spawning",
    "endings",
    "snapshots",
    "durable_files",
    "help",
)


# Pictures.


def distribution(document: Document) -> str:
    """Which part of the samples is at most how long."""
    rows = document["rows"]
    series = [Series(name=row["what"], points=_cumulated(row["samples"]), markers=False) for row in rows]
    floor = next((row["floor"] for row in rows if row["floor"]), None)
    if floor is not None:
        points = _cumulated(floor["samples"])
        series.append(Series(name=document["floor_is"], points=points, dashed=True, markers=False))
    times = [x for each in series for x, _ in each.points]
    x = logarithmic("milliseconds", times)
    y = Axis(label="of all measurements", low=0, high=100, ticks=(0, 25, 50, 75, 90, 100), text=lambda v: f"{v:g} %")
    return plot(document["title"], _where(document), x, y, series)


def _cumulated(samples: Sequence[float]) -> tuple[tuple[float, float], ...]:
    ordered = sorted(max(each, 0.01) for each in samples)
    return tuple((value, 100 * number / len(ordered)) for number, value in enumerate(ordered, 1))


def by_slots(document: Document) -> str:
    """Throughput against slots, with the floor."""
    sandbox = document["parameters"]["sandbox"].partition(",")[0]
    rows = [row for row in document["rows"] if row["unit"] == "/s" and row["what"].endswith(f"sandbox {sandbox}")]
    series = [_line("whole runs over HTTP", rows), _line(document["floor_is"], rows, floor=True)]
    slots = [row["x"] for row in rows]
    values = [value for each in series for _, value in each.points]
    return plot(
        document["title"],
        _where(document),
        Axis(label="slots", low=min(slots), high=max(slots), ticks=tuple(slots), log=True),
        logarithmic("runs per second", values),
        series,
    )


def by_waiting(document: Document) -> str:
    """What a server with waiting runs takes, as a multiple of one with few."""
    kinds: dict[str, list[Any]] = {}
    for row in document["rows"]:
        if row["ratio"] is not None:
            kinds.setdefault(row["what"].rpartition(", ")[0].partition(", ")[0], []).append(row)
    series = [Series(name=name, points=tuple((row["x"], row["ratio"]) for row in rows)) for name, rows in kinds.items()]
    counts = sorted({row["x"] for row in document["rows"]})
    return plot(
        document["title"],
        f"as a multiple of {document['floor_is']}; {_where(document)}",
        logarithmic("waiting runs", counts, ticks=counts),
        linear("times", [value for each in series for _, value in each.points] + [2.0]),
        series,
    )


def by_clients(document: Document) -> str:
    """Delay of an event against the number of clients of one run."""
    rows = [row for row in document["rows"] if row["what"].startswith("1 runs") and row["unit"] == "ms"]
    series = [
        Series(name=name, points=tuple((row["x"], row[figure]) for row in rows))
        for name, figure in (("median", "median"), ("99 of 100", "p99"))
    ]
    clients = [row["x"] for row in rows]
    return plot(
        document["title"],
        _where(document),
        logarithmic("clients that follow one run", clients, ticks=clients),
        linear("milliseconds", [value for each in series for _, value in each.points]),
        series,
    )


def by_workers(document: Document) -> str:
    """Turns of a fleet against its workers, with Procrastinate alone and the floor."""
    turns, bare = (
        [row for row in document["rows"] if row["unit"] == "/s" and row["what"].startswith(start)]
        for start in ("turns", "empty jobs")
    )
    series = [
        _line("turns of a fleet", turns),
        _line("empty jobs of Procrastinate alone", bare),
        _line(document["floor_is"], turns, floor=True),
    ]
    workers = [row["x"] for row in turns]
    return plot(
        document["title"],
        _where(document),
        Axis(label="workers", low=min(workers), high=max(workers), ticks=tuple(workers), log=True),
        linear("per second", [value for each in series for _, value in each.points]),
        series,
    )


def by_listeners(document: Document) -> str:
    """Commits against the number of programs that listen."""
    rows = document["rows"]
    series = [_line("with a notification", rows), _line(document["floor_is"], rows, floor=True)]
    counts = [row["x"] for row in rows]
    return plot(
        document["title"],
        _where(document),
        Axis(label="listening programs", low=min(counts), high=max(counts), ticks=tuple(counts), log=True),
        linear("commits per second", [value for each in series for _, value in each.points]),
        series,
    )


def _line(name: str, rows: Sequence[Any], *, floor: bool = False) -> Series:
    figures = [row["floor"] if floor else row for row in rows]
    return Series(
        name=name,
        points=tuple((row["x"], each["median"]) for row, each in zip(rows, figures, strict=True)),
        bands=tuple((each["p10"], each["p90"]) for each in figures),
        dashed=floor,
    )


def _where(document: Document) -> str:
    machine = document["machine"]
    return f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}; {document['date']}"


PICTURES: Mapping[str, Callable[[Document], str]] = {
    "replies": distribution,
    "throughput": by_slots,
    "server": by_waiting,
    "events": by_clients,
    "fleet": by_workers,
    "listeners": by_listeners,
}


# The page.


def section(document: Document) -> str:
    """Heading, picture, command and table of one benchmark."""
    name = document["benchmark"]
    lines = [f"### {document['title']}", ""]
    if name in PICTURES:
        lines += [f"![{document['title']}](../images/bench-{name}.svg)", ""]
    lines += [
        f"`{document['command']}`, {document['date']}. The floor: {document['floor_is']}.{_disturbed(document)}",
        "",
        "| what | median | 10 to 90 of 100 | 99 of 100 | floor | ratio |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_table_row, document["rows"])])


def _disturbed(document: Document) -> str:
    """What to say if the machine was not idle when the benchmark began."""
    load = document.get("load", 0)
    if load < document["machine"]["cores"]:
        return ""
    return f" Other programs kept the machine busy (load {load:.0f}), so only the ratios and counts mean something."


def _table_row(row: Mapping[str, Any]) -> str:
    many = row["count"] > 1
    spread = f"{short(row['p10'])} to {short(row['p90'])}" if many else ""
    p99 = short(row["p99"]) if row["count"] >= 20 and not row["more_is_better"] else ""
    floor = short(row["floor"]["median"]) if row["floor"] else ""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.0%}" if row["more_is_better"] else f"{row['ratio']:.2f}x"
    # The documents name rows by one pattern, such as `1 runs, 100 clients each`, so that they can be compared.
    what = re.sub(r"\b1 (run|slot|client|worker|listener)s\b", r"1 \1", row["what"])
    return f"| {what} | {short(row['median'])} {row['unit']} | {spread} | {p99} | {floor} | {ratio} |"


# Skill-Runner 0.7.9 on a machine of the same kind, with the same engine; and the row that it is compared with.
OTHERS = (
    ("complete runs over HTTP, 64 slots", "8.4 /s", "throughput", "runs, 64 slots, sandbox off", "median"),
    (
        "CPU time of such a run",
        "110 ms",
        "throughput",
        "the server's own CPU time for a run, 64 slots, sandbox off",
        "median",
    ),
    ("reply to the engine's start, median", "67 ms", "replies", "from a reply, sandbox off", "median"),
    ("reply to the engine's start, 99 of 100", "81 ms", "replies", "from a reply, sandbox off", "p99"),
    ("start until healthy", "2.24 s", "server", "start to healthy, 100 waiting", "median"),
    ("memory of the server", "88 MB", "server", "memory, 100 waiting", "median"),
    ("event to a client", "polls every 200 ms", "events", "1 runs, 1 clients each", "median"),
)


def beside_others(documents: Sequence[Document]) -> str:
    """The figures that were also measured with another program of this kind."""
    rows = {(each["benchmark"], row["what"]): row for each in documents for row in each["rows"]}
    lines = ["### Beside Skill-Runner", "", "| what | Skill-Runner 0.7.9 | Askback |", "|---|---|---|"]
    for what, theirs, name, row, figure in OTHERS:
        if (found := rows.get((name, row))) is not None:
            lines.append(f"| {what} | {theirs} | {short(found[figure])} {found['unit']} |")
    lines += [
        "",
        "Skill-Runner was measured once, on another day, and both without a sandbox; only large differences mean something.",
    ]
    return "\n".join(lines)


def page(documents: Sequence[Document]) -> str:
    machine = documents[0]["machine"]
    head = (
        f"Measured on {machine['cores']} cores ({machine['processor']}) with {machine['memory_gb']:g} GB of memory, "
        f"{machine['system']}, Python {machine['python']}."
    )
    return "\n\n".join((BEGIN, head, *map(section, documents), beside_others(documents), END))


def write(results: Path, docs: Path) -> None:
    read = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    # Without the engines that it needs, a benchmark has nothing to show.
    found = {name: document for name, document in read.items() if document["rows"]}
    names = [name for name in ORDER if name in found] + sorted(found.keys() - set(ORDER))
    if not names:
        raise SystemExit(f"{results} has no JSON document; run `make bench`")
    (docs / "images").mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in PICTURES:
            (docs / "images" / f"bench-{name}.svg").write_text(PICTURES[name](found[name]))
    explanation = docs / "explanation"
    _fill(explanation / "performance.md", page([found[name] for name in names]))
    if figures := arithmetic(found):
        _fill(explanation / "scale.md", "\n\n".join((BEGIN, figures, END)))


def _fill(file: Path, figures: str) -> None:
    """Put the figures between their marks."""
    before, _, rest = file.read_text().partition(BEGIN)
    file.write_text(before + figures + rest.partition(END)[2])


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    arguments.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = arguments.parse_args()
    write(asked.results, asked.docs)
