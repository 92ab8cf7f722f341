"""A program killed while it puts the files of a run into the store: the old archive counts or the new one, never a mix."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from askback.app import opened
from askback.core.runs import Run, RunState
from askback.fs.beneath import remove_tree
from support.data_folder import ASK, World, over, run_async, submit, waiting

TESTS = Path(__file__).resolve().parents[1]
SIZE = {"ask": {"interaction_id": "size", "prompt": "Which size?"}}
LAST = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}

PROGRAM = """
import asyncio, os, signal, sys
from pathlib import Path
tests, folder, run_id, moment, config, database = sys.argv[1:]
sys.path.insert(0, tests)
from askback.worker.worker import Worker
from askback.workspace.archives import ArchivedFolder, RunArchives
from support.data_folder import World

def killed():
    os.kill(os.getpid(), signal.SIGKILL)

def around(owner, name, key):
    method = getattr(owner, name)
    if asyncio.iscoroutinefunction(method):
        async def wrapped(*args, **rest):
            if moment == f"before {key}": killed()
            result = await method(*args, **rest)
            if moment == f"after {key}": killed()
            return result
    else:
        def wrapped(*args, **rest):
            if moment == f"before {key}": killed()
            result = method(*args, **rest)
            if moment == f"after {key}": killed()
            return result
    setattr(owner, name, wrapped)

around(ArchivedFolder, "pack", "packing")
around(RunArchives, "save", "keeping")
around(ArchivedFolder, "record", "noting")

drop_archive = Worker._drop_archive

async def drop_after_storing(*args):
    if moment == "after storing": killed()
    await drop_archive(*args)

Worker._drop_archive = drop_after_storing
around(RunArchives, "delete", "dropping")

async def main():
    world = World(Path(folder))
    world.database = database or None
    async with world.working(config, serving=True) as app:
        await app.service.reply(run_id, "red")
        await asyncio.sleep(120)
asyncio.run(main())
"""

MOMENTS = ("after packing", "after keeping", "after storing")
FURTHER = ("before packing", "before noting", "after dropping")


@pytest.mark.contract("M-5", "B-1", "B-4")
@pytest.mark.parametrize("moment", [*MOMENTS, *(pytest.param(each, marks=pytest.mark.long) for each in FURTHER)])
def test_killed_at_the_end_of_a_turn_with_its_disk(tmp_path: Path, moment: str) -> None:
    _kill_and_go_on(tmp_path, moment, lost=True)


@pytest.mark.long
@pytest.mark.contract("M-5", "B-1", "B-4")
@pytest.mark.parametrize("moment", [*MOMENTS, *FURTHER])
def test_killed_at_the_end_of_a_turn(tmp_path: Path, moment: str) -> None:
    _kill_and_go_on(tmp_path, moment, lost=False)


def _kill_and_go_on(folder: Path, moment: str, *, lost: bool) -> None:
    world = World(folder)
    config = f'files = "{folder / "stored"}"\n'
    skill = world.skill([ASK], [SIZE], [LAST], output=ANY)
    found: list[Run] = []

    async def ask() -> None:
        async with world.working(config, serving=True) as app:
            found.append(await waiting(app, (await submit(app, skill)).id))

    run_async(ask)
    (run,) = found
    _die(world, run, moment, config)
    if lost:
        remove_tree(world.data_dir / "runs" / run.id)

    async def go_on() -> None:
        async with opened(world.settings(config), read_only=True) as app:
            left = await app.store.get(run.id)
            ended = moment in ("after storing", "after dropping")
            assert left.kept == f"runs/{run.id}/kept/{'2-2' if ended else '1-1'}.tar.zst"
            assert left.state is (RunState.WAITING_USER if ended else RunState.RUNNING)
        async with world.working(config, serving=True) as app:
            await waiting(app, run.id)
            await app.service.reply(run.id, "large", "size")
            done = await over(app, run.id)
            assert (done.state, done.error) == (RunState.SUCCEEDED, None)
            assert app.retention is not None
            await app.retention.sweep()
            assert app.files is not None
            assert [each.key for each in app.files.list(f"runs/{run.id}/kept/")] == [done.kept]

    run_async(go_on)
    prompts = world.prompts(run.id)
    assert len(prompts) == 3
    said = "\n".join(prompts)
    assert [said.count(f"\n{text}\n</user_reply>") for text in ("red", "large")] == [1, 1]


def _die(world: World, run: Run, moment: str, config: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(TESTS), str(world.folder), run.id, moment, config, world.database or ""],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
