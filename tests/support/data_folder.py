"""A data folder, skills with scripts for the engine `scripted`, and a program on them: what most tests start from."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from askback.app import App, opened
from askback.core.events import Event
from askback.core.runs import Run, RunState
from askback.fs.beneath import remove_tree
from askback.fs.records import Records
from askback.runs.submission import Submission
from askback.settings.files import load
from askback.settings.model import Settings
from support.postgres import databases

ASK = {"ask": {"interaction_id": "colour", "prompt": "Which colour?", "options": ["red", "blue"]}}
FINISH = {"finish": {"colour": "{{reply}}"}}
COLOUR = {"type": "object", "required": ["colour"], "properties": {"colour": {"type": "string"}}}
DEADLINE_SEC = 120.0


class World:
    """Everything lies in one folder; programs may come and go on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.database = databases.address(folder)
        """The address of the PostgreSQL database of this folder; None: it has an SQLite file."""

    @property
    def records(self) -> Records:
        """The tokens, links and keys of this folder or database, as another program sees them."""
        if self.database is None:
            return Records(self.data_dir)
        from askback.store.postgres import open_records

        return open_records(self.database)

    def skill(
        self,
        *turns: Sequence[dict[str, Any]] | dict[str, Any],
        name: str = "tested",
        output: dict[str, Any] | None = COLOUR,
        runner: dict[str, Any] | None = None,
        schemas: dict[str, Any] | None = None,
    ) -> str:
        """A skill that plays these turns; returns its folder."""
        folder = self.folder / "skills" / name
        (folder / "assets").mkdir(parents=True, exist_ok=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: For tests.\n---\nDo it.\n")
        files: dict[str, Any] = {"scripted.json": {"turns": list(turns)}}
        if output is not None:
            files["output.schema.json"] = output
        if runner is not None:
            files["runner.json"] = runner
        for key, schema in (schemas or {}).items():
            files[f"{key}.schema.json"] = schema
        for file, document in files.items():
            (folder / "assets" / file).write_text(json.dumps(document))
        return str(folder)

    def settings(self, config: str = "") -> Settings:
        path = self.folder / "askback.toml"
        # Tests look at the engines' processes and let them meet at files: a sandbox is for those that ask for one.
        if self.database is not None:
            config = f'database = "{self.database}"\n{config}'
        path.write_text(config if "sandbox = " in config else f'sandbox = "off"\n{config}')
        return load(path, data_dir=self.data_dir)

    @asynccontextmanager
    async def working(self, config: str = "", *, serving: bool = False) -> AsyncIterator[App]:
        """A program that carries runs out."""
        async with opened(self.settings(config), serving=serving) as app:
            if serving:
                await app.recovery.restart_all()
            async with app.working():
                yield app

    @asynccontextmanager
    async def client(self) -> AsyncIterator[App]:
        """A program that submits for any server and carries nothing out itself."""
        async with opened(self.settings(), serving=True) as app:
            yield app

    def lose_session(self, run_id: str, *patterns: str) -> None:
        """Remove the session's files, by default all of the engine `scripted`, and the copies that Askback has of them.

        Only while no program works here: it saves the home of a run that has just asked.
        """
        folder = self.data_dir / "runs" / run_id
        found = [path for pattern in patterns or (".scripted",) for path in (folder / "home").glob(pattern)]
        assert found
        for path in (*found, folder / "snapshots"):
            remove_tree(path)

    def sessions(self, run_id: str) -> list[list[dict[str, Any]]]:
        """What the engine's own session files say: the evidence that is not ours."""
        folder = self.data_dir / "runs" / run_id / "home" / ".scripted" / "sessions"
        return [[json.loads(line) for line in path.read_text().splitlines()] for path in sorted(folder.glob("*.jsonl"))]

    def prompts(self, run_id: str) -> list[str]:
        """The prompts in the run's one session."""
        (session,) = self.sessions(run_id)
        return [entry["text"] for entry in session if entry["type"] == "prompt"]


def run_async(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A test's asynchronous body, ended when it takes far too long."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_SEC):
            await main()

    asyncio.run(bounded())


async def submit(app: App, skill: str, **rest: Any) -> Run:
    wanted = {"engine": "scripted", "mode": "interactive", **rest}
    return await app.service.submit(Submission(skill=skill, **wanted))


async def reach(app: App, run_id: str, *states: RunState) -> Run:
    """Wait until the run is in one of these states; a final state that is none of them fails the test."""
    changes = app.store.changes()
    try:
        while True:
            run = await app.service.store.get(run_id)
            if run.state in states:
                return run
            assert not run.state.final, f"the run is {run.state}: {run.error}"
            await changes.wait()
    finally:
        changes.close()


async def waiting(app: App, run_id: str) -> Run:
    return await reach(app, run_id, RunState.WAITING_USER)


async def over(app: App, run_id: str) -> Run:
    return await reach(app, run_id, RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELED)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    while not condition():
        await asyncio.sleep(0.01)


async def events_of(app: App, run_id: str) -> list[Event]:
    return list(await app.service.store.events(run_id))
