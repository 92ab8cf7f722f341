"""Whole runs per second with an engine that ends at once, beside a bare loop that only starts the same program.

Usage: python benchmarks/throughput.py [RUNS] [SLOTS]
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from askback.bootstrap import opened
from askback.core.runs import RunState
from askback.engines import registry
from askback.settings import load
from askback.submission import Submission

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
SLOTS = int(sys.argv[2]) if len(sys.argv) > 2 else 8


def skill(folder: Path) -> str:
    package = folder / "instant"
    (package / "assets").mkdir(parents=True)
    (package / "SKILL.md").write_text("---\nname: instant\ndescription: Ends at once.\n---\nEnd.\n")
    script = {"turns": [[{"finish": {"ok": True}}]]}
    (package / "assets" / "scripted.json").write_text(json.dumps(script))
    return str(package)


async def whole_runs(folder: Path) -> tuple[float, float]:
    """Seconds of wall time, and of our own process's CPU."""
    (folder / "askback.toml").write_text(f"slots = {SLOTS}\n")
    settings = load(folder / "askback.toml", data_dir=folder / "data")
    package = skill(folder)
    async with opened(settings) as app, app.working():
        wanted = Submission(skill=package, engine="scripted", mode="auto")
        await app.service.submit(wanted)
        before, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        runs = await asyncio.gather(*(app.service.submit(wanted) for _ in range(RUNS)))
        for run in runs:
            async for _ in app.service.follow(run.id):
                pass
        seconds, after = time.perf_counter() - before, resource.getrusage(resource.RUSAGE_SELF)
        states = [(await app.service.store.get(run.id)).state for run in runs]
        assert set(states) == {RunState.SUCCEEDED}
    return seconds, after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime


def bare_loop(folder: Path) -> float:
    """The floor: start the program, hand it a prompt, read it to its end; `SLOTS` side by side."""
    argv = [*registry.get("scripted").default_command, f"--script={folder}/instant/assets/scripted.json", "--mode=auto"]
    before = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for number in range(RUNS):
        home = folder / "floor" / str(number)
        home.mkdir(parents=True)
        running.append(
            subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={"HOME": str(home)},
                start_new_session=True,
            )
        )
        if len(running) >= SLOTS:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return time.perf_counter() - before


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds, cpu = asyncio.run(whole_runs(folder))
        floor = bare_loop(folder)
    print(f"{RUNS} runs, {SLOTS} slots")
    print(f"bare spawn loop   {RUNS / floor:8.1f} /s")
    print(f"whole runs        {RUNS / seconds:8.1f} /s   {floor / seconds:.0%} of the floor")
    print(f"our own CPU       {cpu / RUNS * 1000:8.2f} ms a run")


if __name__ == "__main__":
    main()
