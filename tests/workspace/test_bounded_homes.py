"""Homes that an engine fills with names, long paths and hard links: what is saved of them, and the memory for it, is bounded."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from askback.core.errors import Invalid
from askback.fs.archive_writer import ArchiveRefused, pack
from askback.fs.copies import CopyLimits, CopyRefused, TreeCopy
from askback.fs.walk import TreeBounds, TreeTooLarge, list_tree, open_tree
from askback.workspace import manifests, snapshots
from askback.workspace.artifacts import artifacts_in, bounded, bundle_of
from askback.workspace.manifests import ForkPoints

MB = 1 << 20
PARTS = 14
LONG = "d" * 250


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("home", "snapshots"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "session").write_text("one\n")
    return tmp_path / "home"


def link_at_the_end_of_long_paths(folder: Path, number: int) -> int:
    """Hard links to one file. Returns the characters of all their paths."""
    at = os.open(folder, os.O_RDONLY)
    os.close(os.open("linked", os.O_CREAT, dir_fd=at))
    top = at
    for _ in range(PARTS):
        os.mkdir(LONG, dir_fd=at)
        below = os.open(LONG, os.O_RDONLY, dir_fd=at)
        if at != top:
            os.close(at)
        at = below
    for each in range(number):
        os.link("linked", f"{each:05}", src_dir_fd=top, dst_dir_fd=at)
    os.close(at)
    os.close(top)
    return number * PARTS * 251


def copies(home: Path) -> list[str]:
    return sorted(each.name for each in (home.parent / "snapshots" / "files").iterdir())


def test_a_home_with_countless_long_paths_is_refused_without_listing_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    characters = link_at_the_end_of_long_paths(home, 4_000)
    monkeypatch.setattr(snapshots, "HOME", TreeBounds(names=10_000, characters=100_000))
    tracemalloc.start()
    try:
        with pytest.raises(TreeTooLarge, match="100,000 characters"):
            snapshots.begin_turn(home, home.parent / "snapshots", 2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert characters > 14_000_000
    assert peak < MB
    assert copies(home) == []


@pytest.mark.parametrize("kind", ["files", "folders", "links"])
def test_a_home_with_too_many_names_of_any_kind_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    make = {"files": Path.touch, "folders": Path.mkdir, "links": lambda path: path.symlink_to("x")}[kind]
    for number in range(60):
        make(home / str(number))
    monkeypatch.setattr(snapshots, "HOME", TreeBounds(names=50))
    for save in (snapshots.begin_turn, snapshots.save_early, snapshots.begin_live_turn):
        with pytest.raises(TreeTooLarge, match="50 files and folders"):
            save(home, home.parent / "snapshots", 2)
    with pytest.raises(TreeTooLarge):
        snapshots.save_between_turns(home, home.parent / "snapshots")
    assert copies(home) == []


def test_every_name_of_a_hard_link_counts_for_the_size_of_a_home(home: Path) -> None:
    """A copy has the content once for each name: forty names of one megabyte would be forty megabytes."""
    (home / "large").write_bytes(os.urandom(MB))
    for number in range(40):
        (home / f"{number}").hardlink_to(home / "large")
    with pytest.raises(TreeTooLarge, match="take more than 10 MB"):
        snapshots.begin_turn(home, home.parent / "snapshots", 2, max_bytes=10 * MB)
    assert copies(home) == []
    snapshots.begin_turn(home, home.parent / "snapshots", 2, max_bytes=50 * MB)
    assert len(copies(home)) == 42


def test_a_home_that_grew_too_large_keeps_the_snapshot_before(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots.begin_turn(home, home.parent / "snapshots", 2)
    before = copies(home)
    for number in range(60):
        (home / str(number)).touch()
    monkeypatch.setattr(snapshots, "HOME", TreeBounds(names=50))
    with pytest.raises(TreeTooLarge):
        snapshots.begin_turn(home, home.parent / "snapshots", 3)
    assert copies(home) == before


def test_no_walk_of_a_tree_goes_on_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists end there, and everything else is refused."""
    (tmp_path / "artifacts").mkdir()
    for number in range(60):
        (tmp_path / "artifacts" / f"{number:02}").touch()
    monkeypatch.setattr("askback.fs.walk._WALK", TreeBounds(names=50))
    assert len(list(bounded(artifacts_in(tmp_path)))) == 50
    with pytest.raises(Invalid, match="50 files and folders; download"):
        bundle_of(artifacts_in(tmp_path), lambda path: None, MB)
    (tmp_path / "copy").mkdir()
    with pytest.raises(CopyRefused, match="50 files"):
        TreeCopy(tmp_path / "copy", CopyLimits(), lambda: None).copy(tmp_path, "artifacts", "a")
    with pytest.raises(ArchiveRefused, match="50 files"), (tmp_path / "archive").open("wb") as archive:
        pack(tmp_path, ["artifacts"], archive)
    with pytest.raises(TreeTooLarge), open_tree(tmp_path, "artifacts") as tree:
        list_tree(tree)


# Fork points.


def point(home: Path, number: int) -> Path:
    return home.parent / "snapshots" / "points" / f"{number:06d}.json"


def turn(home: Path, number: int, points: int = 5) -> None:
    snapshots.begin_turn(home, home.parent / "snapshots", number, points)
    with (home / "session").open("a") as file:
        file.write(f"turn {number}\n")


def test_a_save_reads_of_earlier_points_only_which_copies_they_need(home: Path) -> None:
    for number in (2, 3):
        turn(home, number)
    for number in (2, 3):
        head, _, rest = point(home, number).read_bytes().partition(b"\n")
        assert json.loads(head.removesuffix(b",") + b"}")["copies"]
        assert json.loads(head + rest)["files"]["session"]
        point(home, number).write_bytes(head + b"\n" + b"not read" * len(rest))
    kept = copies(home)
    turn(home, 4)
    snapshots.end(home.parent / "snapshots")
    assert set(kept) < set(copies(home))


def test_points_of_earlier_versions_keep_their_copies(home: Path) -> None:
    turn(home, 2)
    turn(home, 3)
    written = json.loads(point(home, 2).read_bytes())
    del written["copies"]
    point(home, 2).write_text(json.dumps(written))
    turn(home, 4)
    base = home.parent / "fork"
    base.mkdir()
    ForkPoints(home.parent / "snapshots").copy(2, TreeCopy(base, CopyLimits(), lambda: None), "home")
    assert (base / "home" / "session").read_text() == "one\n"


def test_countless_small_files_in_points_count_as_what_they_take_on_the_disk(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn changes forty empty files: the points share none of their copies."""
    monkeypatch.setattr(manifests, "MAX_BYTES", 500_000)
    for number in range(2, 9):
        for each in range(40):
            (home / f"{each}").unlink(missing_ok=True)
            (home / f"{each}").touch()
        turn(home, number, points=100)
    assert len(ForkPoints.turns(home.parent / "snapshots")) == 2
    stored = sum(max(each.stat().st_size, 4096) for each in (home.parent / "snapshots").rglob("*") if each.is_file())
    assert stored < 500_000 + 250_000
