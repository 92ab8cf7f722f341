"""The commands of the engines with default settings: one process per turn, which ends with it; a reply resumes by handle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from askback.core.runs import RunState
from askback.process import tree
from support.data_folder import World, over, run_async, submit, waiting
from support.stand_ins import stand_in

ASKS_FIRST = """
with open(home / "commands", "a") as file:
    file.write(json.dumps([os.getpid(), *sys.argv[1:]]) + "\\n")
if not {"resume", "--resume"} & set(sys.argv):
    STDOUT = STDOUT.replace(ANSWER, "Which colour?")
"""
RESIDENT = {"app-server", "--acp", "--experimental-acp"}


def commands(world: World, run_id: str) -> list[list[Any]]:
    lines = (world.data_dir / "runs" / run_id / "home" / "commands").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.contract("V-1", "E-1", "E-2", "E-3", "E-4", "H-6", "H-7", "H-8", "H-9", "W-14")
@pytest.mark.parametrize(
    ("engine", "flags", "resume"),
    [
        ("codex", {"exec", "--json", "--yolo"}, ("resume",)),
        ("gemini", {"--output-format", "stream-json", "--yolo"}, ("--resume",)),
        ("iflow", {"--yolo", "--thinking"}, ("--resume",)),
    ],
)
@pytest.mark.parametrize("options", [{}, {"warm_sec": 600}], ids=["plain", "asks to be warm"])
def test_each_turn_is_a_process_of_its_own_that_resumes_by_handle(
    tmp_path: Path, engine: str, flags: set[str], resume: tuple[str], options: dict[str, Any]
) -> None:
    world = World(tmp_path)
    settings = stand_in(tmp_path / "engines", engine, {"asks-first": ASKS_FIRST})

    async def main() -> None:
        async with world.working(settings) as app:
            chosen = {"engine": engine, "options": {"model": "asks-first", **options}}
            run = await waiting(app, (await submit(app, world.skill(), **chosen)).id)
            assert run.handle is not None
            assert tree.Tree(mark=run.id).members() == set()
            assert app.warm.count == 0
            await app.service.reply(run.id, "red")
            done = await over(app, run.id)
            assert (done.state, done.error, done.handle) == (RunState.SUCCEEDED, None, run.handle)
        first, second = commands(world, run.id)
        assert first[0] != second[0]
        for command in (first, second):
            assert flags <= set(command)
            assert not RESIDENT & set(command)
        assert not {*resume, run.handle.handle_value} & set(first)
        assert {*resume, run.handle.handle_value} <= set(second)

    run_async(main)
