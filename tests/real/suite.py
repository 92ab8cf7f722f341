"""A stage for the suite: Askback on a data folder of its own, one real engine, and the double that plays its model."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from double import Request, Step, call_tool
from engines_under_test import EngineUnderTest

from askback.app import App
from askback.core.runs import Run
from askback.engines import registry
from askback.settings.model import Settings
from support.data_folder import World, over, submit, waiting

TESTS = Path(__file__).resolve().parents[1]
MARKER = "__SKILL_DONE__"
ASK_TOOL = "put_question"
WARM = "warm_sec = 600\nwarm.min_free_memory = 0\nwarm.max_memory = 0\n"
"""Settings under which processes are kept, however little memory the machine has."""

SERVER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from askback.app import opened
from askback.settings.files import load
async def main():
    folder = Path(sys.argv[2])
    async with opened(load(folder / "askback.toml", data_dir=folder / "data"), serving=True) as app:
        await app.recovery.restart_all()
        async with app.working():
            print("ready", flush=True)
            await asyncio.Event().wait()
asyncio.run(main())
"""


def can_be_warm(name: str) -> bool:
    engine = registry.get(name)
    return engine.warm


def question(prompt: str = "Which colour?", interaction_id: str = "colour") -> str:
    """What a model says to ask, as our instructions want it."""
    asked = {"ask_user": {"interaction_id": interaction_id, "prompt": prompt}}
    return f"I need to know something.\n\n```json\n{json.dumps(asked)}\n```"


def finish(colour: Any = "blue") -> str:
    """What a model says when the work is done."""
    return f"```json\n{json.dumps({'colour': colour, MARKER: True})}\n```"


def reply_in(text: str, interaction_id: str = "colour") -> str:
    """How a reply must stand in what the model is sent: word for word."""
    return f'<user_reply interaction_id="{interaction_id}">\n{text}\n</user_reply>'


def put(arguments: Mapping[str, Any]) -> Step:
    """Call the ask tool by the name that the engine gives it."""

    def choose(request: Request) -> Step:
        offered = [name for name in request.asked.tools if name.endswith(ASK_TOOL)]
        assert offered, f"the tool is not offered; offered: {', '.join(request.asked.tools)}"
        return call_tool(offered[0], arguments)

    return choose


def heard(request: Request) -> str:
    """The last that the model heard from its user."""
    return request.user_texts[-1]


class Stage(World):
    """A world whose settings name the real engine. Probes are shared between tests: they are of the same program."""

    def __init__(self, folder: Path, engine: EngineUnderTest, url: str, probes: Path, way: str = "") -> None:
        """`way`: settings for all of its programs, such as `WARM`."""
        super().__init__(folder)
        self._way = way
        self.engine = engine
        self._probes = probes
        self._engine_settings = engine.settings(engine.find(), url, folder / "engine-home")
        if probes.is_file():
            self.data_dir.mkdir(parents=True)
            shutil.copyfile(probes, self.data_dir / "probes.json")

    def settings(self, config: str = "") -> Settings:
        return super().settings('sandbox = "auto"\n' + self._way + config + "\n" + self._engine_settings)

    def add_engine_setting(self, line: str) -> None:
        self._engine_settings += line + "\n"

    def change_engine_setting(self, old: str, new: str) -> None:
        assert old in self._engine_settings
        self._engine_settings = self._engine_settings.replace(old, new)

    def keep_probes(self) -> None:
        if (self.data_dir / "probes.json").is_file():
            shutil.copyfile(self.data_dir / "probes.json", self._probes)

    async def submit(self, app: App, skill: str, **rest: Any) -> Run:
        rest["options"] = {"turn_timeout_sec": 4 * self.engine.turn_sec, **rest.get("options", {})}
        return await submit(app, skill, engine=self.engine.name, **rest)

    def home(self, run: Run) -> Path:
        return self.data_dir / "runs" / run.id / "home"

    def session_files(self, run: Run) -> list[Path]:
        found = (path for pattern in self.engine.sessions for path in self.home(run).glob(pattern))
        return sorted(path for path in found if path.is_file())

    def play(self, *, mode: str = "interactive", output: dict[str, Any] | None = None, **rest: Any) -> tuple[Run, Any]:
        """One run from its start to its end, without a question; the run and its data."""
        skill = self.skill() if output is None else self.skill(output=output)
        ended: list[tuple[Run, Any]] = []

        async def main() -> None:
            async with self.working() as app:
                run = await over(app, (await self.submit(app, skill, mode=mode, **rest)).id)
                ended.append((run, (await app.service.result(run.id)).data))

        self.run(main)
        return ended[0]

    async def ask(self, app: App, skill: str, **rest: Any) -> Run:
        return await waiting(app, (await self.submit(app, skill, **rest)).id)

    async def ask_again(self, app: App, run_id: str) -> Run:
        """The run when it waits for its user."""
        return await waiting(app, run_id)

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A test's asynchronous body, ended when it takes far too long."""

        async def bounded() -> None:
            async with asyncio.timeout(12 * self.engine.turn_sec):
                await main()

        asyncio.run(bounded())


class Server:
    """A program of its own on the stage's data folder, which can be killed as a machine's loss would."""

    def __init__(self, stage: Stage, config: str = "") -> None:
        stage.settings(config)
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(TESTS), str(stage.folder)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """Harmless when called again."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
