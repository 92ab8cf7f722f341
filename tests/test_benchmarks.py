"""Every benchmark still works: it runs at a tiny size, prints its table and writes its JSON document."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from askback.process.guardian.client import available
from support import machines, postgres

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
TINY = {
    "backlog": ["--queued=5,10", "--fetches=2", "--rounds=1"],
    "by_hand": ["--engines=scripted", "--rounds=1"],
    "durable_files": ["--runs=2", "--at-once=2"],
    "endings": ["--programs=10"],
    "events": ["--streams=1x1,1x3,3x2", "--seconds=0.5"],
    "fleet": ["--runs=4", "--replies=1", "--workers=1,2", "--rounds=1"],
    "finished_runs": ["--finished=20", "--requests=1"],
    "help": ["--rounds=1"],
    "large_data": ["--megabytes=2"],
    "listeners": ["--listening=1,3", "--seconds=0.2", "--rounds=1"],
    "replies": ["--replies=2", "--sandbox=off"],
    "server": ["--waiting=20,40", "--rounds=1", "--idle=0.1"],
    "snapshots": ["--files=20", "--megabytes=1", "--rounds=1"],
    "spawning": ["--programs=4", "--rounds=1"],
    "throughput": ["--runs=4", "--slots=1,2", "--rounds=1", "--sandbox=off"],
    "turn_costs": ["--runs=2", "--rounds=1"],
    "waiting_in_postgres": ["--waiting=150", "--requests=1", "--replies=1", "--rounds=1", "--idle=0.1"],
    "waiting_runs": ["--many=20", "--replies=2"],
    "warm_replies": ["--engines=codex", "--times=1"],
    "warm_starts": ["--engines=codex", "--times=1"],
}
QUICK = {"endings", "spawning"}
"""Those of `make test`; the others are long tests."""
OF_FLEETS = {"backlog", "fleet", "listeners", "turn_costs", "waiting_in_postgres"}
HELPERS = {
    "all",
    "bare_queue",
    "charts",
    "copied_runs",
    "fleets",
    "pictures",
    "report",
    "scale",
    "servers",
    "thin_http",
}

pytestmark = pytest.mark.skipif(not available(), reason="the benchmarks need Linux")


def run(name: str, folder: Path) -> tuple[dict[str, Any], str]:
    file = folder / f"{name}.json"
    argv = [sys.executable, str(BENCHMARKS / f"{name}.py"), *TINY[name], f"--json={file}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(file.read_text())
    return document, done.stdout


def test_every_benchmark_is_tried() -> None:
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == TINY.keys() | HELPERS


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in TINY])
def test_a_benchmark_measures_something(name: str, tmp_path: Path) -> None:
    if name in ("warm_replies", "warm_starts") and not (ROOT / "tests" / "real" / "node_modules").exists():
        pytest.skip("the real engines are not installed: npm ci --prefix tests/real")
    if name in OF_FLEETS and (reason := postgres.missing() or machines.missing()) is not None:
        pytest.skip(reason)
    document, printed = run(name, tmp_path)
    assert document["benchmark"] == name
    assert document["rows"]
    for row in document["rows"]:
        assert row["what"] in printed
        assert row["count"] == len(row["samples"]) > 0
        assert row["p10"] <= row["median"] <= row["p99"] <= row["high"]
    assert any(row["floor"] for row in document["rows"]), "a figure without its floor says little"
    assert name in document["command"]
    assert "json" not in document["command"]


def figures(what: str, unit: str, x: int, *, more_is_better: bool = False) -> dict[str, Any]:
    measured = {"count": 3, "median": 2.0, "low": 1.0, "p10": 1.0, "p90": 3.0, "p99": 3.0, "high": 3.0}
    measured["samples"] = [1.0, 2.0, 3.0]  # type: ignore[assignment]
    rest = {"what": what, "unit": unit, "x": x, "more_is_better": more_is_better, "ratio": 1.0}
    return {**rest, **measured, "floor": measured}


def of_a_fleet() -> dict[str, list[dict[str, Any]]]:
    parts = [figures(f"of it in the {part}, 1 workers", "ms", 1) for part in ("server", "worker", "database")]
    rates = [figures(f"{what}, 1 workers", "/s", 1, more_is_better=True) for what in ("turns", "empty jobs")]
    counted = ("write transactions of a turn", "WAL of a turn", "events of a turn", "objects written in a turn")
    heard = (f"notifications of {what} in a turn" for what in ("moved runs", "events"))
    return {
        "fleet": rates + parts,
        "turn_costs": [figures(what, "times", 0) for what in (*counted, *heard, "connections of a worker")],
        "waiting_in_postgres": [figures(f"{what}, 5 waiting", "KB", 5) for what in ("rows of the tables", "indexes")],
        "listeners": [figures(f"commits, {n} listeners", "/s", n, more_is_better=True) for n in (1, 100)],
    }


def test_pictures_and_tables_are_made_from_the_documents(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    (docs / "explanation").mkdir(parents=True)
    page, scale = (docs / "explanation" / f"{name}.md" for name in ("performance", "scale"))
    for each in (page, scale):
        shutil.copyfile(ROOT / "docs" / "explanation" / each.name, each)
    rows = {
        "replies": [figures("from a reply", "ms", 0)],
        "throughput": [figures(f"runs, {n} slots, sandbox off", "/s", n, more_is_better=True) for n in (1, 64)],
        "server": [figures(f"memory, {n} waiting", "MB", n) for n in (10, 100)],
        "events": [figures(f"1 runs, {n} clients each", "ms", n) for n in (1, 100)],
        **of_a_fleet(),
    }
    about = {"title": "T & T", "floor_is": "by hand", "command": "python x.py", "date": "2026-01-01"}
    about |= {"machine": {"cores": 2, "processor": "P", "python": "3", "memory_gb": 4, "system": "S"}}  # type: ignore[dict-item]
    for name, each in rows.items():
        load = 7.0 if name == "fleet" else 0.1
        document = {**about, "benchmark": name, "parameters": {"sandbox": "off"}, "rows": each, "load": load}
        (results / f"{name}.json").write_text(json.dumps(document))
    for _ in range(2):
        argv = [sys.executable, str(BENCHMARKS / "pictures.py"), f"--results={results}", f"--docs={docs}"]
        subprocess.run(argv, check=True, timeout=60)
        text = page.read_text()
        assert text.count("### T & T") == len(rows)
        assert text.count("kept the machine busy (load 7)") == 1
        assert "| runs, 1 slot, sandbox off |" in text
        assert "| 1 run, 1 client each |" in text
        assert "| 1 run, 100 clients each |" in text
        assert scale.read_text().count("| transactions that write | 2.00 | 20.0 /s | 200 /s | 2,000 /s |") == 1
        assert "| size of the database | 4.00 KB |" in scale.read_text()
        for name in rows.keys() - {"turn_costs", "waiting_in_postgres"}:
            assert f"../images/bench-{name}.svg" in text
            assert ElementTree.parse(docs / "images" / f"bench-{name}.svg").getroot().tag.endswith("svg")
