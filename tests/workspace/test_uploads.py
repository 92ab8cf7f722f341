"""Uploads: stored completely or not at all, under a safe name, and removed when they are old."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from askback.core.errors import NotFound
from askback.workspace.uploads import Uploads, safe_name


class Breaking(io.RawIOBase):
    """A source that fails after its first part."""

    def __init__(self) -> None:
        self._parts = [b"half"]

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if not self._parts:
            raise OSError("the client is gone")
        return self._parts.pop()


def test_an_upload_is_found_by_its_id_with_its_name(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads")
    kept = uploads.store("plan.txt", io.BytesIO(b"the plan"))
    assert (kept.name, kept.size) == ("plan.txt", 8)
    path = uploads.path(kept.upload_id)
    assert (path.name, path.read_bytes()) == ("plan.txt", b"the plan")


def test_an_upload_that_runs_have_used_is_still_found(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads")
    stored = uploads.store("plan.txt", io.BytesIO(b"the plan"))
    for number in range(8):
        uploads.record_use([uploads.path(stored.upload_id)], f"run{number}")
        assert uploads.path(stored.upload_id).name == "plan.txt"


def test_two_of_one_name_do_not_meet(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    first, second = (uploads.store("a", io.BytesIO(text)) for text in (b"1", b"2"))
    assert first.upload_id != second.upload_id
    assert uploads.path(first.upload_id).read_bytes() == b"1"


def test_uploads_are_private(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "uploads")
    folder = uploads.path(uploads.store("a", io.BytesIO(b"")).upload_id).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert folder.parent.stat().st_mode & 0o077 == 0


def test_an_upload_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        Uploads(tmp_path).store("a", Breaking())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "upload_id", ["", ".", "..", "up-", "up-" + "0" * 24, "up-" + "g" * 24, "../x", "up-" + "٠" * 24, "\x00"]
)
def test_what_is_no_upload_is_not_found(tmp_path: Path, upload_id: str) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(NotFound):
        Uploads(tmp_path).path(upload_id)


def test_an_upload_that_is_just_being_removed_is_not_found(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    kept = uploads.store("a", io.BytesIO(b"x"))
    uploads.path(kept.upload_id).unlink()
    with pytest.raises(NotFound):
        uploads.path(kept.upload_id)


def test_old_uploads_are_swept_away_also_unfinished_ones(tmp_path: Path) -> None:
    uploads = Uploads(tmp_path)
    old, new = (uploads.store("a", io.BytesIO(b"x")) for _ in range(2))
    unfinished = tmp_path / ".up-000000000000000000000000"
    unfinished.mkdir()
    for folder in (uploads.path(old.upload_id).parent, unfinished):
        os.utime(folder, (0, 0))
    assert uploads.sweep(3600) == 2
    assert [path.name for path in tmp_path.iterdir()] == [new.upload_id]
    assert Uploads(tmp_path / "nothing").sweep(0) == 0


def test_what_others_left_among_uploads_does_not_keep_them_from_being_removed(tmp_path: Path) -> None:
    """A file manager may leave a file in every folder that it shows."""
    uploads = Uploads(tmp_path)
    for _ in range(3):
        uploads.store("a", io.BytesIO(b"a"))
    (tmp_path / ".DS_Store").write_text("theirs")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert uploads.sweep(-1) == 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("plan.txt", "plan.txt"),
        ("a/b\\c.txt", "c.txt"),
        ("/etc/passwd", "passwd"),
        ("..", "file"),
        (". .x. ", "x"),
        (" .bashrc", "bashrc"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("a:b*c?.txt", "a_b_c_.txt"),
        ("\u202etxt.exe", "_txt.exe"),
        ("\ud800", "_"),
        ("", "file"),
        ("/", "file"),
    ],
)
def test_a_name_is_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=400))
def test_every_name_becomes_one_that_every_file_system_takes(name: str) -> None:
    safe = safe_name(name)
    assert 0 < len(safe.encode()) <= 120
    assert safe == safe.strip(". ")
    assert not set(safe) & set('/\\\x00\n:*?"<>|')
    assert safe_name(safe) == safe
