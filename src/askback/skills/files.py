"""The files of a package: which ones belong to it, which ones it must not have, its digest, and copies of it.

Does not know what the files contain. Links are never followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from askback.core.interactions import Json
from askback.fs.paths import open_regular
from askback.fs.walk import FileState
from askback.skills.diagnostics import Problem, error, short, warning
from askback.text.json_text import refuse_constant

LEFT_OUT = frozenset({"__pycache__", ".ds_store", ".git"})
"""Not part of a package. Compared without case."""

_COMMON_CONFIG_NAMES = frozenset({".mcp.json", ".env"})
"""Read by several CLIs. The names of a single engine are declared by the engine and passed in as `config_names`."""

MAX_ENTRIES = 100_000
MAX_TOTAL_BYTES = 2 * 1024 * 1024 * 1024
MAX_DEPTH = 32
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_COARSEST_TICK_NS = 2_000_000_000
"""The coarsest time stamps of a file system: FAT has a resolution of two seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A plain file of a package; `name` is relative, with slashes."""

    name: str
    path: Path
    executable: bool
    size: int
    state: FileState


def refused(name: str, config_names: frozenset[str] = frozenset()) -> str | None:
    """Why a package must not have an entry of this relative name; None if it may.

    `config_names` are the casefolded names of the engines' configuration.
    """
    for part in PurePosixPath(name).parts:
        folded = part.casefold()
        if folded in _COMMON_CONFIG_NAMES or folded in config_names or folded.startswith(".env."):
            return f"{part} configures a coding-agent CLI and could make it run code before the first prompt"
    return None


def list_files(
    folder: Path, config_names: frozenset[str] = frozenset()
) -> tuple[tuple[Entry, ...], tuple[Problem, ...]]:
    """The files in a fixed order, and a problem for each entry that the package must not have."""
    entries: list[Entry] = []
    problems: list[Problem] = []
    total = 0
    for found in _walk(folder, "", config_names, problems):
        entries.append(found)
        total += found.size
        if len(entries) > MAX_ENTRIES or total > MAX_TOTAL_BYTES:
            most = f"{MAX_ENTRIES} files or {MAX_TOTAL_BYTES // 2**20} MB"
            problems.append(error(found.name, f"the package has more than {most}", "remove what is not needed"))
            break
    return tuple(sorted(entries, key=lambda entry: entry.name)), tuple(problems)


def _walk(folder: Path, prefix: str, config_names: frozenset[str], problems: list[Problem]) -> Iterator[Entry]:
    with os.scandir(folder) as listing:
        found = sorted(listing, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.casefold() in LEFT_OUT:
            continue
        name = prefix + entry.name
        problem = _problem_of(entry, name, config_names)
        if problem is not None:
            problems.append(problem)
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path), f"{name}/", config_names, problems)
        else:
            status, path = entry.stat(follow_symlinks=False), Path(entry.path)
            is_executable, state = bool(status.st_mode & 0o111), FileState.of(status)
            yield Entry(name=name, path=path, executable=is_executable, size=status.st_size, state=state)


def _problem_of(entry: os.DirEntry[str], name: str, config_names: frozenset[str]) -> Problem | None:
    if not name.isprintable():
        return error(ascii(name), "the name has characters that are not printable", "rename it")
    if name.count("/") >= MAX_DEPTH:
        return error(name, f"is nested deeper than {MAX_DEPTH} folders", "move it up")
    reason = refused(entry.name, config_names)
    if reason is not None:
        return error(name, reason, "remove it from the package")
    if entry.is_symlink():
        return error(name, "is a symbolic link", "replace it with the file")
    if not entry.is_dir(follow_symlinks=False) and not entry.is_file(follow_symlinks=False):
        return error(name, "is neither a file nor a folder", "remove it from the package")
    return None


def read_bytes(path: Path, limit: int) -> bytes:
    """At most one byte more than `limit`, so that the caller sees that the file is longer."""
    with open(_open_plain(path), "rb") as file:
        return file.read(limit + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFile:
    """A file of a package as it is listed for readers. `path` is relative; `digest` is the SHA-256 of its content."""

    path: str
    size: int
    digest: str


def contents_of(entries: Iterable[Entry]) -> tuple[tuple[PackageFile, ...], str]:
    """The files, and a digest of the exact content: relative names, executable bits and bytes."""
    files: list[PackageFile] = []
    whole = hashlib.sha256()
    for entry in entries:
        with open(_open_plain(entry.path), "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files.append(PackageFile(path=entry.name, size=entry.size, digest=digest))
        whole.update(f"{entry.name}\0{'x' if entry.executable else '-'}\0{digest}\n".encode())
    return tuple(files), whole.hexdigest()


class Digests:
    """A cache of digests. A file counts as unchanged if its size, times and inode are the same."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._known: dict[Path, tuple[tuple[Entry, ...], str]] = {}

    def cached(self, folder: Path, max_files: int) -> str | None:
        """The digest of a small folder, if no file has to be read for it."""
        entries, digest = self._known.get(folder, ((), None))
        return digest if len(entries) <= max_files and list_files(folder) == (entries, ()) else None

    def of(self, folder: Path, entries: tuple[Entry, ...]) -> str:
        known = self._known.get(folder)
        if known is not None and known[0] == entries:
            return known[1]
        now_ns = self._clock_ns()
        _, digest = contents_of(entries)
        # A file that was just written could change again within the same time stamp.
        if all(entry.state.changed_ns < now_ns - _COARSEST_TICK_NS for entry in entries):
            self._known[folder] = entries, digest
        return digest


def copy_files(entries: tuple[Entry, ...], target: Path) -> None:
    """Write the files into a new folder. The caller syncs them, all at once."""
    for entry in entries:
        path = target / entry.name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = 0o700 if entry.executable else 0o600
        with open(_open_plain(entry.path), "rb") as source, open(os.open(path, _NEW_FILE, mode), "wb") as copy:
            while chunk := source.read(1 << 20):
                copy.write(chunk)


def _open_plain(path: Path) -> int:
    if (descriptor := open_regular(path)) is None:
        raise OSError(f"{path} is no longer a regular file")
    return descriptor


MAX_JSON_BYTES = 1_000_000


def read_json(content: bytes, where: str) -> tuple[Json, tuple[Problem, ...]]:
    """The document, or None and the reason."""
    if len(content) > MAX_JSON_BYTES:
        return None, (error(where, "is larger than 1 MB", "make it smaller"),)
    twice: list[str] = []
    try:
        document = json.loads(
            content.decode("utf-8-sig"),
            object_pairs_hook=lambda pairs: _object(pairs, twice),
            parse_constant=refuse_constant,
        )
    except UnicodeDecodeError as fault:
        return None, (error(where, f"byte {fault.start} is not UTF-8", "save the file as UTF-8"),)
    except json.JSONDecodeError as fault:
        spot = f"line {fault.lineno}, column {fault.colno}"
        return None, (error(where, f"is not JSON: {fault.msg} at {spot}", "fix the syntax there"),)
    except (ValueError, RecursionError) as fault:
        reason = "it is nested too deep" if isinstance(fault, RecursionError) else str(fault)
        return None, (error(where, f"is not valid JSON: {reason}", "fix it"),)
    return document, tuple(warning(where, f"{short(name)} occurs twice", "keep one of the two") for name in twice)


def _object(pairs: list[tuple[str, Any]], twice: list[str]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice.extend(name for name, count in counts.items() if count > 1)
    return dict(pairs)
