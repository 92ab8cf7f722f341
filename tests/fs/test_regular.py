"""A path that is not what it seems stops nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from askback.core.errors import is_temporary
from askback.fs.paths import is_kind, open_below, open_regular
from askback.fs.walk import FileLeased, open_file


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


HOLDER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="leases are a feature of Linux")
def test_a_lease_on_a_file_is_told_from_a_shortage(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FileLeased) as refused:
            open_regular(path)
        assert not is_temporary(refused.value)
        folder = os.open(tmp_path, os.O_RDONLY)
        try:
            with pytest.raises(FileLeased):
                open_file(folder, "file", path.stat())
        finally:
            os.close(folder)
        assert open_below(tmp_path, "file") is None
