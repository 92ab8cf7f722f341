"""The files of a package as they are listed for readers: path, size and digest of each."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from askback.skills.files import content_digests, list_files, whole_digest
from askback.skills.package import SkillPackage

_MOST_FILES = 100_000
"""How many files of all packages are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageFile:
    """A file of a package. `path` is relative, with slashes; `digest` is the SHA-256 of its content."""

    path: str
    size: int
    digest: str


class Contents:
    """The files of packages, remembered by the digest of the package. Safe for several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[PackageFile, ...]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, package: SkillPackage) -> tuple[PackageFile, ...]:
        with self._lock:
            if (known := self._known.get(package.digest)) is not None:
                self._known.move_to_end(package.digest)
                return known
        entries, _ = list_files(package.folder)
        digests = tuple(content_digests(entries))
        found = tuple(
            PackageFile(path=entry.name, size=entry.size, digest=digest)
            for entry, digest in zip(entries, digests, strict=True)
        )
        # A skill folder can have changed since the package was read.
        if whole_digest(entries, digests) == package.digest:
            self._remember(package.digest, found)
        return found

    def _remember(self, digest: str, files: tuple[PackageFile, ...]) -> None:
        with self._lock:
            self._known[digest] = files
            while sum(map(len, self._known.values())) > _MOST_FILES:
                self._known.popitem(last=False)
