"""Writing and removing while an engine changes the same folders: nothing outside is written or removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from askback.fs import beneath
from askback.fs.beneath import remove_tree
from askback.workspace.layout import Workspace
from support.stand_ins import tree
from support.swapping import SWAPPER


@contextmanager
def swapping(base: Path, victim: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAPPER, str(base), str(victim)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_inputs_are_staged_and_dropped_inside_while_folders_are_swapped_for_links(tmp_path: Path) -> None:
    victim, source = tmp_path / "victim", tmp_path / "notes.txt"
    for number in range(300):
        (victim / f"answer-{number}").mkdir(parents=True)
        (victim / f"answer-{number}" / "precious").write_text("the user's own")
    source.write_text("the answer")
    workspace = Workspace(tmp_path / "run")
    workspace.stage_input("first", source)
    before = tree(victim)
    with swapping(workspace.cwd, victim):
        for number in range(300):
            # An engine may damage its own run, but nothing outside.
            workspace.stage_input(f"answer-{number}", source)
            workspace.drop_input(f"answer-{number}", source.name)
    assert tree(victim) == before


def test_a_tree_is_removed_inside_while_folders_in_it_are_swapped_for_links(tmp_path: Path) -> None:
    victim, base = tmp_path / "victim", tmp_path / "run"
    (victim / "deep" / "deeper").mkdir(parents=True)
    (victim / "precious").write_text("the user's own")
    (victim / "deep" / "precious").write_text("the user's own")
    before = tree(victim)
    beneath.make_folder(tmp_path, "run/inputs/answer/deep/deeper")
    with swapping(base, victim):
        for _ in range(200):
            beneath.write(base, "inputs/answer/deep/deeper/file", b"x")
            with suppress(OSError):
                beneath.remove(base, "inputs/answer")
    assert tree(victim) == before


def test_files_get_a_second_name_inside_while_folders_are_swapped_for_links(tmp_path: Path) -> None:
    victim, base = tmp_path / "victim", tmp_path / "run"
    (victim / "answer").mkdir(parents=True)
    for name in ("file", "answer/file"):
        (victim / name).write_text("the user's own")
    before = tree(victim)
    beneath.make_folder(tmp_path, "run/inputs/answer")
    with swapping(base, victim):
        for _ in range(200):
            with suppress(OSError):
                beneath.write(base, "inputs/answer/file", b"x")
                beneath.link_file(base, "inputs/answer/file", "inputs/copy/file")
    assert tree(victim) == before
    beneath.write(base, "file", b"new")
    beneath.make_folder(base, "copies/file/below")
    beneath.link_file(base, "file", "copies/file")
    assert [(base / name).read_bytes() for name in ("file", "copies/file")] == [b"new", b"new"]


def test_a_second_name_for_a_link_is_a_link_as_well(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the user's own")
    base = tmp_path / "run"
    base.mkdir()
    (base / "link").symlink_to(tmp_path / "secret")
    beneath.link_file(base, "link", "copy")
    assert (base / "copy").is_symlink()
    with pytest.raises(FileNotFoundError):
        beneath.link_file(base, "none", "copy")


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../x", "a//x", "./x", "a/", "x\0"])
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="below a folder"):
        beneath.write(tmp_path, name, b"x")


def test_the_base_itself_may_not_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "outside")
    with pytest.raises(OSError, match="run"):
        beneath.write(tmp_path / "run", "x", b"x")
    beneath.remove(tmp_path / "run", "x")
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_tree_of_any_depth_and_with_any_rights_is_removed(tmp_path: Path) -> None:
    """In a separate process without privileges: root may do anything."""
    base = tmp_path / "tree"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            tmp_path.chmod(0o777)
            if os.geteuid() == 0:
                for folder in tmp_path.parents[:-2]:
                    folder.chmod(0o755)
                os.setuid(65534)
            base.mkdir()
            here = os.open(base, os.O_RDONLY)
            os.fchdir(here)
            for _ in range(1500):
                Path("a").mkdir()
                Path("file").write_text("x")
                os.chdir("a")
            os.fchdir(here)
            for locked in ("b", "c"):
                (base / locked / "d" / "e").mkdir(parents=True)
                (base / locked / "d").chmod(0)
                (base / locked).chmod(0o100 if locked == "b" else 0)
            remove_tree(base)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if base.exists():
        remove_tree(base)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_skill_is_copied_inside_whatever_was_put_in_its_place(tmp_path: Path) -> None:
    package, outside = tmp_path / "package", tmp_path / "outside"
    package.mkdir()
    (package / "SKILL.md").write_text("text")
    for place in ("work", "work/skill", "work/skill.partial", "work/artifacts"):
        outside.mkdir()
        workspace = Workspace(tmp_path / place.replace("/", "-"))
        path = workspace.root / place
        path.parent.mkdir(parents=True)
        path.symlink_to(outside)
        workspace.prepare(package)
        assert (workspace.cwd / "skill" / "SKILL.md").read_text() == "text"
        assert list(outside.iterdir()) == []
        outside.rmdir()
