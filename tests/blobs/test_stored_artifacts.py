"""Artifacts that one machine has stored, as another one sees them."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from askback.background.pools import Abandoned
from askback.blobs.base import Files
from askback.core.errors import Invalid
from askback.process.locks import FileLock
from askback.workspace.layout import Workspace
from askback.workspace.turn_artifacts import TurnArtifacts, artifacts_of, store_artifacts
from askback.workspace.versions import LocalArtifacts, with_turns
from askback.workspace.workspaces import Workspaces

OpenStore = Callable[[], Files]
ODD = "deep/北京\nplan #1.txt"


@pytest.fixture
def machines(tmp_path: Path, open_store: OpenStore) -> tuple[Workspace, Workspace]:
    return tuple(Workspaces(tmp_path / name, files=open_store()).of("run1") for name in ("one", "two"))  # type: ignore[return-value]


def turn(workspace: Workspace, number: int, epoch: int | None = None, **files: str | bytes | None) -> None:
    """A turn that writes these files, or removes them."""
    workspace.artifacts_path.mkdir(parents=True, exist_ok=True)
    workspace.turns.mkdir(exist_ok=True)
    name = f"{number:03d}-{epoch or number:03d}"
    (workspace.turns / f"{name}.stdout").write_text("line\n" * 1000)
    for path, content in files.items():
        target = workspace.artifacts_path / (ODD if path == "odd" else path)
        if content is None:
            target.unlink()
            continue
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    LocalArtifacts(workspace).record(number)
    store_artifacts(workspace, name)


def test_another_machine_shows_the_end_of_the_last_turn(machines: tuple[Workspace, Workspace]) -> None:
    one, two = machines
    large = os.urandom(9 << 20)
    turn(one, 1, a="first\n", odd="plan", large=large, gone="x")
    turn(one, 2, a="second\n", gone=None)
    here, view = artifacts_of(one), artifacts_of(two)
    assert (type(here), type(view)) == (LocalArtifacts, TurnArtifacts)
    for each in (here, view):
        found = with_turns(each.index(), each.artifacts(), None)
        assert {(file.path, file.size, file.turn) for file in found} == {
            ("a", 7, 2),
            (ODD, 4, 1),
            ("large", 9 << 20, 1),
        }
        opened = each.open("large")
        assert opened is not None
        with opened:
            assert opened.read() == large
        assert each.open("gone") is None
        assert [version.turn for version in each.index()["a"]] == [1, 2]
        assert each.text(each.index()["a"][0]) == "first\n"
        assert (each.text_now("a"), each.text_now("large"), each.text_now("gone")) == ("second\n", None, "")
        bundle = each.bundle(20 << 20)
        with zipfile.ZipFile(BytesIO(b"".join(iter(bundle.next_piece, None)))) as archive:
            assert len(archive.namelist()) == 3
            assert archive.read("a") == b"second\n"
        with pytest.raises(Invalid):
            each.bundle(1 << 20)


def test_contents_that_did_not_change_are_stored_once(
    machines: tuple[Workspace, Workspace], open_store: OpenStore
) -> None:
    one, _ = machines
    turn(one, 1, a="same", b="same")
    before = {each.key: each.stored_at for each in open_store().list("runs/run1/contents/")}
    assert len(before) == 1
    (one.artifacts_path / "a").touch()
    turn(one, 2, c="same")
    assert {each.key: each.stored_at for each in open_store().list("runs/run1/contents/")} == before
    raw = [each.key for each in open_store().list("runs/run1/turns/")]
    assert sorted(raw) == ["runs/run1/turns/001-001.tar.zst", "runs/run1/turns/002-002.tar.zst"]


def test_files_that_are_longer_than_any_disk_are_left_out(
    machines: tuple[Workspace, Workspace], open_store: OpenStore
) -> None:
    """They consist of holes: an engine makes them at no cost, and all of their zeros would be read and stored."""
    one, two = machines
    turn(one, 1, small="x")
    for name in ("a-huge", "z-huge"):
        with (one.artifacts_path / name).open("wb") as file:
            file.truncate(1 << 43)
    with (one.artifacts_path / "fits").open("wb") as file:
        file.truncate(20 << 20)
    assert store_artifacts(one, "002-002") == 2
    assert {each.path for each in artifacts_of(two).artifacts()} == {"fits", "small"}
    assert sum(each.size for each in open_store().list("runs/run1/contents/")) == (20 << 20) + 1
    # Nothing of the copies is left.
    assert {path.name for path in one.root.iterdir()} == {"work", "turns", "versions", "stored-turn"}


def test_a_list_has_paths_up_to_a_limit(machines: tuple[Workspace, Workspace], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every machine that shows the artifacts reads the whole list."""
    monkeypatch.setattr("askback.workspace.turn_artifacts._MAX_NAMES", 1000)
    one, two = machines
    turn(one, 1, **{f"{number}{'x' * 200}": "x" for number in range(8)})
    assert store_artifacts(one, "002-002") == 4
    view = artifacts_of(two)
    assert len([*view.artifacts()]) == len(view.index()) == 4


