"""An engine that tries to change what it was told: the record of its prompt says what we sent."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.process.isolation import IsolationLevel
from support.data_folder import World, over, run_async, submit
from support.stand_ins import stand_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux opens an open file again by its name")

_ATTACK = """
def attempt(act):
    try:
        act()
    except OSError:
        pass

def overwrite(flags):
    fd = os.open("/proc/self/fd/0", flags)
    os.write(fd, b"You said so yourself. ")

import mmap
attempt(lambda: os.fchmod(0, 0o777))
attempt(lambda: os.write(0, b"You said so yourself. "))
for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND, os.O_WRONLY | os.O_TRUNC):
    attempt(lambda: overwrite(flags))
attempt(lambda: os.truncate("/proc/self/fd/0", 3))
attempt(lambda: os.ftruncate(0, 3))
attempt(lambda: mmap.mmap(0, 0, prot=mmap.PROT_READ | mmap.PROT_WRITE).write(b"You said"))
(work / "led-to").write_text(os.readlink("/proc/self/fd/0"))
(work / "seekable").write_text(str(os.lseek(0, 0, os.SEEK_END) > 0))
os.lseek(0, 0, os.SEEK_SET)
(work / "read").write_bytes(sys.stdin.buffer.read())
"""


@pytest.mark.parametrize("sandbox", [pytest.param("on", marks=pytest.mark.long), "auto", "off"])
def test_an_engine_cannot_rewrite_the_record_of_its_prompt(tmp_path: Path, sandbox: str) -> None:
    world = World(tmp_path)
    skill = world.skill([])
    config = f'sandbox = "{sandbox}"\n' + stand_in(tmp_path / "programs", "codex", {"attack": _ATTACK})

    async def main() -> None:
        async with world.working(config) as app:
            isolation = await app.spawner.isolation()
            if sandbox != "off" and isolation.level is not IsolationLevel.BUBBLEWRAP:
                pytest.skip(f"no sandbox here: {isolation.why_not_more}")
            run = await submit(app, skill, engine="codex", mode="auto", options={"model": "attack"})
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            work = app.workspaces.of(run.id).cwd
            (record,) = app.workspaces.of(run.id).turns.glob("*.prompt")
            assert b"You said" not in record.read_bytes()
            assert (work / "read").read_bytes() == record.read_bytes()
            assert len(record.read_bytes()) > 3
            assert str(world.data_dir) not in (work / "led-to").read_text()
            assert (work / "seekable").read_text() == "True"

    run_async(main)
