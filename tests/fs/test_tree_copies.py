"""Copies of trees that an engine wrote: no link is followed, the source stays as it is, and there are limits."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from askback.background.pools import unchecked
from askback.fs.copies import CopyLimits, CopyRefused, SourceChanged, TreeCopy


def copied(tmp_path: Path, limits: CopyLimits | None = None, **rules: Any) -> Path:
    """The copy of `tmp_path/run/work`."""
    base = tmp_path / "new"
    base.mkdir()
    copying = TreeCopy(base, limits or CopyLimits(), unchecked)
    copying.copy(tmp_path / "run", "work", "work", **rules)
    copying.sync()
    return base / "work"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "run" / "work").mkdir(parents=True)
    return tmp_path / "run" / "work"


def seen(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_mtime, _content(path))
        for path in sorted(folder.rglob("*"))
    }


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return os.fsencode(path.readlink())
    return path.read_bytes() if path.is_file() else b""


class Swap:
    """Changes something at the moment when an entry that was listed as a link or a file is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, name: str, change: Callable[[], object]) -> None:
        self._real = getattr(os, call)
        self._name = name
        self._change = change
        monkeypatch.setattr(os, call, self)

    def __call__(self, path: Any, *args: Any, **options: Any) -> Any:
        if path == self._name and "dir_fd" in options:
            self._change()
        return self._real(path, *args, **options)


def to_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("other")


def to_file(path: Path) -> None:
    path.unlink()
    path.write_text("a file")


def test_a_link_that_becomes_a_file_is_a_change(tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (work / "link").symlink_to("other")
    Swap(monkeypatch, "readlink", "link", lambda: to_file(work / "link"))
    with pytest.raises(SourceChanged, match="work/link was changed"):
        copied(tmp_path)


@pytest.mark.parametrize("change", [to_link, Path.unlink], ids=["a link", "nothing"])
def test_a_file_that_becomes_something_else_is_a_change(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    (work / "file").write_text("a file")
    Swap(monkeypatch, "open", "file", lambda: change(work / "file"))
    with pytest.raises(SourceChanged, match="work/file was changed"):
        copied(tmp_path)


def test_files_keep_their_content_their_time_and_their_permission_to_run(tmp_path: Path, work: Path) -> None:
    (work / "deep" / "empty").mkdir(parents=True)
    (work / "deep" / "tool").write_text("#!/bin/sh\n")
    (work / "deep" / "tool").chmod(0o755)
    os.utime(work / "deep" / "tool", (1_000_000, 1_000_000))
    with (work / "holes").open("wb") as file:
        file.truncate(50_000_000)
    before = seen(work)
    copy = copied(tmp_path, CopyLimits(max_bytes=1_000_000))
    assert (copy / "deep" / "empty").is_dir()
    assert (copy / "deep" / "tool").read_text() == "#!/bin/sh\n"
    assert os.access(copy / "deep" / "tool", os.X_OK)
    assert (copy / "deep" / "tool").stat().st_mtime == 1_000_000
    assert (copy / "holes").stat().st_size == 50_000_000
    assert seen(work) == before


def test_a_copied_file_shares_nothing_with_its_source(tmp_path: Path, work: Path) -> None:
    (work / "a").write_text("old")
    (work / "b").hardlink_to(work / "a")
    copy = copied(tmp_path)
    (copy / "a").write_text("new")
    assert [(work / name).read_text() for name in "ab"] == ["old", "old"]
    assert (copy / "b").read_text() == "old"


@pytest.mark.parametrize(
    ("target", "stays"),
    [
        ("file", True),
        ("./file", True),
        ("../deep/file", True),
        ("../missing", True),
        ("/etc/passwd", False),
        ("../../outside", False),
        ("loop/../../outside", False),
        ("..", True),
        ("../..", False),
    ],
)
def test_only_links_that_stay_inside_are_copied(tmp_path: Path, work: Path, target: str, stays: bool) -> None:
    (work / "deep").mkdir()
    (work / "deep" / "file").write_text("inside")
    (work / "deep" / "loop").symlink_to("..")
    (work / "deep" / "link").symlink_to(target)
    copy = copied(tmp_path)
    assert (copy / "deep" / "link").is_symlink() is stays
    if stays:
        assert os.fspath((copy / "deep" / "link").readlink()) == os.fspath(Path(target))


def test_links_pipes_and_sockets_are_left_out_of_files_for_the_user(tmp_path: Path, work: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (work / "link").symlink_to(secret)
    (work / "folder").symlink_to(tmp_path)
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(work / "socket"))
        (work / "file").write_text("text")
        copy = copied(tmp_path, links=False)
    assert [path.name for path in copy.iterdir()] == ["file"]


@pytest.mark.parametrize("place", ["work", "run"])
def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path, work: Path, place: str) -> None:
    (tmp_path / "elsewhere" / "work").mkdir(parents=True)
    (tmp_path / "elsewhere" / "work" / "secret").write_text("key")
    work.rmdir()
    if place == "work":
        work.symlink_to(tmp_path / "elsewhere" / "work")
        with pytest.raises(CopyRefused, match="work is not a folder"):
            copied(tmp_path)
    else:
        work.parent.rmdir()
        work.parent.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(CopyRefused, match="work is not a folder"):
            copied(tmp_path)
    assert not list((tmp_path / "new").rglob("secret"))


def test_names_at_the_top_can_be_left_out(tmp_path: Path, work: Path) -> None:
    for name in (".Claude", "skill", "deep/.claude"):
        (work / name).mkdir(parents=True)
    copy = copied(tmp_path, leave_out={".claude", "skill"})
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*")) == ["deep", "deep/.claude"]


def test_a_source_that_is_missing_is_empty(tmp_path: Path, work: Path) -> None:
    work.rmdir()
    assert list(copied(tmp_path).iterdir()) == []


def test_what_is_too_large_too_many_or_too_deep_is_refused(tmp_path: Path, work: Path) -> None:
    (work / "a" / "b" / "c").mkdir(parents=True)
    (work / "large").write_bytes(os.urandom(3_000_000))
    for number, (limits, message) in enumerate(
        (
            (CopyLimits(max_bytes=2_097_152), "take more than 2 MB"),
            (CopyLimits(max_entries=3), "more than 3 files"),
            (CopyLimits(max_depth=1), "deeper than 1 levels"),
            (CopyLimits(reserve_bytes=1 << 60), "too little free space"),
        )
    ):
        (tmp_path / str(number)).mkdir()
        copying = TreeCopy(tmp_path / str(number), limits, unchecked)
        with pytest.raises(CopyRefused, match=message):
            copying.copy(tmp_path / "run", "work", "work")


def test_a_copy_ends_when_nobody_waits_for_it(tmp_path: Path, work: Path) -> None:
    class Gone(Exception):
        pass

    def checkpoint() -> None:
        raise Gone

    (work / "file").write_text("text")
    with pytest.raises(Gone):
        TreeCopy(tmp_path / "run", CopyLimits(), checkpoint).copy(tmp_path / "run", "work", "new")
