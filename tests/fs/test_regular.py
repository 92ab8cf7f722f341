"""A path that is not what it seems stops nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from askback.fs.paths import is_kind, open_regular


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("file")
    descriptor = open_regular(tmp_path / "file")
    assert descriptor is not None
    with open(descriptor, "rb") as file:
        assert file.read() == b"text"
    assert open_regular(tmp_path / "pipe") is None
    assert open_regular(tmp_path) is None
    for name in ("link", "missing"):
        with pytest.raises(OSError, match=name):
            open_regular(tmp_path / name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "missing"])
def test_a_path_that_cannot_be_examined_is_nothing(tmp_path: Path, name: str) -> None:
    assert not is_kind(tmp_path / name, Path.is_file)
    assert not is_kind(tmp_path / name, Path.exists)
    assert is_kind(tmp_path, Path.is_dir)