def test_a_changed_file_is_stored_whatever_its_time_says(machines: tuple[Workspace, Workspace]) -> None:
    """Packers set fixed times, and an engine can set any."""
    one, two = machines
    turn(one, 1, a="version 1.0")
    before = (one.artifacts_path / "a").stat()
    (one.artifacts_path / "a").write_text("version 1.1")
    os.utime(one.artifacts_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    store_artifacts(one, "002-002")
    assert artifacts_of(two).text_now("a") == "version 1.1"


def test_storing_is_abandoned_between_two_files(machines: tuple[Workspace, Workspace], open_store: OpenStore) -> None:
    one, _ = machines
    turn(one, 1, a="x")

    def checkpoint() -> None:
        if one.root.joinpath("storing").exists():
            raise Abandoned

    with pytest.raises(Abandoned):
        store_artifacts(one, "002-002", checkpoint=checkpoint)
    assert [each.key for each in open_store().list("runs/run1/artifacts/")] == ["runs/run1/artifacts/001-001.json"]


def test_a_run_without_artifacts_has_no_list(machines: tuple[Workspace, Workspace], open_store: OpenStore) -> None:
    one, two = machines
    turn(one, 1)
    assert list(open_store().list("runs/run1/artifacts/")) == []
    assert list(artifacts_of(two).artifacts()) == []


def test_the_versions_go_on_where_another_machine_left_off(machines: tuple[Workspace, Workspace]) -> None:
    one, two = machines
    turn(one, 1, a="first\n")
    # They come with the folder, which is restored before a turn. The contents need not be there.
    shutil.copytree(
        one.root / "versions", two.root / "versions", ignore=lambda folder, names: set(names) - {"index.json"}
    )
    turn(two, 2, a="second\n")
    assert isinstance(artifacts_of(two), LocalArtifacts)
    for view in (artifacts_of(one), artifacts_of(two)):
        known = view.index()["a"]
        assert [each.turn for each in known] == [1, 2]
        assert [view.text(each) for each in known] == ["first\n", "second\n"]
    # What the first machine has is old now, unless a process of the run is alive there.
    assert isinstance(artifacts_of(one), TurnArtifacts)
    lock = FileLock.take(one.lock_path)
    assert lock is not None
    assert isinstance(artifacts_of(one), LocalArtifacts)
    lock.release()


def test_the_end_of_a_restarted_turn_counts(machines: tuple[Workspace, Workspace]) -> None:
    one, two = machines
    turn(two, 2, epoch=10, a="restarted")
    turn(one, 2, epoch=9, a="lost")
    assert artifacts_of(one).text_now("a") == "restarted"
    assert artifacts_of(two).text_now("a") == "restarted"


def test_after_a_power_failure_the_stored_artifacts_count(machines: tuple[Workspace, Workspace]) -> None:
    one, _ = machines
    turn(one, 1, a="x" * 380)
    assert isinstance(artifacts_of(one), LocalArtifacts)
    # The file was not on the disk yet, and the machine has started again since.
    (one.artifacts_path / "a").write_bytes(b"")
    note = one.root / "stored-turn"
    boot, _, name = note.read_text().rpartition(" ")
    assert (len(boot) > 0, name) == (True, "001-001")
    note.write_text(f"another-boot {name}")
    view = artifacts_of(one)
    assert [(each.path, each.size) for each in view.artifacts()] == [("a", 380)]
    assert view.text_now("a") == "x" * 380
