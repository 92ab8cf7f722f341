"""The files of a run: private, prepared once, and safe from links that an engine creates."""

import io
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from askback.fs.beneath import remove_tree
from askback.workspace.layout import Workspace
from askback.workspace.versions import LocalArtifacts


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "SKILL.md").write_text("text")
    return tmp_path / "package"


def test_preparing_twice_keeps_what_the_engine_did(tmp_path: Path, package: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package)
    assert (workspace.cwd / "skill" / "SKILL.md").read_text() == "text"
    (workspace.cwd / "skill" / "SKILL.md").write_text("changed by the engine")
    workspace.prepare(package)
    assert (workspace.cwd / "skill" / "SKILL.md").read_text() == "changed by the engine"


@pytest.mark.contract("B-4")
@pytest.mark.parametrize("left", ["a session", "a locked folder", "a link", "a file", "nothing"])
def test_a_first_turn_that_is_taken_up_again_finds_the_home_as_it_was(tmp_path: Path, package: Path, left: str) -> None:
    template = tmp_path / "template"
    (template / ".engine").mkdir(parents=True)
    (template / ".engine" / "config").write_text("configured")
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package)
    workspace.begin_first_turn(template)
    (workspace.home / ".engine" / "config").write_text("changed by the engine")
    (workspace.home / "session").write_text("begun")
    match left:
        case "a session":
            pass
        case "a locked folder":
            (workspace.home / ".engine").chmod(0)
        case "a link" | "a file" | "nothing":
            shutil.rmtree(workspace.home)
            if left == "a link":
                workspace.home.symlink_to(template)
            elif left == "a file":
                workspace.home.write_text("no home")
    workspace.begin_first_turn(template)
    assert (template / ".engine" / "config").read_text() == "configured"
    assert not workspace.home.is_symlink()
    assert [path.relative_to(workspace.home).as_posix() for path in sorted(workspace.home.rglob("*"))] == [
        ".engine",
        ".engine/config",
    ]
    assert (workspace.home / ".engine" / "config").read_text() == "configured"


def test_a_run_is_private_to_its_user(tmp_path: Path, package: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package)
    workspace.begin_first_turn(None)
    workspace.begin_later_turn(2)
    for folder in (workspace.home, workspace.turns, workspace.cwd / "artifacts", workspace.root / "snapshots"):
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


@pytest.mark.parametrize("place", ["home", "work"])
@pytest.mark.parametrize("planted", ["a link", "a link in the place of the folder", "a pipe", "a locked folder"])
def test_what_is_written_for_a_turn_goes_nowhere_else(tmp_path: Path, package: Path, place: str, planted: str) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.prepare(package)
    workspace.begin_first_turn(None)
    base, write = (workspace.home, workspace.write_home) if place == "home" else (workspace.cwd, workspace.write_work)
    others = tmp_path / "others"
    others.mkdir()
    (others / "config").write_text("the user's own")
    if planted == "a link in the place of the folder":
        (base / ".engine").symlink_to(others)
    else:
        (base / ".engine").mkdir()
    if planted == "a link":
        (base / ".engine" / "config").symlink_to(others / "config")
    elif planted == "a pipe":
        os.mkfifo(base / ".engine" / "config")
    elif planted == "a locked folder":
        (base / ".engine" / "config" / "inner").mkdir(parents=True)
        (base / ".engine" / "config" / "inner").chmod(0)
    write({".engine/config": b"ours"})
    assert (others / "config").read_text() == "the user's own"
    assert (base / ".engine" / "config").read_text() == "ours"
    assert not (base / ".engine").is_symlink()


def test_artifacts_are_listed_however_deep_they_lie(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    depth = 1100
    deep = "/".join(["a"] * depth)
    try:
        for length in range(depth + 1):
            Path(workspace.artifacts_path, deep[: 2 * length]).mkdir(parents=not length)
        (workspace.artifacts_path / deep / "file").write_text("deep")
        (workspace.artifacts_path / "b").write_text("b")
        assert [each.path for each in workspace.artifacts()] == ["b", f"{deep}/file"]
        pieces = iter(LocalArtifacts(workspace).bundle(1 << 20).next_piece, None)
        with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
            assert archive.namelist() == ["b", f"{deep}/file"]
    finally:
        # Recursive functions could not.
        remove_tree(tmp_path)


def test_a_folder_that_cannot_be_searched_hides_only_what_is_in_it(tmp_path: Path) -> None:
    """A user may be able to list a folder but not to stat its entries. In a separate process: root may do anything."""
    workspace = Workspace(tmp_path / "run")
    (workspace.artifacts_path / "locked").mkdir(parents=True)
    (workspace.artifacts_path / "locked" / "file").write_text("hidden")
    (workspace.artifacts_path / "open").write_text("seen")
    (workspace.artifacts_path / "locked").chmod(0o444)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.chdir(workspace.artifacts_path)
                workspace.artifacts_path.chmod(0o755)
                os.setuid(65534)
            code = 0 if [each.path for each in Workspace(Path("../..")).artifacts()] == ["open"] else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    (workspace.artifacts_path / "locked").chmod(0o700)
    assert os.waitstatus_to_exitcode(status) == 0
