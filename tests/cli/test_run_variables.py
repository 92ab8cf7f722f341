"""`askback run --env` and `--env-file`: secret variables that are on no command line, and in nothing that is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.cli.run_arguments import run_variables
from askback.core.errors import Invalid
from support.data_folder import World
from support.program import askback

KEY = "P9NiFoyLeZu2bZNvvuQPDWsd"
TOKEN = "tok-5fb0c7e19a"


def test_a_name_takes_its_value_from_the_environment_and_files_come_first(tmp_path: Path) -> None:
    file, other = tmp_path / "one.env", tmp_path / "two.env"
    file.write_text("# keys\n\nA_KEY=from the first = file\n B_KEY =b\nC_KEY=\n")
    other.write_text("B_KEY=from the second")
    found = run_variables(["D_KEY", "C_KEY=given=here"], [str(file), str(other)], {"D_KEY": "exported"})
    assert found == {
        "A_KEY": "from the first = file",
        "B_KEY": "from the second",
        "C_KEY": "given=here",
        "D_KEY": "exported",
    }


def test_mistakes_are_told_at_once_and_without_values(tmp_path: Path) -> None:
    file = tmp_path / "bad.env"
    file.write_text(f"{KEY}\nGOOD_KEY=x\n")
    with pytest.raises(Invalid) as refused:
        run_variables(["MISSING"], [str(file)], {})
    assert [problem.partition(": ")[0] for problem in refused.value.problems] == [
        f"--env-file {file}, line 1",
        "--env MISSING",
    ]
    assert KEY not in str(refused.value.problems)


@pytest.mark.contract("J-2")
def test_what_the_engine_says_of_them_is_masked_in_all_that_is_kept(tmp_path: Path) -> None:
    world = World(tmp_path)
    steps = [{"say": f"I use {KEY} and {TOKEN}."}, {"finish": {"colour": "red"}}]
    skill = world.skill(steps)
    file = tmp_path / "keys.env"
    file.write_text(f"OTHER_TOKEN={TOKEN}\n")
    given = ("--env", "ZOTERO_API_KEY", "--env-file", str(file))
    ran = askback(world, "run", skill, "--engine", "scripted", *given, "--json", env={"ZOTERO_API_KEY": KEY})
    assert ran.code == 0, ran.stderr
    shown = askback(world, "show", ran.json["id"], "--json").json
    assert shown["env_names"] == ["OTHER_TOKEN", "ZOTERO_API_KEY"]
    for path in (world.data_dir / "runs" / ran.json["id"] / "turns").iterdir():
        assert KEY not in path.read_text()
        assert TOKEN not in path.read_text()


def test_a_reserved_name_and_a_run_that_exists_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill([{"finish": {"colour": "red"}}])
    reserved = askback(world, "run", skill, "--engine", "scripted", "--env", "PATH")
    assert (reserved.code, "env.PATH" in reserved.stderr) == (2, True)
    missing = askback(world, "run", skill, "--engine", "scripted", "--env", "NOT_SET_ANYWHERE")
    assert (missing.code, "--env NOT_SET_ANYWHERE" in missing.stderr) == (2, True)
    continued = askback(world, "run", "--continue", "x", "--env", "PATH")
    assert (continued.code, "--continue uses the run as it was" in continued.stderr) == (2, True)
