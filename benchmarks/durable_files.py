"""What it costs that files are on the disk before their run is stored: an upload, an input file and an artifact.

python benchmarks/durable_files.py [--runs 40] [--at-once 1] [--folder /var/tmp]

Runs with files alternate with runs that have none, which are the floor. Every run is one turn of an engine that ends at once.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import report
from servers import INSTANT, Server, prepare, served

WRITING = 'if [ -d inputs ]; then echo done > artifacts/report.txt; fi\necho \'{"type":"turn.completed"}\''
FILE = {"type": "object", "properties": {"plan": {"type": "string", "x-input-source": "file"}}}
CONTENT = b"x" * 100_000
Figures = dict[str, list[float]]


def measure(server: Server, figures: Figures, *, files: bool) -> None:
    kind = "with" if files else "without"
    given: dict[str, Any] = {}
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.token}"}, timeout=60) as http:
        http.get("/v1/runs", params={"limit": 1})
        if files:
            began = time.perf_counter()
            uploaded = http.post("/v1/uploads", files={"file": ("plan.txt", CONTENT)}).raise_for_status().json()
            figures["upload"].append(1000 * (time.perf_counter() - began))
            given = {"plan": {"upload_id": uploaded["upload_id"]}}
        began = time.perf_counter()
        asked = {"skill": "instant", "engine": "scripted", "mode": "auto", "input": given}
        run = http.post("/v1/runs", json=asked).raise_for_status().json()
        submitted = time.perf_counter()
        while (state := http.get(f"/v1/runs/{run['id']}").json()["state"]) != "succeeded":
            if state in ("failed", "canceled"):
                raise RuntimeError(f"a run has ended as {state}")
            time.sleep(0.001)
    figures[f"submit {kind}"].append(1000 * (submitted - began))
    figures[f"turn {kind}"].append(1000 * (time.perf_counter() - submitted))


def compare(asked: argparse.Namespace) -> report.Report:
    figures: Figures = {f"{what} {kind}": [] for what in ("submit", "turn") for kind in ("with", "without")}
    figures["upload"] = []
    with tempfile.TemporaryDirectory(prefix="askback-bench-", dir=asked.folder) as name:
        folder = Path(name)
        prepare(folder, INSTANT.replace('echo \'{"type":"turn.completed"}\'', WRITING))
        assets = folder / "skills" / "instant" / "assets"
        assets.mkdir()
        (assets / "input.schema.json").write_text(json.dumps(FILE))
        with served(folder, folder / "data") as server, ThreadPoolExecutor(asked.at_once) as pool:
            measure(server, {key: [] for key in figures}, files=True)
            for _ in range(asked.runs):
                for files in (True, False):
                    list(pool.map(lambda _, files=files: measure(server, figures, files=files), range(asked.at_once)))
    made = report.Report("durable_files", f"Runs with files, {asked.at_once} at once", "a run without files")
    made.add("upload of 100 KB", "ms", figures["upload"])
    made.add("submit with an input file", "ms", figures["submit with"], figures["submit without"])
    made.add("turn with an artifact", "ms", figures["turn with"], figures["turn without"])
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--runs", type=int, default=40)
    arguments.add_argument("--at-once", type=int, default=1)
    arguments.add_argument("--folder", type=Path, default=None, help="on the file system to measure")
    report.run(arguments, compare)
