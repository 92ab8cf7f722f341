"""Zip archives of skill packages: refused or extracted as a whole, never repaired.

The names of all entries are checked before anything is written. Sizes are counted while reading; the headers may lie.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import struct
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from askback.core.errors import FULL_DISK, Invalid, RefusalCode, disk_full, raise_if_temporary
from askback.skills.diagnostics import in_one_line, short
from askback.skills.files import MAX_DEPTH, refused

_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_COMPONENT_BYTES = 255
_MAX_NAME_BYTES = 1024
_CHUNK = 1 << 16
_SMALL = 1 << 20
_DIRECTORY_BYTES_PER_ENTRY = 300
_MAX_PROBLEMS = 50
_IGNORED = "__MACOSX"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipLimits:
    """`ratio`: how many times its own size an archive may extract to. Below one megabyte it does not matter."""

    entries: int = 10_000
    total_bytes: int = 512 * 1024 * 1024
    ratio: int = 200


def extract_zip(
    path: Path,
    into: Path,
    limits: ZipLimits | None = None,
    checkpoint: Callable[[], None] = lambda: None,
    config_names: frozenset[str] = frozenset(),
) -> Path:
    """Extract into a folder that does not exist yet, without a single top folder. Leaves nothing behind on failure.

    `checkpoint` is called for every entry, and raises if the caller is gone.
    """
    bounds = limits or ZipLimits()
    with _zip_errors(path):
        _refuse_large_directory(path, bounds)
        return _extract(path, into, bounds, config_names, checkpoint)


def _extract(
    path: Path, into: Path, bounds: ZipLimits, config_names: frozenset[str], checkpoint: Callable[[], None]
) -> Path:
    with zipfile.ZipFile(path) as archive:
        entries = [info for info in archive.infolist() if info.filename.split("/")[0] != _IGNORED]
        _refuse_names(path, entries, bounds, config_names)
        tops = {info.filename.split("/")[0] for info in entries}
        in_one_folder = len(tops) == 1 and all("/" in info.filename for info in entries)
        with _fresh_folder(into.parent) as fresh:
            _write(archive, entries, fresh, bounds, path.stat().st_size, checkpoint)
            package = fresh / tops.pop() if in_one_folder else fresh
            package.chmod(0o700)
            package.rename(into)
    return into


@contextmanager
def _fresh_folder(parent: Path) -> Iterator[Path]:
    """A private folder that is removed afterwards, unless it was renamed."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _zip_errors(path: Path) -> Iterator[None]:
    """Raise `Invalid` for an archive that `zipfile` cannot read."""
    broken = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)
    try:
        yield
    except OSError as fault:
        if fault.errno in FULL_DISK:
            raise disk_full() from fault
        raise_if_temporary(fault)
        raise _refusal(path, [f"cannot be read: {fault.strerror or fault}"]) from fault
    except broken as fault:
        raise _refusal(path, [f"is damaged or not a zip archive: {fault}"]) from fault


def _refusal(path: Path, problems: list[str]) -> Invalid:
    message = f"{path.name} is refused: {in_one_line(problems)}"
    return Invalid(RefusalCode.SKILL_INVALID, message, problems[:_MAX_PROBLEMS])


# The archive as a whole.
def _refuse_large_directory(path: Path, limits: ZipLimits) -> None:
    """`zipfile` creates an object for every entry before it can say how many there are."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - (1 << 16) - 22 - 20))
        tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < 22:
        raise _refusal(path, ["is not a zip archive; name a zip of the folder that contains SKILL.md, or that folder"])
    if end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07":
        raise _refusal(path, ["is a zip64 archive, which is not supported"])
    count, directory_bytes = struct.unpack("<HI", tail[end + 10 : end + 16])
    if count > limits.entries or directory_bytes > limits.entries * _DIRECTORY_BYTES_PER_ENTRY + _CHUNK:
        raise _refusal(path, [f"has more than {limits.entries} entries"])


# Names and types of entries, before anything is written.


def _refuse_names(path: Path, entries: list[zipfile.ZipInfo], limits: ZipLimits, config_names: frozenset[str]) -> None:
    problems = [
        f"{short(info.orig_filename)} {reason}"
        for info in entries
        # Both names: `zipfile` cuts one at a NUL and may take the other from an extra field.
        if (
            reason := _invalid_name(info.orig_filename, config_names)
            or _invalid_name(info.filename, config_names)
            or _invalid_type(info)
        )
    ]
    problems = problems or _clashes(entries)
    if len(entries) > limits.entries:
        problems.append(f"has more than {limits.entries} entries")
    if sum(info.file_size for info in entries) > limits.total_bytes:
        problems.append(_too_large(limits))
    if problems:
        raise _refusal(path, problems)


def _too_large(limits: ZipLimits) -> str:
    return f"extracts to more than {limits.total_bytes // 2**20} MB"


def _invalid_name(name: str, config_names: frozenset[str]) -> str | None:
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or _DRIVE.match(name):
        return "is an absolute path"
    if "\\" in name:
        return "has a backslash"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name) or not name.isprintable():
        return "has a character that is not printable"
    if ".." in parts:
        return "is outside the package"
    if "" in parts or "." in parts:
        return "is not a plain path"
    if len(parts) > MAX_DEPTH or len(name.encode()) > _MAX_NAME_BYTES:
        return "is too long or nested too deep"
    if any(len(part.encode()) > _MAX_COMPONENT_BYTES for part in parts):
        return "is too long"
    if any(part.casefold() == ".git" for part in parts):
        return "is part of a Git repository; pack the files without .git"
    return refused(name, config_names)


def _invalid_type(info: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a symbolic link"
    if kind not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
        return "is neither a file nor a folder"
    if info.is_dir() and info.file_size:
        return "is a folder but has content"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "uses a compression method that is not supported; use deflate"
    return None


def _clashes(entries: list[zipfile.ZipInfo]) -> list[str]:
    """Names that are the same on some file systems, and files that are also folders."""
    problems: list[str] = []
    spelled: dict[str, str] = {}
    files: set[str] = set()
    seen: set[str] = set()
    for info in entries:
        name = info.filename.removesuffix("/")
        parts = name.split("/")
        for length in range(1, len(parts) + 1):
            prefix = "/".join(parts[:length])
            if spelled.setdefault(_folded(prefix), prefix) != prefix:
                problems.append(f"{short(name)} differs only in case from {short(spelled[_folded(prefix)])}")
        if name in seen:
            problems.append(f"{short(name)} occurs twice")
        seen.add(name)
        if not info.is_dir():
            files.add(name)
    folders = {name[:cut] for name in seen for cut, letter in enumerate(name) if letter == "/"}
    return problems + [f"{short(name)} is both a file and a folder" for name in sorted(files & folders)]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


# Writing.


def _write(
    archive: zipfile.ZipFile,
    entries: Iterable[zipfile.ZipInfo],
    folder: Path,
    limits: ZipLimits,
    packed: int,
    checkpoint: Callable[[], None],
) -> None:
    allowed = min(limits.total_bytes, max(_SMALL, limits.ratio * packed))
    written = 0
    for info in entries:
        checkpoint()
        target = folder / info.filename
        if info.is_dir():
            target.mkdir(parents=True, exist_ok=True, mode=0o700)
            continue
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = 0o700 if info.external_attr >> 16 & 0o111 else 0o600
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file, archive.open(info) as source:
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > allowed:
                    bomb = "extracts to far more than its own size"
                    reason = _too_large(limits) if written > limits.total_bytes else bomb
                    raise _refusal(Path(archive.filename or ""), [f"{short(info.filename)} {reason}"])
                file.write(chunk)
