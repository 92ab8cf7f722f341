"""`askback run --workdir`: a run in a folder of the user."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.data_folder import ASK, World
from support.program import askback, here
from support.repositories import git, repository


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "askback")


def editing(world: World) -> str:
    return world.skill(
        [ASK],
        [
            {"write": {"path": "site.css", "text": "{{reply}}\n"}},
            {"write": {"path": "artifacts/report.md", "text": "done\n"}},
            {"finish": {"colour": "{{reply}}"}},
        ],
    )


@pytest.mark.contract("J-6")
def test_a_run_changes_the_folder_and_says_what_it_changed(world: World, repo: Path) -> None:
    ran = askback(world, "run", editing(world), "--engine", "scripted", "--workdir", str(repo), "--answer", "blue")
    assert ran.code == 0, ran.stderr
    lines = [line.rstrip() for line in ran.stderr.splitlines()]
    assert any(line.startswith(f"  {repo}/artifacts/report.md (") for line in lines)
    start = lines.index(f"  changed in {repo}:")
    assert lines[start + 1 : start + 3] == ["    site.css | +1 -1", "    1 file changed, +1 -1"]
    status = git(repo, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert status == [" M old.txt", " M site.css", "?? artifacts/report.md", "?? notes.txt"]


def test_a_relative_folder_is_one_of_the_working_directory(world: World) -> None:
    repo = repository(here(world) / "repo")
    command = ("run", editing(world), "--engine", "scripted", "--workdir", "repo", "--answer", "blue", "--json")
    ran = askback(world, *command)
    assert ran.code == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["workdir"], document["changes"]["total"]) == (str(repo), 1)


def test_a_linked_worktree_is_named_as_a_reason_for_no_summary(world: World, repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "--quiet", str(linked))
    ran = askback(world, "run", editing(world), "--engine", "scripted", "--workdir", str(linked), "--answer", "blue")
    assert ran.code == 0, ran.stderr
    assert f"no summary of the changes in {linked}: " in ran.stderr
    assert "or it is a linked worktree" in ran.stderr


def test_a_run_that_waits_is_continued_there_from_anywhere(world: World, repo: Path) -> None:
    waits = askback(
        world, "run", editing(world), "--engine", "scripted", "--workdir", str(repo), "--mode=interactive", "--json"
    )
    assert waits.code == 4, waits.stderr
    run_id = json.loads(waits.stdout)["id"]
    again = askback(world, "run", editing(world), "--engine", "scripted", "--workdir", str(repo))
    assert (again.code, f"run {run_id} works in {repo}" in again.stderr) == (2, True)
    done = askback(world, "run", "--continue", run_id, "--answer", "blue", "--json")
    assert (done.code, (repo / "site.css").read_text()) == (0, "blue\n")
    shown = askback(world, "show", run_id)
    assert f"folder   {repo}" in shown.stdout
    assert "site.css | +1 -1" in shown.stdout


def test_mistakes_are_told(world: World, repo: Path) -> None:
    skill = editing(world)
    missing = askback(world, "run", skill, "--engine", "scripted", "--workdir", str(repo / "nothing"))
    assert (missing.code, f"{repo}/nothing does not exist" in missing.stderr) == (2, True)
    both = askback(world, "run", "--continue", "1m7gekfsksrgk77s", "--workdir", str(repo))
    assert (both.code, "only --answer can be added" in both.stderr) == (2, True)
    home = askback(world, "run", skill, "--engine", "scripted", "--workdir", str(world.folder / "home"))
    assert home.code == 2


def test_the_doctor_reports_a_folder_of_the_settings_that_others_can_write_to(world: World, tmp_path: Path) -> None:
    for name, mode in (("open", 0o777), ("private", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    env = {"ASKBACK_WORKDIRS": f"{tmp_path}/open:{tmp_path}/private"}
    findings = [
        each for each in askback(world, "doctor", "--json", env=env).json["findings"] if each["what"] == "workdirs"
    ]
    assert [each["message"] for each in findings] == [
        f"every user can write to {tmp_path}/open: runs in folders below it are refused"
    ]
    assert findings[0]["warning"] is True
