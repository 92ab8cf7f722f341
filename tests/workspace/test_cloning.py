"""Copies the content of a file, with and without help from the file system."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from askback.fs.copies import Cloner

Call = Callable[..., Any]


def refusing(number: int, calls: list[int]) -> Call:
    def call(*_: Any) -> int:
        calls.append(number)
        raise OSError(number, os.strerror(number))

    return call


def copy(cloner: Cloner, source: Path, target: Path) -> bytes:
    with source.open("rb") as reading, target.open("wb") as writing:
        cloner.copy(reading.fileno(), writing.fileno())
    return target.read_bytes()


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_that_cannot_share_blocks_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(fcntl, "ioctl", refusing(number, calls))
    (tmp_path / "source").write_bytes(b"content")
    cloner = Cloner()
    assert copy(cloner, tmp_path / "source", tmp_path / "one") == b"content"
    assert copy(cloner, tmp_path / "source", tmp_path / "two") == b"content"
    assert calls == [number]


def test_where_blocks_can_be_shared_nothing_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system's side is simulated: few test machines have such a file system."""

    def share(target: int, request: int, source: int) -> int:
        assert request == 0x40049409
        return os.write(target, os.pread(source, 1 << 20, 0))

    copied: list[int] = []
    monkeypatch.setattr(fcntl, "ioctl", share)
    monkeypatch.setattr(os, "copy_file_range", refusing(errno.EIO, copied))
    (tmp_path / "source").write_bytes(b"content")
    assert copy(Cloner(), tmp_path / "source", tmp_path / "target") == b"content"
    assert not copied


def test_a_kernel_that_cannot_copy_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "ioctl", refusing(errno.EOPNOTSUPP, []))
    monkeypatch.setattr(os, "copy_file_range", refusing(errno.EXDEV, []))
    content = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(content)
    assert copy(Cloner(), tmp_path / "source", tmp_path / "target") == content


@pytest.mark.parametrize("call", ["ioctl", "copy_file_range"])
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    number = errno.ENOSPC if call == "ioctl" else errno.EOPNOTSUPP
    monkeypatch.setattr(fcntl, "ioctl", refusing(number, []))
    monkeypatch.setattr(os, "copy_file_range", refusing(errno.ENOSPC, []))
    (tmp_path / "source").write_bytes(b"content")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        copy(Cloner(), tmp_path / "source", tmp_path / "target")


@pytest.mark.parametrize("holes", ["front", "middle", "end", "all"])
def test_holes_stay_holes(tmp_path: Path, holes: str) -> None:
    source, size = tmp_path / "source", 1 << 26
    with source.open("wb") as file:
        file.truncate(size)
        if holes in ("middle", "end"):
            file.write(b"begin")
        if holes in ("middle", "front"):
            file.seek(size - 3)
            file.write(b"end")
    content = copy(Cloner(), source, tmp_path / "target")
    assert content == source.read_bytes()
    assert (tmp_path / "target").stat().st_blocks * 512 < 1 << 20


def test_an_empty_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    assert copy(Cloner(), tmp_path / "source", tmp_path / "target") == b""
