"""The git repositories in a folder of the user, which a sandbox protects and the end of a turn looks for.

The configuration of a repository names programs that git runs, and the user runs git outside the sandbox. So an engine must
not write to any repository that is there, and a run reports each one that appears.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from askback.core.errors import raise_if_temporary
from askback.fs.walk import Folder, Tree, TreeBounds, open_tree

MAX_REPOSITORIES = 100
MAX_FOLDERS = 500_000
"""Folders that are looked at, for each search."""
MAX_CHARACTERS = 64_000_000
"""Of the paths of those folders."""
_ANY_NUMBER = TreeBounds(names=sys.maxsize, characters=sys.maxsize)
"""A folder of the user can have any number of files. Only folders are remembered."""
GIT = ".git"
# What git itself looks for in a folder that is not called `.git`.
_MARKS = (frozenset(("HEAD", "objects", "refs")), frozenset(("HEAD", "commondir")))
_MARKING = frozenset().union(*_MARKS)


class TooManyFolders(Exception):
    """The folder is too large to be searched. The message is for people."""


def repositories(folder: Path, checkpoint: Callable[[], None] = lambda: None) -> list[Path]:
    """Every `.git` (a folder, a file or a link), and every folder that git takes for one, such as a bare repository.

    A folder that cannot be listed counts as well: git finds a repository in it without listing it. Links are not followed.
    Raises `TooManyFolders`.
    """
    return sorted(folder / path for path in _found(folder, checkpoint))


def _found(top: Path, checkpoint: Callable[[], None]) -> dict[str, os.stat_result]:
    """The repositories by path below the folder, as they were listed."""
    try:
        with open_tree(top, mounts=True, bounds=_ANY_NUMBER) as tree:
            return _search(tree, top, checkpoint)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except PermissionError:
        return {"": top.lstat()}


def _search(tree: Tree, top: Path, checkpoint: Callable[[], None]) -> dict[str, os.stat_result]:
    found: dict[str, os.stat_result] = {}
    count, characters = 1, 0

    def cannot_list(path: str, error: OSError) -> None:
        raise_if_temporary(error)
        if not isinstance(error, FileNotFoundError):
            found[path] = tree.listed[path]

    for folder in tree.walk(failed=cannot_list):
        checkpoint()
        try:
            _look_into(folder, tree, found)
        except OSError as error:
            cannot_list(folder.path, error)
        count += len(folder.below)
        characters += sum(len(path) for path, _ in folder.below)
        if len(found) > MAX_REPOSITORIES:
            raise TooManyFolders(f"{top} has more than {MAX_REPOSITORIES} git repositories; choose a folder inside it")
        if count > MAX_FOLDERS or characters > MAX_CHARACTERS:
            raise TooManyFolders(
                f"{top} has more than {MAX_FOLDERS:,} folders, or too long paths; choose a folder inside it"
            )
    return found


def _look_into(folder: Folder, tree: Tree, found: dict[str, os.stat_result]) -> None:
    names: set[str] = set()
    inner: list[tuple[str, os.stat_result]] = []
    for name, status in folder.entries():
        if name in _MARKING:
            names.add(name)
        if name == GIT:
            found[folder.place(GIT)] = status
        elif stat.S_ISDIR(status.st_mode) and len(inner) <= MAX_FOLDERS:
            inner.append((name, status))
    # Whether git takes a folder with these entries for a repository, whatever the folder is called.
    if any(marks <= names for marks in _MARKS):
        found[folder.path] = tree.listed[folder.path]
        inner = [] if folder.path else inner
    for each in inner:
        folder.descend(*each)


def in_repository(folder: Path) -> bool:
    """Whether the folder is, or is in, a `.git` or a bare repository: its files are git's own."""
    around = (folder, *folder.parents)
    bare = (all(os.path.lexists(each / name) for name in marks) for each in around for marks in _MARKS)
    return GIT in folder.parts or any(bare)


def identities(folder: Path, checkpoint: Callable[[], None] = lambda: None) -> dict[str, tuple[int, int]]:
    """The repositories in a folder by their printable paths, to tell later which of them are new or were replaced."""
    found = sorted(_found(folder, checkpoint).items())
    return {
        os.fsencode(path or ".").decode("utf-8", "backslashreplace"): (status.st_dev, status.st_ino)
        for path, status in found
    }
