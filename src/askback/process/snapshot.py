"""The engine's home as it was before a turn.

A turn that is taken up again must not find in the session what its first try left there, so it starts from the copy.
Copies, never hard links: engines write their session files in place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def begin_turn(home: Path, snapshots: Path, attempt_number: int) -> None:
    """Save the home before a turn's first try; before any later try of the same turn, restore it.

    Nothing may write to the home meanwhile.
    """
    saved = snapshots / str(attempt_number)
    if saved.exists():
        _replace(home, saved)
        return
    _copy(home, saved)
    for other in snapshots.iterdir():
        if other != saved:
            shutil.rmtree(other)


def _replace(home: Path, saved: Path) -> None:
    """Put a copy of `saved` in the place of `home`; cut off anywhere, it can be done again."""
    fresh = home.with_name(home.name + ".restored")
    _copy(saved, fresh)
    if home.exists():
        shutil.rmtree(home)
    fresh.rename(home)


def _copy(source: Path, target: Path) -> None:
    """A copy that is there whole or not at all, also after a power cut."""
    partial = target.with_name(target.name + ".partial")
    for leftover in (partial, target):
        if leftover.exists():
            shutil.rmtree(leftover)
    shutil.copytree(source, partial, symlinks=True, ignore=_special)
    for folder, _names, files in os.walk(partial):
        for name in files:
            _sync(Path(folder) / name)
        _sync(Path(folder))
    partial.rename(target)
    _sync(target.parent)


def _special(folder: str, names: list[str]) -> set[str]:
    """Sockets and pipes belong to the process that made them and cannot be copied."""
    entries = {name: Path(folder, name) for name in names}
    return {name for name, path in entries.items() if not (path.is_symlink() or path.is_file() or path.is_dir())}


def _sync(path: Path) -> None:
    if path.is_symlink():
        return
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
