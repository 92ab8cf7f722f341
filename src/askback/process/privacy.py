"""Keeping what is ours from others: our program's environment and memory (Linux alone), and the data folder."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from enum import StrEnum
from pathlib import Path

_SET_DUMPABLE = 4


def close_to_others() -> None:
    """From now on nobody of the same user may read this process, nor what it was started with.

    A program that is started from here is readable again; only what it is given can be read there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


class Access(StrEnum):
    """What other users of this machine may do in a folder."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


def access_of_others(folder: Path) -> Access:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o022:
        return Access.WRITE
    return Access.READ if mode & 0o055 else Access.NONE


def withdraw_write_access(folder: Path, own_file: str) -> bool:
    """Let nobody else write there. False where the folder is not ours alone to change: another's, or with other files."""
    status = folder.stat()
    names = {path.name for path in folder.iterdir()}
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or (names and own_file not in names):
        return False
    folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    return True
