"""Trust in the settings file of a working directory, by its path and content.

A cloned repository may contain an `askback.toml`. Unless the user trusts that file, only keys that cannot run, open or
weaken anything are used. Of the settings, this module knows only these keys; it is given what else it needs to know.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, assert_never

from askback.core.errors import Invalid, RefusalCode
from askback.fs.atomic import write_private

FILE_NAME = "askback.toml"
MAX_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
"""Excludes anything that an engine could take for a command-line option."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,100}")
_MAX_SHOWN = 200


class Shown(Enum):
    """What `askback trust` shows of a setting, besides its key."""

    VALUE = "value"
    NAMES = "names"
    """The keys of a table, without their values."""
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A settings file that was read once, so that the trusted content is the content that is used."""

    path: Path
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def document(self) -> dict[str, Any]:
        """The parsed content. Raises `ValueError` if it is not TOML."""
        try:
            return tomllib.loads(self.content.decode())
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    path: Path
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    key: str
    reason: str | None = None
    """Why the key was ignored, if an untrusted file may set it in general."""

    def __str__(self) -> str:
        return self.key if self.reason is None else f"{self.key} ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Untrusted:
    """An untrusted file, some or all of whose keys were ignored."""

    path: Path
    ignored: tuple[Ignored, ...] = ()
    problem: str | None = None
    """Why the file cannot be read at all."""


def read_local(path: Path) -> LocalFile | None:
    """The file, or None if there is no regular file. Raises `OSError`, or `ValueError` if it is too large."""
    try:
        # Without O_NONBLOCK, opening a pipe would block until somebody writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return None
    with open(descriptor, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
    return LocalFile(path=path, content=content)


def why_unreadable(error: OSError | ValueError) -> str:
    """A short reason, for a message that already names the file."""
    if isinstance(error, OSError):
        return (error.strerror or type(error).__name__).lower()
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, tomllib.TOMLDecodeError):
        return f"it is not TOML: {_cut(repr(str(error))[1:-1])}"
    return str(error)


def harmless(
    document: Mapping[str, Any], engines: Callable[[], Container[str]] | None = None
) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """Split an untrusted document into what may be used and the ignored keys. `engines` returns the known engines."""
    taken: dict[str, Any] = {}
    ignored: list[Ignored] = []
    known: Container[str] | None = None
    for path, value in _leaves(document):
        if (engine := _engine_of(path, value)) is None:
            ignored.append(Ignored(key=key_name(path)))
        elif not (
            isinstance(value, str)
            and _NAME.fullmatch(engine)
            and (path == ("default_engine",) or _MODEL.fullmatch(value))
        ):
            ignored.append(Ignored(key=key_name(path), reason="its value is not accepted from an untrusted file"))
        elif engines is not None and engine not in (known := engines() if known is None else known):
            ignored.append(Ignored(key=key_name(path), reason="there is no such engine"))
        else:
            table = taken
            for key in path[:-1]:
                table = table.setdefault(key, {})
            table[path[-1]] = value
    return taken, tuple(ignored)


def summary(document: Mapping[str, Any], shown: Callable[[Sequence[str]], Shown]) -> tuple[tuple[str, str | None], ...]:
    """Every key, with what `shown` allows of its value."""
    return tuple((key_name(path), _text(shown(path), value)) for path, value in _leaves(document))


def key_name(path: Sequence[str | int]) -> str:
    """A dotted name such as `engines.codex.model`. Parts that are not plain words are quoted and escaped."""
    return ".".join(part if _PLAIN_KEY.fullmatch(part) else _cut(repr(part)) for part in map(str, path))


def _text(shown: Shown, value: object) -> str | None:
    match shown:
        case Shown.VALUE:
            return _cut(repr(value))
        case Shown.NAMES:
            return _cut(", ".join(map(repr, value))) if isinstance(value, Mapping) else None
        case Shown.NOTHING:
            return None
        case _:
            assert_never(shown)


def _cut(text: str) -> str:
    """Truncate a long text and append its length, so that the cut is visible."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"


def _engine_of(path: tuple[str, ...], value: object) -> str | None:
    """The engine that a key refers to, or None if an untrusted file may not set the key."""
    match path:
        case ("default_engine",):
            return str(value)
        case ("engines", name, "model"):
            return name
        case _:
            return None


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key with its value, at most three levels deep, like the settings."""
    for key, value in document.items():
        if not isinstance(value, Mapping):
            yield (key,), value
            continue
        for name, part in value.items():
            inner = part.items() if isinstance(part, Mapping) else ()
            yield from (((key, name, last), each) for last, each in inner)
            if not inner:
                yield (key, name), part


def local_path(folder: Path) -> Path | None:
    """The settings file of a folder, or None if the working directory no longer exists."""
    try:
        return (Path.cwd() / folder).resolve() / FILE_NAME
    except OSError:
        return None


class Ledger:
    """The files that the user trusts, by path and content. Stored in the user's data folder."""

    def __init__(self, path: Path, shown: Callable[[Sequence[str]], Shown]) -> None:
        self._path = path
        self._shown = shown

    def all(self) -> dict[Path, str]:
        """The digest of each trusted file. A ledger that cannot be read trusts nothing."""
        try:
            return {Path(path): str(digest) for path, digest in json.loads(self._path.read_bytes()).items()}
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return {}

    def trusts(self, file: LocalFile) -> bool:
        return self.all().get(file.path) == file.digest

    def add_folder(self, folder: Path) -> tuple[Path, tuple[tuple[str, str | None], ...]]:
        """Trust the current settings file of a folder. Returns its path and its `summary`."""
        path = local_path(folder)
        try:
            file = None if path is None else read_local(path)
            if file is None:
                raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no file {FILE_NAME} in {folder}")
            keys = summary(file.document(), self._shown)
        except (OSError, ValueError) as error:
            message = f"{path} cannot be read: {why_unreadable(error)}"
            raise Invalid(RefusalCode.SETTINGS_INVALID, message) from None
        others = {each: digest for each, digest in self.all().items() if each != file.path}
        self._write({**others, file.path: file.digest})
        return file.path, keys

    def remove_folder(self, folder: Path) -> tuple[Path | None, bool]:
        """Stop trusting the folder's settings. Returns their path, and whether they were trusted."""
        path, before = local_path(folder), self.all()
        self._write({each: digest for each, digest in before.items() if each != path})
        return path, path in before

    def is_valid(self, path: Path) -> bool:
        """Whether the file is unchanged since it was trusted."""
        with suppress(OSError, ValueError):
            file = read_local(path)
            return file is not None and self.trusts(file)
        return False

    def _write(self, digests: Mapping[Path, str]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps({str(path): digest for path, digest in digests.items()}, indent=1)
        write_private(self._path, text.encode())
