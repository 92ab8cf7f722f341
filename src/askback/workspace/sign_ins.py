"""Sign-ins: the few files in which an engine stores its sign-in, copied for each turn and removed after it.

Engines renew a sign-in by overwriting it, and the old one is invalid from then on. So every turn gets the newest one, and
what a turn renewed is merged into the original file, under a lock: concurrent runs do not sign each other out. A file that
an engine wrote is never copied back. Only declared token fields are merged, and a file with any other difference is
ignored (`core/renewals.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from askback.core.renewals import MAX_BYTES, Renewal, RenewalRefused, merge
from askback.fs import beneath
from askback.fs.atomic import locked, write_private
from askback.fs.paths import read_below


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The files that were renewed, or why nothing was merged."""

    renewed: tuple[str, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`names` are paths relative to `source`, a home folder, and to the home of every run."""

    source: Path
    names: Sequence[str]
    lock: Path
    renewals: Sequence[Renewal] = ()
    """The files that may be renewed. Without any, nothing is ever merged."""

    def copy_into(self, home: Path) -> SignInCopies:
        """Copy the newest sign-in into a run's home."""
        with locked(self.lock):
            contents = {name: content for name in self.names if (content := _read(self.source / name)) is not None}
        for name, content in contents.items():
            beneath.write(home.parent, f"{home.name}/{name}", content)
        digests = {name: _digest(content) for name, content in contents.items()}
        return SignInCopies(credentials=self, home=home, digests=digests)

    def merge_back(self, home: Path, digests: Mapping[str, str]) -> MergeResult:
        """Merge what was renewed, unless the source was renewed in the meantime. All files or none."""
        rules = [rule for rule in self.renewals if rule.name in digests]
        if not rules:
            return MergeResult()
        merged: dict[str, bytes] = {}
        with locked(self.lock):
            for rule in rules:
                try:
                    content = self._merged(home, rule, digests[rule.name])
                except RenewalRefused as refusal:
                    return MergeResult(refused=f"{rule.name}: {refusal}")
                if content is not None:
                    merged[rule.name] = content
            for name, content in merged.items():
                write_private((self.source / name).resolve(), content)
        return MergeResult(renewed=tuple(merged))

    def _merged(self, home: Path, rule: Renewal, before: str) -> bytes | None:
        copy = _read_copy(home, rule.name)
        if copy is None or not copy.strip() or _digest(copy) == before:
            return None
        source = _read(self.source / rule.name)
        if source is None or _digest(source) != before:
            return None
        return merge(rule, source, copy)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInCopies:
    """The copies for one turn. Call `end` when all processes of its engine have ended."""

    credentials: Credentials
    home: Path
    digests: Mapping[str, str]

    def current(self) -> bool:
        """Whether neither the copies nor their sources have changed since they were made."""
        with locked(self.credentials.lock):
            sources = {name: _read(self.credentials.source / name) for name in self.credentials.names}
        copies = {name: _read_copy(self.home, name) for name in self.credentials.names}
        return all(
            {name: _digest(each) for name, each in contents.items() if each is not None} == self.digests
            for contents in (sources, copies)
        )

    def end(self) -> MergeResult:
        """Merge what was renewed, and remove the copies."""
        try:
            return self.credentials.merge_back(self.home, self.digests)
        finally:
            remove_copies(self.home, self.credentials.names)


def remove_copies(home: Path, names: Sequence[str]) -> None:
    """Remove the sign-in from a run's home. The next turn gets new copies. No process of the run is alive."""
    for name in beneath.perhaps_present(home, names):
        beneath.remove(home.parent, f"{home.name}/{name}")


def _read(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def _read_copy(home: Path, name: str) -> bytes | None:
    """A file in an engine's home may be anything: a link to keys, a pipe, an endless file."""
    return read_below(home.parent, f"{home.name}/{name}", MAX_BYTES)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
