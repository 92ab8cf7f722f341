"""The effort of a run: from its options, its skill or the settings, and what an engine without such an option does."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import Invalid, WarningCode
from askback.core.runs import Mode, ProfileKind
from askback.engines.base import CallResult, Turn
from askback.engines.registry import engines
from support.data_folder import ASK, FINISH, World, over, run_async, submit, waiting

RUNNER = {"id": "tested", "version": "1.0.0", "execution_modes": ["interactive", "auto"]}


def efforts(world: World, run_id: str) -> list[Any]:
    (session,) = world.sessions(run_id)
    return [entry["effort"] for entry in session if entry["type"] == "prompt"]


@pytest.mark.parametrize(
    ("option", "default", "setting", "told"),
    [
        ("high", "low", "medium", "high"),
        (None, "low", "medium", "low"),
        (None, None, "medium", "medium"),
        (None, None, None, None),
    ],
)
@pytest.mark.parametrize("profile", ["auto", "sticky_process"])
def test_a_run_comes_before_its_skill_and_that_before_the_settings(
    tmp_path: Path, option: str | None, default: str | None, setting: str | None, told: str | None, profile: str
) -> None:
    world = World(tmp_path)
    options = {} if default is None else {"effort": default}
    skill = world.skill([ASK], [FINISH], runner=RUNNER | {"options": options})
    config = "" if setting is None else f'[engines.scripted]\neffort = "{setting}"\n'

    async def main() -> None:
        async with world.working(config) as app:
            own = {"interactive_profile": profile} | ({} if option is None else {"effort": option})
            run = await waiting(app, (await submit(app, skill, options=own)).id)
            await app.service.reply(run.id, "red")
            assert (await over(app, run.id)).warnings == ()
            assert set(efforts(world, run.id)) == {told}

    run_async(main)


@pytest.mark.parametrize("effort", ["", "High", "a b", '"', "x\ny", "-v", "--help", "é", "x" * 41, 3, True])
def test_an_effort_that_is_no_word_is_refused(tmp_path: Path, effort: Any) -> None:
    world = World(tmp_path)
    skill = world.skill([ASK], [FINISH])

    async def main() -> None:
        async with world.client() as app:
            with pytest.raises(Invalid) as refused:
                await submit(app, skill, options={"effort": effort})
            assert any(problem.startswith("options.effort: ") for problem in refused.value.problems)

    run_async(main)


def without_effort(world: World) -> str:
    """A program like `scripted` of a version that knows no effort."""
    program = world.folder / "old.py"
    program.write_text(
        f"import os, subprocess, sys\ncommand = [*{engines()['scripted'].default_command!r}, *sys.argv[1:]]\n"
        "if '--help' not in command:\n    os.execvp(command[0], command)\n"
        "usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout\n"
        "print(*(line for line in usage.splitlines() if 'effort' not in line), sep='\\n')\n"
    )
    return f'[engines.scripted]\ncommand = ["{sys.executable}", "{program}"]\n'


def test_an_engine_without_such_an_option_refuses_the_run_that_names_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}], runner=RUNNER | {"options": {"effort": "low"}})

    async def main() -> None:
        async with world.working(without_effort(world)) as app:
            with pytest.raises(Invalid, match="has no option for the effort 'high'"):
                await submit(app, skill, options={"effort": "high"})
            run = await over(app, (await submit(app, skill, mode="auto")).id)
            assert [warning.code for warning in run.warnings] == [WarningCode.EFFORT_IGNORED]
            assert run.error is None

    run_async(main)


def test_each_engine_passes_it_as_one_argument() -> None:
    found = engines()
    told = {"codex": '-c model_reasoning_effort="high"', "claude": "--effort=high", "opencode": "--variant=high"}
    for name, words in told.items():
        engine = found[name]
        probe = replace(engine.read_probe([CallResult(args=("x",), exit_code=0, stdout="", stderr="")]), effort=())
        turn = Turn(
            prompt="p",
            mode=Mode.AUTO,
            attempt_number=1,
            command=(name,),
            cwd="/c",
            home="/h",
            skill_dir="skill",
            probe=probe,
        )
        assert words in " ".join(engine.launch(replace(turn, effort="high")).argv)
        assert words not in " ".join(engine.launch(turn).argv)
    for name in ("gemini", "qwen", "iflow"):
        assert found[name].read_probe([]).effort == ()
    assert ProfileKind.STICKY_PROCESS not in found["opencode"].read_probe([]).effort
