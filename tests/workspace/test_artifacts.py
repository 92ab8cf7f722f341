"""Artifacts: only regular files in their folder are opened and bundled."""

from __future__ import annotations

import io
import os
import unicodedata
import zipfile
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.fs.paths import open_below
from askback.text.json_text import is_encodable
from askback.workspace.artifacts import Bundle
from askback.workspace.layout import Workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("outside")
    folder = tmp_path / "artifacts"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep" / "er" / "b.txt").write_text("b")
    return folder


def content(folder: Path, path: str) -> bytes | None:
    opened = open_below(folder, path)
    if opened is None:
        return None
    with opened:
        return opened.read()


def test_a_file_below_is_opened(folder: Path) -> None:
    assert content(folder, "a.txt") == b"a"
    assert content(folder, "deep/er/b.txt") == b"b"


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "..", "/", "a.txt/", "/a.txt", "./a.txt", "deep/../a.txt", "../outside", "deep//er/b.txt", "deep"),
        *("none", "a.txt\x00", "\x00", "\ud800", "deep/er/b.txt/x", "a" * 300, "deep/" * 3000),
    ],
)
def test_another_path_is_none(folder: Path, path: str) -> None:
    assert content(folder, path) is None


def test_no_link_is_followed_on_any_step(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "inner").symlink_to("a.txt")
    (folder / "way").symlink_to(tmp_path)
    (folder / "deep" / "way").symlink_to(tmp_path)
    for path in ("link", "inner", "way/outside", "deep/way/outside", "way/artifacts/a.txt"):
        assert content(folder, path) is None, path
    other = tmp_path / "other"
    other.symlink_to(folder)
    assert content(other, "a.txt") is None


def test_what_is_no_plain_file_is_none_and_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "zero").symlink_to("/dev/zero")
    assert content(folder, "pipe") is None
    assert content(folder, "zero") is None


def test_a_file_in_the_place_of_a_folder_is_none(folder: Path) -> None:
    assert content(folder / "a.txt", "x") is None
    assert content(folder / "none", "x") is None


def test_no_descriptor_is_left_open(folder: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.txt", "deep/er/b.txt", "deep", "none", "a.txt/x", "../outside", "deep/er/none"):
        content(folder, path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def whole(bundle: Bundle) -> io.BytesIO:
    return io.BytesIO(b"".join(iter(bundle.next_piece, None)))


def test_a_piece_of_a_bundle_is_small_work_whatever_the_files_are(folder: Path) -> None:
    """A sparse file reads as endless zeros, which compress to almost nothing."""
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    read: list[int] = []

    class Counted:
        def __init__(self, path: str) -> None:
            opened = open_below(folder, path)
            assert opened is not None
            self._opened = opened

        def read(self, size: int) -> bytes:
            read.append(size)
            return self._opened.read(size)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self._opened.close()

    bundle = Bundle([("sparse", 1 << 40)], Counted)  # type: ignore[arg-type]
    for pieces in range(1, 20):
        assert bundle.next_piece() is not None
        assert len(read) <= pieces
    bundle.close()


def test_a_bundle_holds_what_can_be_opened(folder: Path) -> None:
    listed = [("a.txt", 1), ("gone", 5), ("deep/er/b.txt", 1)]
    with zipfile.ZipFile(whole(Bundle(listed, lambda path: open_below(folder, path)))) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {"a.txt": b"a", "deep/er/b.txt": b"b"}


def test_no_name_in_a_bundle_is_a_path_or_a_drive_elsewhere(folder: Path) -> None:
    names = ["a\\..\\..\\b", "C:x", "new\nline", "turned\u202egpj.exe"]
    for name in names:
        (folder / name).write_bytes(b"x")
    with zipfile.ZipFile(
        whole(Bundle([(name, 1) for name in names], lambda path: open_below(folder, path)))
    ) as archive:
        assert archive.namelist() == ["a_.._.._b", "C_x", "new_line", "turned_gpj.exe"]


def test_a_file_that_grows_is_bundled_as_long_as_it_was(folder: Path) -> None:
    """An engine that keeps writing must not keep us reading."""
    growing = (folder / "log").open("ab", buffering=0)
    growing.write(b"x" * 3_000_000)

    class Growing:
        def __init__(self, path: str) -> None:
            opened = open_below(folder, path)
            assert opened is not None
            self._opened = opened

        def fileno(self) -> int:
            return self._opened.fileno()

        def read(self, size: int) -> bytes:
            growing.write(b"y" * size)
            return self._opened.read(size)

        def __enter__(self) -> Growing:
            return self

        def __exit__(self, *_: object) -> None:
            self._opened.close()

    bundle = Bundle([("log", 3_000_000)], Growing)  # type: ignore[arg-type]
    with growing, zipfile.ZipFile(whole(bundle)) as archive:
        assert len(archive.read("log")) == 3_000_000


def test_names_that_are_no_text_are_told_apart() -> None:
    assert is_encodable("größe.txt")
    assert not is_encodable("\udcff")


def test_a_run_tells_and_opens_only_its_own_files(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "run")
    workspace.artifacts_path.mkdir(parents=True)
    (workspace.artifacts_path / "a.txt").write_text("a")
    (workspace.artifacts_path / "bad\udcff").write_text("b")
    assert [each.path for each in workspace.artifacts()] == ["a.txt"]
    opened = workspace.open_artifact("a.txt")
    assert opened is not None
    opened.close()
    elsewhere = tmp_path / "elsewhere"
    workspace.cwd.rename(elsewhere)
    workspace.cwd.symlink_to(elsewhere)
    assert list(workspace.artifacts()) == []
    assert workspace.open_artifact("a.txt") is None


def test_an_input_goes_nowhere_but_into_the_run(tmp_path: Path) -> None:
    """The engine may have created links in the place of inputs."""
    source, outside = tmp_path / "key", tmp_path / "outside"
    source.write_text("content")
    outside.mkdir()
    (outside / "key").write_text("the user's own")
    workspace = Workspace(tmp_path / "run")
    for planted in ("inputs", "inputs/answer", "inputs/answer/key"):
        place = workspace.cwd / planted
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(outside if planted != "inputs/answer/key" else outside / "key")
        told = workspace.stage_input("answer", source)
        assert (workspace.cwd / told).read_text() == "content"
        assert [path.name for path in outside.iterdir()] == ["key"]
        assert (outside / "key").read_text() == "the user's own"
        workspace.drop_input("answer", source.name)
        assert not (workspace.cwd / "inputs" / "answer").exists()


PARTS = st.sampled_from(["r:1.md", "r_1.md", "R_1.MD", "r", "R", "r_1.md~2", "é", "e\u0301", "É", "b|c", "b_c"])


@given(st.lists(st.lists(PARTS, min_size=1, max_size=3).map("/".join), unique=True, max_size=12))
def test_a_bundle_loses_no_file_on_any_system(paths: list[str]) -> None:
    """Windows and macOS do not distinguish upper and lower case, nor some forms of a letter."""
    bundle = Bundle([(path, 200) for path in paths], lambda path: cast(BinaryIO, io.BytesIO(path.encode())))
    with zipfile.ZipFile(whole(bundle)) as archive:
        names = archive.namelist()
        assert [archive.read(name).decode() for name in names] == paths
    unpacked = [unicodedata.normalize("NFC", name).casefold() for name in names]
    assert len(set(unpacked)) == len(paths)
    folders = {"/".join(name.split("/")[:depth]) for name in unpacked for depth in range(1, name.count("/") + 1)}
    assert folders.isdisjoint(unpacked)
