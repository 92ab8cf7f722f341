"""Signing in: the few files that an engine keeps its sign-in in, lent to a run and taken back when they were renewed.

Engines renew a sign-in by writing a new one over it, and the old one is void from then on. So every turn starts from
the newest, and what a turn renewed goes back to where it came from, under a lock: runs side by side do not sign each
other out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from askback.process.artifacts import open_below
from askback.process.listing import free_way

_MOST_BYTES = 1 << 20
"""A sign-in is a few kB; what is larger is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`names` are paths below `source`, a home folder, and below every run's own home."""

    source: Path
    names: Sequence[str]
    lock: Path

    def lend(self, home: Path) -> Loan:
        """Put the newest sign-in into a run's home."""
        with self._locked():
            lent = {name: content for name in self.names if (content := _read(self.source / name)) is not None}
            for name, content in lent.items():
                _write(free_way(home, name), content)
        return Loan(credentials=self, home=home, lent={name: _digest(content) for name, content in lent.items()})

    def take_back(self, home: Path, lent: dict[str, str]) -> list[str]:
        """Bring home what was renewed, unless the source was renewed by somebody else meanwhile."""
        renewed = []
        with self._locked():
            for name, before in lent.items():
                content = _read_renewed(home, name)
                if content is None or not content.strip() or _digest(content) == before:
                    continue
                if _digest(_read(self.source / name) or b"") == before:
                    _replace(self.source / name, content)
                    renewed.append(name)
        return renewed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What one turn was given, so that it can be told what the turn renewed."""

    credentials: Credentials
    home: Path
    lent: dict[str, str]

    def end(self) -> list[str]:
        return self.credentials.take_back(self.home, self.lent)


def _read(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def _read_renewed(home: Path, name: str) -> bytes | None:
    """What an engine left in its home may be anything: a link to somebody's keys, a pipe, a file without end."""
    file = open_below(home, name)
    if file is None:
        return None
    with file:
        content = file.read(_MOST_BYTES + 1)
    return content if len(content) <= _MOST_BYTES else None


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all: an engine that reads while we write must not find half a sign-in."""
    target = path.resolve()
    partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}")
    try:
        _write(partial, content)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
