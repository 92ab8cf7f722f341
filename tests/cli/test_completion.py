"""Shell completion: what it offers, without a server, and that a real shell uses it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.data_folder import ASK, FINISH, World
from support.program import DEADLINE_SEC, askback, environment, here


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A data folder with a run that waits and one that is over, an installed skill and one in the working directory."""
    world = World(tmp_path_factory.mktemp("completion"))
    assert askback(world, "skills", "install", world.skill([ASK], [FINISH], name="painter")).code == 0
    assert askback(world, "skills", "new", "drafted").code == 0
    return world


@pytest.fixture(scope="module")
def runs(world: World) -> dict[str, str]:
    given = ("run", "painter", "--engine", "scripted", "--json", "--mode", "interactive")
    waiting, over = askback(world, *given).json, askback(world, *given, "--answer", "red").json
    assert (waiting["state"], over["state"]) == ("waiting_user", "succeeded")
    return {"waiting": waiting["id"], "over": over["id"]}


def offered(world: World, line: str, **env: str) -> list[str]:
    """What bash would offer at the end of the line."""
    added = {"_ASKBACK_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), **env}
    done = askback(world, env=added, warm=False)
    assert done.stderr == ""
    return [each.partition(",")[2] for each in done.stdout.splitlines() if each]


def test_skills_and_engines_are_offered(world: World) -> None:
    assert offered(world, "askback run ") == ["painter", "trip-planner", "drafted"]
    assert offered(world, "askback run p") == ["painter"]
    assert offered(world, "askback run painter --engine c") == ["claude", "codex", "copilot"]
    assert offered(world, "askback runs --engine scr") == ["scripted"]


def test_runs_are_offered_where_they_make_sense(world: World, runs: dict[str, str]) -> None:
    for command in ("reply", "cancel", "run --continue"):
        assert offered(world, f"askback {command} ") == [runs["waiting"]]
    for command in ("show", "watch"):
        assert offered(world, f"askback {command} ") == [runs["over"], runs["waiting"]]
    assert offered(world, f"askback show {runs['over']}") == [runs["over"]]


def test_nothing_is_offered_and_nothing_is_said_where_there_is_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert offered(world, "askback reply ") == []
    assert not world.data_dir.exists()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "askback.db").write_bytes(b"no database" * 100)
    assert offered(world, "askback reply ", ASKBACK_DATA_DIR=str(tmp_path / "damaged")) == []
    assert offered(world, "askback reply ", ASKBACK_URL="http://127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(world: World, shell: str) -> None:
    printed = askback(world, "completion", shell)
    assert printed.code == 0
    assert f"_ASKBACK_COMPLETE={shell}_complete" in printed.stdout
    assert f"askback completion {shell}" in askback(world, "completion").stdout


def test_an_unknown_shell_is_refused(world: World) -> None:
    refused = askback(world, "completion", "tcsh")
    assert refused.code == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_a_real_bash_completes_the_run_that_waits(world: World, runs: dict[str, str]) -> None:
    folder = world.folder / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "askback"
    program.write_text(f"#!{sys.executable}\nfrom askback.cli.main import main\nmain()\n")
    program.chmod(0o755)
    script = """
eval "$(askback completion bash)"
COMP_WORDS=(askback reply ""); COMP_CWORD=2; COMP_LINE="askback reply "; COMP_POINT=14
_askback_completion askback "" reply
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        env=environment(world, PATH=f"{folder}:/usr/bin:/bin"),
        cwd=here(world),
        timeout=DEADLINE_SEC,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == ([runs["waiting"]], "")
