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

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
TINY = {
    "by_hand": ["--engines=scripted", "--rounds=1"],
    "events": ["--streams=1x1,1x3,3x2", "--seconds=0.5"],
    "finished_runs": ["--finished=20", "--requests=1"],
    "help": ["--rounds=1"],
    "large_data": ["--megabytes=2"],
    "replies": ["--replies=2", "--sandbox=off"],
    "server": ["--waiting=20,40", "--rounds=1", "--idle=0.1"],
    "snapshots": ["--files=20", "--megabytes=1", "--rounds=1"],
    "spawning": ["--programs=4", "--rounds=1"],
    "throughput": ["--runs=4", "--slots=1,2", "--rounds=1", "--sandbox=off"],
    "waiting_runs": ["--many=20", "--replies=2"],
    "warm_replies": ["--engines=codex", "--times=1"],
    "warm_starts": ["--engines=codex", "--times=1"],
}
SLOW = {"by_hand", "finished_runs", "server", "waiting_runs", "warm_replies", "warm_starts"}
HELPERS = {"all", "charts", "pictures", "report", "servers", "thin_http"}

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


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long if name in SLOW else ()) for name in TINY])
def test_a_benchmark_measures_something(name: str, tmp_path: Path) -> None:
    if name in ("warm_replies", "warm_starts") and not (ROOT / "tests" / "real" / "node_modules").exists():
        pytest.skip("the real engines are not installed: npm ci --prefix tests/real")
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


def test_pictures_and_tables_are_made_from_the_documents(tmp_path: Path) -> None:
    results, docs = tmp_path / "results", tmp_path / "docs"
    results.mkdir()
    (docs / "explanation").mkdir(parents=True)
    page = docs / "explanation" / "performance.md"
    shutil.copyfile(ROOT / "docs" / "explanation" / "performance.md", page)
    rows = {
        "replies": [figures("from a reply", "ms", 0)],
        "throughput": [figures(f"runs, {n} slots, sandbox off", "/s", n, more_is_better=True) for n in (1, 64)],
        "server": [figures(f"memory, {n} waiting", "MB", n) for n in (10, 100)],
        "events": [figures(f"1 runs, {n} clients each", "ms", n) for n in (1, 100)],
    }
    about = {"title": "T & T", "floor_is": "by hand", "command": "python x.py", "date": "2026-01-01"}
    about |= {"machine": {"cores": 2, "processor": "P", "python": "3", "memory_gb": 4, "system": "S"}}  # type: ignore[dict-item]
    for name, each in rows.items():
        document = {**about, "benchmark": name, "parameters": {"sandbox": "off"}, "rows": each}
        (results / f"{name}.json").write_text(json.dumps(document))
    for _ in range(2):
        argv = [sys.executable, str(BENCHMARKS / "pictures.py"), f"--results={results}", f"--docs={docs}"]
        subprocess.run(argv, check=True, timeout=60)
        text = page.read_text()
        assert text.count("### T & T") == len(rows)
        assert "| runs, 1 slot, sandbox off |" in text
        assert "| 1 run, 1 client each |" in text
        assert "| 1 run, 100 clients each |" in text
        for name in rows:
            assert f"../images/bench-{name}.svg" in text
            assert ElementTree.parse(docs / "images" / f"bench-{name}.svg").getroot().tag.endswith("svg")
