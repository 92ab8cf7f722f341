"""How long a submission takes to become the model's first request, in a prewarmed process and in a new one.

python benchmarks/warm_starts.py [--engines codex,claude] [--times 7] [--sandbox off] [--json FILE]

The engines are those of `tests/real`, as in `warm_replies.py`. Runs with a prewarmed process and without one alternate. Each
is submitted when the process that is ready has nothing more to do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import report
from warm_replies import (
    ENGINES,
    WARM,
    App,
    Asked,
    BareStage,
    EngineUnderTest,
    ModelDouble,
    NotInstalled,
    Stage,
    over,
    probes,
    registry,
)

from askback.process.guardian import usage

SETTLE_SEC = 1.0
IDLE_TICKS = 2


def ticks(root: int) -> int:
    """The CPU time of a process and its descendants."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        todo += usage.children(pid)
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total


async def ready(app: App) -> None:
    """Wait until a process is ready, and has used almost no CPU time for a while."""
    while True:
        unused = [each.pid for each in app.warm.prewarmed if not each.reserved]
        before = sum(ticks(pid) for pid in unused)
        await asyncio.sleep(SETTLE_SEC)
        if unused and sum(ticks(pid) for pid in unused) - before <= IDLE_TICKS:
            return


async def start_ms(stage: Stage, app: App, double: ModelDouble, skill: str, *, prewarmed: bool) -> float:
    asked = Asked()
    double.play(asked)
    await ready(app)
    began = time.monotonic()
    run = await stage.submit(app, skill, options={} if prewarmed else {"warm_sec": 0})
    ended = await over(app, run.id)
    if ended.error is not None:
        raise RuntimeError(f"{stage.engine.name}: {ended.error}")
    return 1000 * (asked.at - began)


def measure(engine: EngineUnderTest, times: int, sandbox: str) -> tuple[list[float], list[float]]:
    """Milliseconds with a new process, and with a prewarmed one."""
    results: dict[bool, list[float]] = {False: [], True: []}

    async def main(stage: Stage, double: ModelDouble) -> None:
        skill = stage.skill()
        async with stage.working(f'{WARM}sandbox = "{sandbox}"\n', serving=True) as app:
            for _ in range(times):
                for prewarmed, found in results.items():
                    found.append(await start_ms(stage, app, double, skill, prewarmed=prewarmed))
            if app.prewarming.hits != times:
                raise RuntimeError(f"only {app.prewarming.hits} runs met a prewarmed process: {dict(app.warm.drops)}")

    setting = f"ASKBACK_ENGINES__{engine.name.upper()}__PREWARM"
    os.environ[setting] = "1"
    with ModelDouble() as double, tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(BareStage(Path(folder), engine, double.url, Path(folder, "probes.json")), double))
    del os.environ[setting]
    return results[False], results[True]


def compare(asked: argparse.Namespace) -> report.Report:
    probes.PROBE_SEC = 180.0
    title = "From a submission to the model's first request, in a prewarmed process"
    made = report.Report("warm_starts", title, "a new process")
    for name in asked.engines.split(","):
        engine = registry.get(name)
        if not engine.warm:
            continue
        try:
            ENGINES[name].find()
        except NotInstalled as missing:
            report.progress(f"{name} is left out: {missing}")
            continue
        report.progress(name)
        new, prewarmed = measure(ENGINES[name], asked.times, asked.sandbox)
        made.add(name, "ms", prewarmed, new)
    return made


def main() -> None:
    arguments = report.parser(__doc__)
    arguments.add_argument("--engines", default=",".join(ENGINES), help="names, separated by commas")
    arguments.add_argument("--times", type=int, default=7)
    arguments.add_argument("--sandbox", choices=("off", "auto"), default="off")
    report.run(arguments, compare)


if __name__ == "__main__":
    main()
