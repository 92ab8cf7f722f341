"""The files of a run: private, prepared once, and safe against what an engine plants there."""

import os
from pathlib import Path

import pytest

from askback.process.workspace import Workspace


def test_preparing_twice_keeps_what_the_engine_did(tmp_path: Path) -> None:
    package, template = tmp_path / "package", tmp_path / "template"
    (package / "assets").mkdir(parents=True)
    (package / "SKILL.md").write_text("text")
    (template / ".engine").mkdir(parents=True)
    (template / ".engine" / "config").write_text("configured")
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package, template)
    assert (workspace.cwd / "skill" / "SKILL.md").read_text() == "text"
    assert (workspace.home / ".engine" / "config").read_text() == "configured"
    (workspace.home / ".engine" / "config").write_text("changed by the engine")
    workspace.prepare(package, template)
    assert (workspace.home / ".engine" / "config").read_text() == "changed by the engine"


def test_a_run_is_private_to_its_user(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package, None)
    for folder in (workspace.home, workspace.turns, workspace.cwd / "artifacts"):
        assert folder.stat().st_mode & 0o077 == 0


def test_artifacts_are_plain_files_and_links_are_not_followed(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    folder = workspace.artifacts_path
    (folder / "sub").mkdir(parents=True)
    (folder / "b.txt").write_text("bb")
    (folder / "sub" / "a.txt").write_text("a")
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    (folder / "link").symlink_to(secret / "key")
    (folder / "folder-link").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    assert [(each.path, each.size) for each in workspace.artifacts()] == [("b.txt", 2), ("sub/a.txt", 1)]


def test_an_artifacts_folder_that_became_a_link_lists_nothing(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.cwd.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "key").write_text("key")
    workspace.artifacts_path.symlink_to(tmp_path / "elsewhere")
    assert list(workspace.artifacts()) == []


@pytest.mark.parametrize("planted", ["folder link", "file link", "file", "folder", "nothing"])
def test_what_is_written_into_the_workspace_stays_there_whatever_is_in_the_way(tmp_path: Path, planted: str) -> None:
    workspace, elsewhere = Workspace(tmp_path / "run"), tmp_path / "elsewhere"
    workspace.cwd.mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "settings.json").write_text("the user's own")
    place = workspace.cwd / ".engine"
    match planted:
        case "folder link":
            place.symlink_to(elsewhere)
        case "file link":
            place.mkdir()
            (place / "settings.json").symlink_to(elsewhere / "settings.json")
        case "file":
            place.write_text("in the way")
        case "folder":
            (place / "settings.json" / "deep").mkdir(parents=True)
    workspace.write_work({".engine/settings.json": b"ours"})
    assert (place / "settings.json").read_bytes() == b"ours"
    assert not place.is_symlink()
    assert (elsewhere / "settings.json").read_text() == "the user's own"
