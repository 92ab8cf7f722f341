"""A warm engine that puts a link to the data folder in the place of a folder of its home while Askback saves the home."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.engines.scripted import Scripted
from askback.process.isolation import IsolationLevel
from support.data_folder import World, over, run_async, submit, until, waiting

SECRET = "the token of the server, which no engine may have"
_ATTACK = """
import ctypes, os, sys, time
home, victim = sys.argv[1:3]
folder, aside = home + "/d", home + "/.aside"
libc = ctypes.CDLL(None, use_errno=True)
opens = libc.inotify_init()
libc.inotify_add_watch(opens, os.fsencode(folder), 0x20)
open(home + "/armed", "w").close()
for _ in range(100):
    # Somebody lists the folder. What was listed is opened in a moment.
    os.read(opens, 65536)
    os.rename(folder, aside)
    os.symlink(victim, folder)
    time.sleep(0.3)
    os.unlink(folder)
    os.rename(aside, folder)
"""
_WRAPPER = """
import os, subprocess, sys
program, attack, victim = {program!r}, {attack!r}, {victim!r}
home = os.environ["HOME"]
if os.path.isdir("skill") and not os.path.lexists(home + "/d"):
    # To list and to save these takes a moment.
    for place in [home + "/d"] + [home + "/f%d" % number for number in range(40)]:
        os.mkdir(place)
        for name in ["token"] + ["file-%d" % number for number in range(20)]:
            with open(place + "/" + name, "w") as file:
                file.write("its own")
    subprocess.Popen([sys.executable, "-I", "-S", "-c", attack, home, victim], stdin=subprocess.DEVNULL)
os.execv(program[0], [*program, *sys.argv[1:]])
"""
_ASKS = [[{"ask": {"interaction_id": f"colour-{n}", "prompt": "Which colour?"}}] for n in range(3)]


def leaks(folder: Path) -> list[str]:
    """The files that have the secret. No link is followed."""
    found = []
    for path in folder.rglob("*"):
        # A copy that is not needed any more may be removed at this moment.
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink() and SECRET in path.read_text(errors="replace"):
                found.append(str(path))
    return found


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("sandbox", [pytest.param("on", marks=pytest.mark.long), "auto", "off"])
def test_a_warm_engine_gets_no_file_of_the_server_into_its_home(tmp_path: Path, sandbox: str) -> None:
    world = World(tmp_path)
    world.data_dir.mkdir(mode=0o700)
    (world.data_dir / "token").write_text(SECRET)
    (world.data_dir / "token").chmod(0o600)
    wrapper = tmp_path / "wrapper" / "engine.py"
    wrapper.parent.mkdir()
    program = list(Scripted.default_command)
    wrapper.write_text(_WRAPPER.format(program=program, attack=_ATTACK, victim=str(world.data_dir)))
    command = json.dumps([sys.executable, str(wrapper)])
    config = f"""
sandbox = "{sandbox}"
warm_sec = 600
[warm]
max_processes = 8
max_memory = 0
min_free_memory = 0
[engines.scripted]
command = {command}
"""
    skill = world.skill(*_ASKS, [{"finish": {"colour": "red"}}])

    async def main() -> None:
        async with world.working(config) as app:
            isolation = await app.spawner.isolation()
            if sandbox != "off" and isolation.level is not IsolationLevel.BUBBLEWRAP:
                pytest.skip(f"no sandbox here: {isolation.why_not_more}")
            run = await submit(app, skill)
            folder = app.workspaces.of(run.id).root
            for _ in _ASKS:
                await waiting(app, run.id)
                await until((folder / "home" / "armed").exists)
                # Between the turns, its home is saved.
                await until((folder / "snapshots" / "manifest.json").exists)
                assert await asyncio.to_thread(leaks, folder / "snapshots") == []
                await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert await asyncio.to_thread(leaks, folder) == []

    run_async(main)
    assert (world.data_dir / "token").read_text() == SECRET
    assert (world.data_dir / "token").stat().st_mode & 0o777 == 0o600
