"""How long a run's home takes to save and to restore when a turn changed a little of it, beside a copy of the whole.

python benchmarks/snapshots.py [--files 1000] [--megabytes 50] [--changed 3] [--rounds 3] [--folder /var/tmp]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import report

from askback.workspace.snapshots import begin_turn

Begin = Callable[[Path, Path, int], None]


def whole_copy(home: Path, snapshots: Path, attempt_number: int) -> None:
    """The plain way: a durable copy of everything before a turn, and all of it back when it is taken up again."""
    saved = snapshots / str(attempt_number)
    if saved.exists():
        durable_copy(saved, home.with_name("restored"))
        shutil.rmtree(home)
        home.with_name("restored").rename(home)
        return
    durable_copy(home, saved)
    for other in snapshots.iterdir():
        if other != saved:
            shutil.rmtree(other)


def durable_copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True)
    for folder, _, names in os.walk(target):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


WAYS: dict[str, Begin] = {"whole copy": whole_copy, "askback": begin_turn}


def fill(home: Path, files: int, size: int) -> list[Path]:
    paths = [home / f"{number % 100:02d}" / f"{number}.jsonl" for number in range(files)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return paths


def append(paths: list[Path]) -> None:
    for path in paths:
        with path.open("ab") as file:
            file.write(b"one more line\n")


def seconds(begin: Begin, root: Path, attempt_number: int) -> float:
    began = time.perf_counter()
    begin(root / "home", root / "snapshots", attempt_number)
    return time.perf_counter() - began


def measure(begin: Begin, root: Path, asked: argparse.Namespace) -> dict[str, list[float]]:
    paths = fill(root / "home", asked.files, asked.megabytes * 1_000_000 // asked.files)
    (root / "snapshots").mkdir()
    os.sync()
    taken: dict[str, list[float]] = {"first save": [seconds(begin, root, 1)], "save": [], "restore": []}
    for attempt_number in range(2, asked.rounds + 2):
        append(paths[: asked.changed])
        taken["save"].append(seconds(begin, root, attempt_number))
        append(paths[: asked.changed])
        taken["restore"].append(seconds(begin, root, attempt_number))
    return taken


def compare(asked: argparse.Namespace) -> report.Report:
    taken: dict[str, dict[str, list[float]]] = {}
    for name, begin in WAYS.items():
        report.progress(f"{name}: {asked.files:,} files, {asked.megabytes} MB")
        with tempfile.TemporaryDirectory(prefix="askback-bench-", dir=asked.folder) as root:
            taken[name] = measure(begin, Path(root), asked)
    title = f"The home of a run: {asked.files:,} files, {asked.megabytes} MB, {asked.changed} changed in a turn"
    made = report.Report("snapshots", title, "a durable copy of the whole")
    plain, ours = (taken[name] for name in WAYS)
    for step, seen in ours.items():
        made.add(step, "ms", [1000 * each for each in seen], [1000 * each for each in plain[step]])
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    for name, value in {"files": 1_000, "megabytes": 50, "changed": 3, "rounds": 3}.items():
        arguments.add_argument(f"--{name}", type=int, default=value)
    arguments.add_argument("--folder", type=Path, default=None, help="on the file system to measure")
    report.run(arguments, compare)
