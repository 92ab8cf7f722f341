"""A sticky engine that swaps folders for links while file answers are staged: nothing lands outside of its run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from askback.core.runs import RunState
from askback.engines.scripted import Scripted
from askback.process.isolation import IsolationLevel
from support.data_folder import World, over, run_async, submit, until, waiting
from support.swapping import SWAPPER

UPLOADS = 25
_WRAPPER = """
import os, subprocess, sys
program, swapper, victim = {program!r}, {swapper!r}, {victim!r}
if os.path.isdir("skill"):
    os.makedirs("inputs", exist_ok=True)
    subprocess.Popen([sys.executable, "-I", "-S", "-c", swapper, os.getcwd(), victim], stdin=subprocess.DEVNULL)
    open("swapping", "w").close()
os.execv(program[0], [*program, *sys.argv[1:]])
"""


@pytest.mark.contract("Q-3")
@pytest.mark.parametrize("sandbox", [pytest.param("on", marks=pytest.mark.long), "auto", "off"])
def test_no_file_answer_lands_outside_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str) -> None:
    home = tmp_path / "user"
    victim = home / ".config" / "autostart"
    victim.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    wrapper = tmp_path / "wrapper" / "engine.py"
    wrapper.parent.mkdir()
    wrapper.write_text(_WRAPPER.format(program=list(Scripted.default_command), swapper=SWAPPER, victim=str(victim)))
    world = World(tmp_path)
    asks = [[{"ask": {"interaction_id": f"file-{n}", "prompt": "Which file?"}}] for n in range(UPLOADS)]
    skill = world.skill(*asks, [{"finish": {"colour": "red"}}])
    command = json.dumps([sys.executable, str(wrapper)])
    answer = tmp_path / "evil.desktop"
    answer.write_text("Exec=evil")

    async def main() -> None:
        async with world.working(f'sandbox = "{sandbox}"\n[engines.scripted]\ncommand = {command}\n') as app:
            isolation = await app.spawner.isolation()
            if sandbox != "off" and isolation.level is not IsolationLevel.BUBBLEWRAP:
                pytest.skip(f"no sandbox here: {isolation.why_not_more}")
            run = await submit(app, skill, options={"interactive_profile": "sticky_process"})
            work = app.workspaces.of(run.id).cwd
            await until((work / "swapping").exists)
            for _ in range(UPLOADS):
                asked = (await waiting(app, run.id)).pending_interaction
                assert asked is not None
                await app.service.reply_with_file(run.id, answer, asked.interaction_id)
            assert (await over(app, run.id)).state is RunState.SUCCEEDED
            assert len(list(work.glob("**/evil.desktop"))) == UPLOADS

    run_async(main)
    assert [path.relative_to(home).as_posix() for path in sorted(home.rglob("*"))] == [".config", ".config/autostart"]
