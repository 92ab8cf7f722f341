"""Which settings files of working directories may be used: those whose path and content the user has trusted.

A repository that was cloned brings its own `askback.toml`. Unless the user trusted that file, only keys that cannot run,
open or weaken anything are taken from it. Knows nothing of settings but these few keys.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from askback.core.errors import Invalid, RefusalCode

FILE_NAME = "askback.toml"
MOST_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
"""Nothing that an engine could read as an option of its command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A settings file as it was read, once: what is trusted is what is used."""

    path: Path
    content: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def document(self) -> dict[str, Any]:
        """Raises `ValueError` when it is not TOML."""
        try:
            return tomllib.loads(self.content.decode())
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """What one file says, as far as it is used."""

    path: Path
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Untrusted:
    """A file of which some keys, or all of it, were ignored."""

    path: Path
    keys: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    path: Path
    digest: str


def read_local(path: Path) -> LocalFile | None:
    """The file, or None when there is no plain file. Raises `OSError`, or `ValueError` when it is too large."""
    try:
        # A pipe would keep us waiting for somebody who writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
    return LocalFile(path=path, content=content)


def harmless(document: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What may be taken from a file that is not trusted, and the names of all other keys."""
    taken: dict[str, Any] = {}
    ignored: list[str] = []
    for path, value in _leaves(document):
        if _is_harmless(path, value):
            _put(taken, path, value)
        else:
            ignored.append(".".join(path))
    return taken, tuple(ignored)


def keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(".".join(path) for path, _ in _leaves(document))


def _is_harmless(path: tuple[str, ...], value: object) -> bool:
    if not isinstance(value, str):
        return False
    match path:
        case ("default_engine",):
            return _NAME.fullmatch(value) is not None
        case ("engines", name, "model"):
            return _NAME.fullmatch(name) is not None and _MODEL.fullmatch(value) is not None
        case _:
            return False


def _leaves(document: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every key with its value, at most three levels deep, as the settings are."""
    for key, value in document.items():
        if not isinstance(value, Mapping):
            yield (key,), value
            continue
        for name, part in value.items():
            inner = part.items() if isinstance(part, Mapping) else ()
            yield from (((key, name, last), each) for last, each in inner)
            if not inner:
                yield (key, name), part


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value


def anchored(document: dict[str, Any], base: Path) -> dict[str, Any]:
    """The document with its relative paths meant from `base`, the folder that the file is in."""

    def from_base(value: Any) -> Any:
        return str(base / value) if isinstance(value, str) and not value.startswith("~") else value

    def engine(section: Any) -> Any:
        if not isinstance(section, Mapping):
            return section
        changed = dict(section)
        if "home" in changed:
            changed["home"] = from_base(changed["home"])
        match changed.get("command"):
            case [str(program), *rest] if "/" in program:
                changed["command"] = [from_base(program), *rest]
        return changed

    changed = dict(document)
    if "data_dir" in changed:
        changed["data_dir"] = from_base(changed["data_dir"])
    for key in ("skills_dir", "sandbox_show", "sandbox_share"):
        if isinstance(folders := changed.get(key), list):
            changed[key] = [from_base(folder) for folder in folders]
    if isinstance(engines := changed.get("engines"), Mapping):
        changed["engines"] = {name: engine(section) for name, section in engines.items()}
    return changed


def local_path(folder: Path) -> Path | None:
    """Where the settings of a folder are; None where the working directory is gone."""
    try:
        return (Path.cwd() / folder).resolve() / FILE_NAME
    except OSError:
        return None


class Ledger:
    """The files that the user has trusted, by path and content; kept in a file of the user's own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> tuple[Trusted, ...]:
        """A ledger that cannot be read trusts nothing."""
        try:
            entries = json.loads(self._path.read_bytes())
            return tuple(Trusted(path=Path(path), digest=str(digest)) for path, digest in entries.items())
        except (OSError, ValueError, AttributeError, TypeError, RecursionError):
            return ()

    def trusts(self, file: LocalFile) -> bool:
        return Trusted(path=file.path, digest=file.digest) in self.all()

    def add(self, file: LocalFile) -> None:
        others = [each for each in self.all() if each.path != file.path]
        self._write([*others, Trusted(path=file.path, digest=file.digest)])

    def add_folder(self, folder: Path) -> tuple[Path, tuple[str, ...]]:
        """Trust the settings file in a folder as it is now: its path, and the keys that it sets."""
        path = local_path(folder)
        try:
            file = None if path is None else read_local(path)
            if file is None:
                raise Invalid(RefusalCode.SETTINGS_INVALID, f"there is no file {FILE_NAME} in {folder}")
            named = keys(file.document())
        except (OSError, ValueError) as error:
            raise Invalid(RefusalCode.SETTINGS_INVALID, f"{path} cannot be read: {error}") from None
        self.add(file)
        return file.path, named

    def remove_folder(self, folder: Path) -> tuple[Path | None, bool]:
        """Trust the folder's settings no longer: their path, and whether they were trusted."""
        path, before = local_path(folder), self.all()
        self._write([each for each in before if each.path != path])
        return path, any(each.path == path for each in before)

    def is_valid(self, entry: Trusted) -> bool:
        """Whether the file still is what was trusted."""
        with suppress(OSError, ValueError):
            file = read_local(entry.path)
            return file is not None and file.digest == entry.digest
        return False

    def _write(self, entries: list[Trusted]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        text = json.dumps({str(each.path): each.digest for each in entries}, indent=1)
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            partial.replace(self._path)
        finally:
            partial.unlink(missing_ok=True)
