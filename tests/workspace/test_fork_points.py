"""Fork points: the home before earlier turns, kept beside the current snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from askback.background.pools import unchecked
from askback.fs.copies import CopyLimits, CopyRefused, TreeCopy
from askback.workspace import manifests as points
from askback.workspace import snapshots
from askback.workspace.manifests import ForkPoints


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "deep").mkdir(parents=True)
    (tmp_path / "home" / "constant").write_text("same")
    (tmp_path / "home" / "inside").symlink_to("deep")
    (tmp_path / "home" / "outside").symlink_to("/etc")
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "home"


def turn(home: Path, number: int, keep: int = 3) -> None:
    """A turn that answers a question and adds a line to the session."""
    snapshots.begin_turn(home, home.parent / "snapshots", number, keep)
    with (home / "deep" / "session").open("a") as file:
        file.write(f"turn {number}\n")


def forked(home: Path, number: int) -> Path:
    base = home.parent / f"fork-{number}"
    base.mkdir()
    ForkPoints(home.parent / "snapshots").copy(number, TreeCopy(base, CopyLimits(), unchecked), "home")
    return base / "home"


@pytest.mark.contract("J-4")
def test_each_point_is_the_home_as_it_was_before_its_turn(home: Path) -> None:
    for number in (2, 3, 4):
        turn(home, number)
    snapshots.end(home.parent / "snapshots")
    assert (forked(home, 4) / "deep" / "session").read_text() == "turn 2\nturn 3\n"
    assert (forked(home, 3) / "deep" / "session").read_text() == "turn 2\n"
    first = forked(home, 2)
    assert sorted(path.name for path in first.iterdir()) == ["constant", "deep", "inside"]
    assert not (first / "deep" / "session").exists()


def test_the_oldest_points_are_dropped_with_their_copies(home: Path) -> None:
    for number in range(2, 8):
        turn(home, number, keep=2)
    with pytest.raises(CopyRefused, match="no longer kept"):
        forked(home, 5)
    assert (forked(home, 6) / "deep" / "session").read_text().endswith("turn 5\n")
    snapshots.end(home.parent / "snapshots")
    assert not [each for each in (home.parent / "snapshots" / "files").iterdir() if each.read_text() == "turn 2\n"]


def test_an_early_save_drops_no_point_before_its_turn_begins(home: Path) -> None:
    turn(home, 2, keep=1)
    snapshots.save_early(home, home.parent / "snapshots", 3, 1)
    assert not (forked(home, 2) / "deep" / "session").exists()
    turn(home, 3, keep=1)
    with pytest.raises(CopyRefused, match="no longer kept"):
        ForkPoints(home.parent / "snapshots").copy(2, TreeCopy(home.parent, CopyLimits(), unchecked), "again")
    assert (forked(home, 3) / "deep" / "session").read_text() == "turn 2\n"


def test_points_that_are_too_large_are_dropped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "MAX_BYTES", 10)
    (home / "large").write_text("x" * 20)
    turn(home, 2)
    turn(home, 3)
    with pytest.raises(CopyRefused, match="no longer kept"):
        forked(home, 3)


def test_a_restart_restores_the_home_and_keeps_the_point(home: Path) -> None:
    turn(home, 2)
    turn(home, 3)
    snapshots.begin_turn(home, home.parent / "snapshots", 3, 3)
    assert (home / "deep" / "session").read_text() == "turn 2\n"
    turn(home, 4)
    assert (forked(home, 3) / "deep" / "session").read_text() == "turn 2\n"


def test_a_crash_between_the_point_and_the_manifest_is_repeated(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn(home, 2)
    written = points.Manifest.write

    def crash(self: points.Manifest, folder: Path, *name: str) -> None:
        if not name:
            raise KeyboardInterrupt
        written(self, folder, *name)

    with monkeypatch.context() as patch:
        patch.setattr(points.Manifest, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            snapshots.begin_turn(home, home.parent / "snapshots", 3, 3)
    turn(home, 3)
    snapshots.begin_turn(home, home.parent / "snapshots", 3, 3)
    assert (home / "deep" / "session").read_text() == "turn 2\n"
    assert (forked(home, 3) / "deep" / "session").read_text() == "turn 2\n"
