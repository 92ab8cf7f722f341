"""Signing in: the few files that an engine keeps its sign-in in, lent to each turn and removed when it is over.

Engines renew a sign-in by writing a new one over it, and the old one is void from then on. So every turn starts from
the newest, and what a turn renewed is merged into the file it came from, under a lock: runs side by side do not sign
each other out. What an engine wrote is never copied: only declared token fields are merged, and a file that differs in
anything else changes nothing (`core/renewals.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from askback.core.renewals import MOST_BYTES, Renewal, RenewalRefused, merge
from askback.files import beneath
from askback.files.atomic import locked, write_private
from askback.process.artifacts import open_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What came of a loan: the files that were renewed, or why nothing was taken back."""

    renewed: tuple[str, ...] = ()
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """`names` are paths below `source`, a home folder, and below every run's own home."""

    source: Path
    names: Sequence[str]
    lock: Path
    renewals: Sequence[Renewal] = ()
    """The files that may be renewed. Without any nothing is ever taken back."""

    def lend(self, home: Path) -> Loan:
        """Put the newest sign-in into a run's home."""
        with locked(self.lock):
            lent = {name: content for name in self.names if (content := _read(self.source / name)) is not None}
        for name, content in lent.items():
            beneath.write(home.parent, f"{home.name}/{name}", content)
        return Loan(credentials=self, home=home, lent={name: _digest(content) for name, content in lent.items()})

    def take_back(self, home: Path, lent: Mapping[str, str]) -> Returned:
        """Merge what was renewed, unless the source was renewed by somebody else meanwhile: all files, or none."""
        rules = [rule for rule in self.renewals if rule.name in lent]
        if not rules:
            return Returned()
        merged: dict[str, bytes] = {}
        with locked(self.lock):
            for rule in rules:
                try:
                    content = self._merged(home, rule, lent[rule.name])
                except RenewalRefused as refusal:
                    return Returned(refused=f"{rule.name}: {refusal}")
                if content is not None:
                    merged[rule.name] = content
            for name, content in merged.items():
                write_private((self.source / name).resolve(), content)
        return Returned(renewed=tuple(merged))

    def _merged(self, home: Path, rule: Renewal, before: str) -> bytes | None:
        left = _read_left(home, rule.name)
        if left is None or not left.strip() or _digest(left) == before:
            return None
        source = _read(self.source / rule.name)
        if source is None or _digest(source) != before:
            return None
        return merge(rule, source, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loan:
    """What one turn was given. Once nothing of its engine lives, it is ended."""

    credentials: Credentials
    home: Path
    lent: Mapping[str, str]

    def end(self) -> Returned:
        """Take back what was renewed, and remove the copies."""
        try:
            return self.credentials.take_back(self.home, self.lent)
        finally:
            remove_copies(self.home, self.credentials.names)


def remove_copies(home: Path, names: Sequence[str]) -> None:
    """Leave no sign-in in a run's home. The next turn is lent it anew."""
    for name in names:
        beneath.remove(home.parent, f"{home.name}/{name}")


def _read(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def _read_left(home: Path, name: str) -> bytes | None:
    """What an engine left in its home may be anything: a link to somebody's keys, a pipe, a file without end."""
    file = open_below(home.parent, f"{home.name}/{name}")
    if file is None:
        return None
    with file:
        return file.read(MOST_BYTES + 1)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
