"""How long a reply takes to become the model's next request, in a warm process and in a new one, for each real engine.

python benchmarks/warm_replies.py [--engines codex,claude] [--times 7] [--sandbox off] [--json FILE]

The engines are those of `tests/real` (`npm ci --prefix tests/real`); a program on loopback plays the model and notes when
it is asked. Runs with a warm process and without one alternate. Each asks once, and is answered as soon as it is settled.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import report

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "real")]

from clis import NotInstalled  # noqa: E402
from double import ModelDouble, Request, Step, say  # noqa: E402
from engines_under_test import ENGINES, EngineUnderTest  # noqa: E402
from suite import Stage, finish, question  # noqa: E402

from askback.app import App  # noqa: E402
from askback.catalog import probes  # noqa: E402
from askback.engines import registry  # noqa: E402
from support.data_folder import over, until, waiting  # noqa: E402

WARM = "warm_sec = 600\nwarm.min_free_memory = 0\nwarm.max_memory = 0\n"


class Asked:
    """When the model was asked for the second turn."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self, request: Request) -> Step:
        self.at = time.monotonic()
        return say(finish())


async def reply_ms(stage: Stage, app: App, double: ModelDouble, skill: str, *, warm: bool) -> float:
    asked = Asked()
    double.play(say(question()), asked)
    run = await stage.submit(app, skill, options={"warm_sec": 600 if warm else 0})
    await waiting(app, run.id)
    if warm:
        await until(lambda: (parked := app.warm.find(run.id)) is not None and parked.memory_bytes > 0)
    else:
        await until(lambda: app.slots.taken == 0)
    began = time.monotonic()
    await app.service.reply(run.id, "green")
    ended = await over(app, run.id)
    if ended.error is not None:
        raise RuntimeError(f"{stage.engine.name}: {ended.error}")
    return 1000 * (asked.at - began)


def measure(engine: EngineUnderTest, times: int, sandbox: str) -> tuple[list[float], list[float]]:
    """Milliseconds with a new process, and with a warm one. The first pair is not counted: it probes the program."""
    results: dict[bool, list[float]] = {False: [], True: []}

    async def main(stage: Stage, double: ModelDouble) -> None:
        skill = stage.skill()
        async with stage.working(f'{WARM}sandbox = "{sandbox}"\n') as app:
            for _ in range(times + 1):
                for warm, found in results.items():
                    found.append(await reply_ms(stage, app, double, skill, warm=warm))
            if app.warm.hits != times + 1:
                raise RuntimeError(f"only {app.warm.hits} replies met a warm process: {dict(app.warm.drops)}")

    with ModelDouble() as double, tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(BareStage(Path(folder), engine, double.url, Path(folder, "probes.json")), double))
    return results[False][1:], results[True][1:]


class BareStage(Stage):
    """Without the sandbox of the tests: the settings name one."""

    def settings(self, config: str = "") -> Any:
        return super(Stage, self).settings(config + "\n" + self._engine_settings)


def compare(asked: argparse.Namespace) -> report.Report:
    probes.PROBE_SEC = 180.0
    made = report.Report("warm_replies", "From a reply to the model's next request, in a warm process", "a new process")
    for name in asked.engines.split(","):
        engine = registry.get(name)
        if not (engine.warm):
            continue
        try:
            ENGINES[name].find()
        except NotInstalled as missing:
            report.progress(f"{name} is left out: {missing}")
            continue
        report.progress(name)
        new, warm = measure(ENGINES[name], asked.times, asked.sandbox)
        made.add(name, "ms", warm, new)
    return made


def main() -> None:
    arguments = report.parser(__doc__)
    arguments.add_argument("--engines", default=",".join(ENGINES), help="names, separated by commas")
    arguments.add_argument("--times", type=int, default=7)
    arguments.add_argument("--sandbox", choices=("off", "auto"), default="off")
    report.run(arguments, compare)


if __name__ == "__main__":
    main()
