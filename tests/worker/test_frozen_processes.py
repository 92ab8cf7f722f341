"""Processes that stay alive after their turn are suspended while the files of their run are saved."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from askback.core.runs import RunState
from askback.engines.scripted import program as scripted
from askback.process.guardian.client import available
from askback.worker.warm_pool import DropReason
from askback.workspace.layout import Workspace
from askback.workspace.versions import LocalArtifacts
from support.data_folder import ASK, World, events_of, over, run_async, submit, waiting

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

LAST = {"finish": {"colour": "{{replies}}"}}
ANY = {"type": "object", "required": ["colour"]}
WRITES = """
def act():
    while True:
        for name in ("home/noise", "work/artifacts/noise"):
            with open(f"{root}/{name}", "a") as file:
                file.write(".")
        if os.fork() != 0:
            os._exit(0)
"""
CANNOT_BE_STOPPED = """
def act():
    import ctypes
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    if ctypes.CDLL(None).syscall(number, 0x4000 | 17, 0, 0, 0, 0) == 0:
        while True:
            time.sleep(0.1)
"""
HOLDS_LEASES = """
def act():
    import fcntl, signal
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = []
    for name in ("home/leased", "work/artifacts/leased.txt"):
        with open(f"{root}/{name}", "w") as file:
            file.write("text")
        held.append(os.open(f"{root}/{name}", os.O_RDWR))
        fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
    while True:
        time.sleep(0.1)
"""
ENGINE = """
import os, runpy, sys, time
root = os.path.dirname(os.environ.get("HOME", "/nowhere/home"))
{act}
if "--version" not in sys.argv and "--help" not in sys.argv:
    os.makedirs(f"{{root}}/work/artifacts", exist_ok=True)
    if os.fork() == 0:
        for number in (0, 1, 2):
            os.close(number)
        os.setsid()
        act()
runpy.run_path({program!r}, run_name="__main__")
"""


def engine(folder: Path, act: str) -> str:
    """Settings for the scripted engine with a daemon beside it."""
    program = folder / "engine.py"
    package = Path(scripted.__file__).parent
    program.write_text(ENGINE.format(act=act, program=str(package / "__main__.py")))
    command = json.dumps([sys.executable, str(program)])
    return f"warm_sec = 600\nwarm.min_free_memory = 0\n[engines.scripted]\ncommand = {command}\n"


def watched(original: Callable[..., Any], seen: list[tuple[str, bool]]) -> Callable[..., Any]:
    """As the original, with a look at the files of the run before it, and a moment later."""

    @wraps(original)
    def look(self: Any, *words: Any, **options: Any) -> Any:
        workspace = self if isinstance(self, Workspace) else self._workspace
        before = files(workspace.root)
        time.sleep(0.2)
        seen.append((original.__name__, files(workspace.root) == before))
        return original(self, *words, **options)

    return look


def files(root: Path) -> dict[str, int]:
    return {name: (root / name).stat().st_size for name in ("home/noise", "work/artifacts/noise")}


async def processes(app: Any, run_id: str) -> list[str]:
    return [event.data["process"] for event in await events_of(app, run_id) if "process" in event.data]


@pytest.mark.parametrize("sticky", [False, True])
def test_nothing_changes_while_the_files_of_a_live_process_are_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sticky: bool
) -> None:
    world = World(tmp_path)
    seen: list[tuple[str, bool]] = []
    for owner, name in (
        (Workspace, "save_between_turns"),
        (Workspace, "begin_live_turn"),
        (LocalArtifacts, "record"),
    ):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name), seen))
    skill = world.skill([ASK], [LAST], output=ANY)
    options = {"interactive_profile": "sticky_process"} if sticky else {}

    async def main() -> None:
        async with world.working(engine(tmp_path, WRITES)) as app:
            run = await waiting(app, (await submit(app, skill, options=options)).id)
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)
            if not sticky:
                assert await processes(app, run.id) == ["new", "warm"]

    run_async(main)
    assert {name for name, _ in seen} >= ({"record"} if sticky else {"record", "begin_live_turn"})
    assert [name for name, unchanged in seen if not unchanged] == []


def test_a_process_that_cannot_be_suspended_is_not_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working(engine(tmp_path, CANNOT_BE_STOPPED)) as app:
            run = await waiting(app, (await submit(app, skill)).id)
            assert app.warm.find(run.id) is None
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)
            assert await processes(app, run.id) == ["new", "new"]

    run_async(main)


@pytest.mark.skipif(sys.platform != "linux", reason="leases are a feature of Linux")
@pytest.mark.parametrize("sticky", [False, True])
def test_a_lease_on_a_file_counts_as_no_shortage_of_the_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sticky: bool
) -> None:
    world = World(tmp_path)
    skill = world.skill([{"sleep_sec": 0.5}, ASK], [LAST], output=ANY)
    options = {"interactive_profile": "sticky_process"} if sticky else {}

    async def main() -> None:
        async with world.working(engine(tmp_path, HOLDS_LEASES)) as app:
            run = await waiting(app, (await submit(app, skill, options=options)).id)
            await app.service.reply(run.id, "crimson")
            done = await over(app, run.id)
            assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)

    run_async(main)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_run_whose_process_is_given_up_while_it_is_claimed_gets_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [LAST], output=ANY)

    async def main() -> None:
        async with world.working("warm_sec = 600\nwarm.min_free_memory = 0\nslots = 1\n") as app:
            take = app.warm.take

            def take_and_lose(run_id: str) -> Any:
                parked = take(run_id)
                if parked is not None:
                    app.warm.give_up(parked, DropReason.LOST)
                return parked

            monkeypatch.setattr(app.warm, "take", take_and_lose)
            for _ in range(2):
                run = await waiting(app, (await submit(app, skill)).id)
                await app.service.reply(run.id, "crimson")
                done = await over(app, run.id)
                assert (done.state, done.restarts) == (RunState.SUCCEEDED, 0)

    run_async(main)
