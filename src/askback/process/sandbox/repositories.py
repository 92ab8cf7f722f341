"""The git repositories in a folder of the user, which a sandbox protects and the end of a turn looks for.

The configuration of a repository names programs that git runs, and the user runs git outside the sandbox. So an engine must
not write to any repository that is there, and a run reports each one that appears.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from askback.core.errors import raise_if_temporary
from askback.process.pools import Checkpoint, unchecked

MAX_REPOSITORIES = 100
MAX_FOLDERS = 500_000
"""Folders that are looked at, for each search."""
GIT = ".git"
# What git itself looks for in a folder that is not called `.git`.
_MARKS = (frozenset(("HEAD", "objects", "refs")), frozenset(("HEAD", "commondir")))


class TooManyFolders(Exception):
    """The folder is too large to be searched. The message is for people."""


def repositories(folder: Path, checkpoint: Checkpoint = unchecked) -> list[Path]:
    """Every `.git`, be it a folder, a file or a link, and every folder that git takes for one, such as a bare repository.

    A folder that cannot be listed counts as well: git finds a repository in it without listing it. Links are not followed.
    Raises `TooManyFolders`.
    """
    found: list[Path] = []
    waiting, looked_at = [folder], 0
    while waiting:
        checkpoint()
        each = waiting.pop()
        looked_at += 1
        names, inner = _listed(each)
        if names is None or _is_repository(names):
            found.append(each)
            inner = inner if each == folder else []
        if names and GIT in names:
            found.append(each / GIT)
        waiting.extend(each / name for name in inner if name != GIT)
        if len(found) > MAX_REPOSITORIES:
            raise TooManyFolders(
                f"{folder} has more than {MAX_REPOSITORIES} git repositories; choose a folder inside it"
            )
        if looked_at + len(waiting) > MAX_FOLDERS:
            raise TooManyFolders(f"{folder} has more than {MAX_FOLDERS:,} folders; choose a folder inside it")
    return sorted(found)


def _is_repository(names: frozenset[str]) -> bool:
    """Whether git takes a folder with these entries for a repository, whatever the folder is called."""
    return any(marks <= names for marks in _MARKS)


def in_repository(folder: Path) -> bool:
    """Whether the folder is, or is in, a `.git` or a bare repository: its files are git's own."""
    around = (folder, *folder.parents)
    bare = (all(os.path.lexists(each / name) for name in marks) for each in around for marks in _MARKS)
    return GIT in folder.parts or any(bare)


def identities(folder: Path, checkpoint: Checkpoint = unchecked) -> dict[str, tuple[int, int]]:
    """The repositories in a folder by their printable paths, to tell later which of them are new or were replaced."""
    return dict(_identities(folder, checkpoint))


def _identities(folder: Path, checkpoint: Checkpoint) -> Iterator[tuple[str, tuple[int, int]]]:
    for each in repositories(folder, checkpoint):
        try:
            status = each.lstat()
        except OSError as error:
            raise_if_temporary(error)
            continue
        name = os.fsencode(each.relative_to(folder)).decode("utf-8", "backslashreplace")
        yield name, (status.st_dev, status.st_ino)


def _listed(folder: Path) -> tuple[frozenset[str] | None, list[str]]:
    """The names in a folder, None if it cannot be listed, and the names of the folders among them."""
    names: list[str] = []
    inner: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return frozenset(), []
    except OSError as error:
        raise_if_temporary(error)
        return None, []
    return frozenset(names), inner
