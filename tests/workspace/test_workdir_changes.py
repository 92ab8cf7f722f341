"""The summary of changes: what it covers, and that no repository can make us run a program or change anything."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
from pathlib import Path

import pytest

from askback.core.changes import ChangedFile, Changes, ChangeStatus, NoSummary
from askback.process.isolation import UNLIMITED
from askback.process.spawn_direct import Direct
from askback.workspace import workdir_record
from askback.workspace.layout import Workspace
from askback.workspace.workdir_record import MAX_SUMMARIZED, Comparison, read_changes
from support.repositories import contents, git, repository

ADDED, MODIFIED, DELETED = ChangeStatus.ADDED, ChangeStatus.MODIFIED, ChangeStatus.DELETED


def changed(path: str, status: ChangeStatus, insertions: int | None, deletions: int | None) -> ChangedFile:
    return ChangedFile(path=path, status=status, insertions=insertions, deletions=deletions)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo")


@pytest.fixture
def comparison(tmp_path: Path, repo: Path) -> Comparison:
    (tmp_path / "run").mkdir()
    # Ending a program ends everything with its mark, also what another test has started.
    mark = f"tested-{secrets.token_hex(8)}"
    return Comparison(
        starter=Direct(), workspace=Workspace(tmp_path / "run"), workdir=repo, resources=UNLIMITED, mark=mark
    )


def begin(comparison: Comparison) -> str:
    assert comparison.prepare() is None
    tree = asyncio.run(comparison.start_tree())
    assert not isinstance(tree, NoSummary)
    return tree


def changes(comparison: Comparison, tree: str) -> Changes:
    return asyncio.run(comparison.changes_since(tree))


def test_nothing_has_changed_although_the_folder_was_not_clean(comparison: Comparison) -> None:
    assert changes(comparison, begin(comparison)) == Changes()


@pytest.mark.contract("J-6")
def test_every_kind_of_change_since_the_start_is_counted(comparison: Comparison, repo: Path) -> None:
    tree = begin(comparison)
    (repo / "site.css").write_text("blue\ngreen\n")
    (repo / "old.txt").unlink()
    (repo / "notes.txt").write_text("mine\nand more\n")
    (repo / "new folder").mkdir()
    (repo / 'new folder/a "b"\t\u00e9\n.txt').write_text("new\n")
    (repo / "picture.bin").write_bytes(b"\0\1\2")
    for ignored in ("build", "artifacts"):
        (repo / ignored).mkdir()
        (repo / ignored / "file.txt").write_text("not in the summary\n")
    assert changes(comparison, tree) == Changes(
        files=(
            changed('new folder/a "b"\t\u00e9\n.txt', ADDED, 1, 0),
            changed("notes.txt", MODIFIED, 1, 0),
            changed("old.txt", DELETED, 0, 2),
            changed("picture.bin", ADDED, None, None),
            changed("site.css", MODIFIED, 2, 1),
        ),
        total=5,
        insertions=4,
        deletions=3,
    )


def test_what_was_committed_or_stashed_in_between_counts_too(comparison: Comparison, repo: Path) -> None:
    tree = begin(comparison)
    (repo / "site.css").write_text("blue\n")
    git(repo, "commit", "--quiet", "-am", "both files")
    assert changes(comparison, tree).files == (changed("site.css", MODIFIED, 1, 1),)


def test_a_tracked_file_that_is_ignored_counts(comparison: Comparison, repo: Path) -> None:
    (repo / "build").mkdir()
    (repo / "build/kept.txt").write_text("kept\n")
    git(repo, "add", "-f", "build/kept.txt")
    git(repo, "commit", "--quiet", "-m", "kept")
    tree = begin(comparison)
    (repo / "build/kept.txt").write_text("changed\n")
    (repo / "build/other.txt").write_text("other\n")
    assert changes(comparison, tree).files == (changed("build/kept.txt", MODIFIED, 1, 1),)


def test_a_new_repository_without_a_commit_can_be_compared(comparison: Comparison, repo: Path, tmp_path: Path) -> None:
    repo.rename(tmp_path / "away")
    repo.mkdir()
    git(repo, "init", "--quiet", "--template=")
    (repo / "a").write_text("a\n")
    tree = begin(comparison)
    (repo / "b").write_text("b\n")
    assert changes(comparison, tree).files == (changed("b", ADDED, 1, 0),)


def test_many_changes_are_counted_and_the_first_are_listed(comparison: Comparison, repo: Path) -> None:
    tree = begin(comparison)
    for number in range(MAX_SUMMARIZED + 50):
        (repo / f"{number:04}.txt").write_text("line\n")
    found = changes(comparison, tree)
    assert (len(found.files), found.total, found.insertions) == (
        MAX_SUMMARIZED,
        MAX_SUMMARIZED + 50,
        MAX_SUMMARIZED + 50,
    )


# A repository that nobody should trust.


def arm(repo: Path, mark: Path) -> None:
    """Everything in a repository that names a program."""
    command = f"echo run >> {mark}; cat"
    names = ("core.fsmonitor", "diff.external", "core.pager", "core.sshCommand", "core.editor", "core.askPass")
    names += (
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "diff.evil.textconv",
        "diff.evil.command",
    )
    names += ("gpg.program", "credential.helper", "core.gitProxy", "alias.add", "alias.diff-tree", "alias.write-tree")
    for name in names:
        git(repo, "config", name, command)
    git(repo, "config", "core.hooksPath", ".git/hooks")
    git(repo, "config", "core.attributesFile", str(repo / ".evil"))
    (repo / ".evil").write_text("* filter=evil diff=evil\n")
    (repo / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (repo / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    (repo / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit", "reference-transaction", "pre-auto-gc"):
        (repo / ".git/hooks" / hook).write_text(f"#!/bin/sh\n{command}\n")
        (repo / ".git/hooks" / hook).chmod(0o755)


def times(folder: Path) -> dict[str, int]:
    """When each file was changed, except objects, whose times git updates when it uses them."""
    found = (path for path in folder.rglob("*") if "objects" not in path.parts)
    return {str(path): path.lstat().st_mtime_ns for path in found}


@pytest.mark.contract("J-6")
@pytest.mark.parametrize("when", ["before", "during"])
def test_no_program_of_the_repository_is_run(comparison: Comparison, repo: Path, tmp_path: Path, when: str) -> None:
    mark = tmp_path / "a-program-ran"
    inner = repository(tmp_path / "inner")
    git(repo, "submodule", "--quiet", "add", str(inner), "module")
    git(repo, "commit", "--quiet", "-m", "a module")
    if when == "before":
        arm(repo, mark)
        arm_module(repo, mark)
        mark.unlink(missing_ok=True)
    tree = begin(comparison)
    if when == "during":
        arm(repo, mark)
        arm_module(repo, mark)
        mark.unlink(missing_ok=True)
    (repo / "site.css").write_text("blue\n")
    (repo / "module/site.css").write_text("changed in the module\n")
    (repo / "more.txt").write_text("more\n")
    left, seen = contents(repo), times(repo)
    found = changes(comparison, tree)
    assert changes(comparison, tree) == found
    listed = {each.path for each in found.files}
    assert {"site.css", "more.txt"} <= listed <= {"site.css", "more.txt", ".evil", ".gitattributes"}
    assert found.unavailable is None
    assert not mark.exists()
    assert (contents(repo), times(repo)) == (left, seen)
    # Git itself would have run them.
    subprocess.run(["git", "diff", "--stat"], cwd=repo, check=False, capture_output=True)
    assert mark.exists()


def arm_module(repo: Path, mark: Path) -> None:
    """The git folder of a submodule is in that of the repository."""
    for name in ("core.fsmonitor", "filter.evil.clean", "diff.external"):
        git(repo / "module", "config", name, f"echo run >> {mark}; cat")
    (repo / "module/.gitattributes").write_text("* filter=evil\n")


@pytest.mark.parametrize("fate", ["no objects", "a damaged index", "no git folder", "a link"])
def test_a_repository_that_cannot_be_read_has_no_summary(
    comparison: Comparison, repo: Path, tmp_path: Path, fate: str
) -> None:
    tree = begin(comparison)
    (repo / "site.css").write_text("blue\n")
    match fate:
        case "no objects":
            (repo / ".git/objects").rename(tmp_path / "objects")
        case "a damaged index":
            (comparison.workspace.comparison / "index").write_bytes(os.urandom(1000))
        case "no git folder":
            (repo / ".git").rename(tmp_path / "git")
        case "a link":
            (repo / ".git").rename(tmp_path / "git")
            (repo / ".git").symlink_to(tmp_path / "git")
    found = changes(comparison, tree)
    if fate == "a link":
        # The objects are borrowed by their path. Nothing else is read through it.
        assert found.files == (changed("site.css", MODIFIED, 1, 1),)
    else:
        assert found == Changes(unavailable=NoSummary.UNREADABLE)


def test_a_comparison_that_takes_too_long_is_given_up_and_the_next_one_works(
    comparison: Comparison, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = begin(comparison)
    (repo / "site.css").write_text("blue\n")
    (comparison.workspace.comparison / "index.lock").write_text("left by an ended git")
    with monkeypatch.context() as patched:
        patched.setattr(workdir_record, "MAX_SEC", 0.0)
        assert changes(comparison, tree) == Changes(unavailable=NoSummary.TOO_SLOW)
    assert changes(comparison, tree).files == (changed("site.css", MODIFIED, 1, 1),)


@pytest.mark.parametrize("kind", ["nothing", "a file", "a link"])
def test_a_folder_that_is_not_the_top_of_a_repository_has_no_summary(
    comparison: Comparison, repo: Path, tmp_path: Path, kind: str
) -> None:
    (repo / ".git").rename(tmp_path / "git")
    if kind == "a file":
        (repo / ".git").write_text(f"gitdir: {tmp_path / 'git'}\n")
    elif kind == "a link":
        (repo / ".git").symlink_to(tmp_path / "git")
    assert comparison.prepare() is NoSummary.NOT_A_REPOSITORY


def test_lines_that_git_would_not_print_are_ignored() -> None:
    assert read_changes(["", "warning", "x\ty", ":100644"]) == Changes()
