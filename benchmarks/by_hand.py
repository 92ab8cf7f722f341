"""A whole run beside calling the same CLI by hand, in turns: the real engines with a model on loopback, and `scripted`.

python benchmarks/by_hand.py [--engines scripted,codex,claude] [--rounds 5]

The command, its environment and its input are those that Askback used. An engine that is not installed for the tests
(`npm ci --prefix tests/real`) is left out.
"""

# The model on loopback belongs to the tests.
# ruff: noqa: E402
from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "real"), str(TESTS)]

from clis import NotInstalled
from double import ModelDouble, always, say
from engines_under_test import ENGINES

from askback.app import App, opened
from askback.core.runs import RunState
from askback.process.child import Child, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.runs.submission import Submission
from askback.settings.files import load

DONE = '```json\n{"colour": "blue", "__SKILL_DONE__": true}\n```'
Figures = dict[str, list[float]]


@dataclass(kw_only=True)
class Stage:
    """One engine, its model and a data folder."""

    name: str
    folder: Path
    config: str
    model: ModelDouble | None
    skill: str = ""
    calls: list[SpawnRequest] = field(default_factory=list)
    """What Askback has started."""

    @property
    def home(self) -> Path:
        return self.folder / "engine-home"

    def requests(self) -> int:
        return 0 if self.model is None else len(self.model.requests)

    def note_first_request(self, began: float, figures: list[float]) -> threading.Thread | None:
        """A thread that notes when the model gets its next request."""
        if self.model is None:
            return None
        model, count = self.model, self.requests() + 1

        def wait() -> None:
            model.wait_for_requests(count)
            figures.append((time.perf_counter() - began) * 1000)

        waiting = threading.Thread(target=wait)
        waiting.start()
        return waiting


def staged(name: str, folder: Path, stack: ExitStack) -> Stage:
    """Raises `NotInstalled`."""
    (folder / "engine-home").mkdir()
    config, model = "", None
    if name != "scripted":
        engine = ENGINES[name]
        command = engine.find()
        model = stack.enter_context(ModelDouble())
        model.play(always(say(DONE)))
        config = engine.settings(command, model.url, folder / "engine-home")
    stage = Stage(name=name, folder=folder, config=config, model=model)
    package = folder / "painting"
    (package / "assets").mkdir(parents=True)
    (package / "SKILL.md").write_text("---\nname: painting\ndescription: Names a colour.\n---\nName a colour.\n")
    script = {"turns": [[{"say": "Blue."}, {"finish": {"colour": "blue"}}]]}
    (package / "assets" / "scripted.json").write_text(json.dumps(script))
    stage.skill = str(package)
    return stage


async def whole_run(app: App, stage: Stage, figures: Figures) -> None:
    began = time.perf_counter()
    waiting = stage.note_first_request(began, figures["model's first request"])
    run = await app.service.submit(Submission(skill=stage.skill, engine=stage.name, mode="auto"))
    async for _ in app.service.follow(run.id):
        pass
    figures["whole run"].append((time.perf_counter() - began) * 1000)
    ended = await app.service.store.get(run.id)
    assert ended.state is RunState.SUCCEEDED, ended.error
    if waiting is not None:
        await asyncio.to_thread(waiting.join)


def by_hand(stage: Stage, number: int, figures: Figures) -> None:
    call = stage.calls[0]
    place = stage.folder / f"by-hand-{number}"
    shutil.copytree(stage.home, place / "home", symlinks=True)
    shutil.copytree(stage.skill, place / "work" / "skill")
    (place / "tmp").mkdir()
    old = str(call.cwd.parent)
    argv = [word.replace(old, str(place)) for word in call.argv]
    env = {name: value.replace(old, str(place)) for name, value in call.env.items()}
    began = time.perf_counter()
    waiting = stage.note_first_request(began, figures["model's first request"])
    given = call.stdin if isinstance(call.stdin, bytes) else b""
    subprocess.run(argv, env=env, cwd=place / "work", input=given, capture_output=True, check=True)
    figures["whole run"].append((time.perf_counter() - began) * 1000)
    if waiting is not None:
        waiting.join()


async def compare(stage: Stage, rounds: int) -> tuple[Figures, Figures]:
    ours: Figures = defaultdict(list)
    floor: Figures = defaultdict(list)
    config = stage.folder / "askback.toml"
    config.write_text(f"sandbox = 'off'\n{stage.config}")
    async with opened(load(config, data_dir=stage.folder / "data")) as app, app.working():
        await whole_run(app, stage, defaultdict(list))
        # The first calls are those of the probe.
        stage.calls[:] = stage.calls[-1:]
        for number in range(rounds):
            report.progress(f"{stage.name}, round {number + 1} of {rounds}")
            await asyncio.to_thread(by_hand, stage, number, floor)
            await whole_run(app, stage, ours)
    return ours, floor


def recording(stage: Stage) -> Any:
    """A `Guardian.start` that notes what it starts."""
    start = Guardian.start

    async def noted(self: Guardian, request: SpawnRequest, **more: Any) -> Child:
        stage.calls.append(request)
        return await start(self, request, **more)

    return noted


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("by_hand", "A whole run, and its model's first request, cold", "the same command by hand")
    plain = Guardian.start
    for name in asked.engines.split(","):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place, ExitStack() as stack:
            try:
                stage = staged(name, Path(place), stack)
            except NotInstalled as error:
                report.progress(f"{name} is left out: {error}")
                continue
            Guardian.start = recording(stage)  # type: ignore[method-assign]
            try:
                ours, floor = asyncio.run(compare(stage, asked.rounds))
            finally:
                Guardian.start = plain  # type: ignore[method-assign]
        for what, samples in ours.items():
            if not samples:
                continue
            made.add(f"{name}: {what}", "ms", samples, floor[what])
            added = [mine - theirs for mine, theirs in zip(samples, floor[what], strict=True)]
            made.add(f"{name}: {what}, what Askback adds", "ms", added)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--engines", default="scripted,codex,claude", help="one measurement each")
    arguments.add_argument("--rounds", type=int, default=5)
    report.run(arguments, measure)
