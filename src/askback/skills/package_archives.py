"""Packages that every machine can fetch: one compressed archive each, unpacked with the same care as an upload.

packages/DIGEST.tar.zst      a package, named by the digest of its content
runs/RUN/package.tar.zst     the package that was uploaded for one run
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from askback.blobs.base import FileMissing, Files
from askback.core.errors import RefusalCode, Unavailable
from askback.fs.archive_reader import ArchiveDamaged, unpack
from askback.fs.archive_writer import ArchiveLimits
from askback.fs.atomic import GroupSync
from askback.skills.files import MAX_DEPTH, MAX_ENTRIES, MAX_TOTAL_BYTES, copy_files, list_files

if TYPE_CHECKING:
    from askback.skills.package import SkillPackage

_LEVEL = 3
_LIMITS = ArchiveLimits(max_bytes=MAX_TOTAL_BYTES, max_entries=MAX_ENTRIES, max_depth=MAX_DEPTH + 1)


def package_key(digest: str) -> str:
    return f"packages/{digest}.tar.zst"


class PackageArchives:
    """Every method waits for the store, and raises `Unavailable` if it cannot be used."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._stored: set[str] = set()

    def has(self, digest: str) -> bool:
        """Whether it is known, without a request, that the package is stored."""
        return digest in self._stored

    def store(self, package: SkillPackage) -> None:
        """Store a package under its digest, unless it is there."""
        if package.digest not in self._stored:
            key = package_key(package.digest)
            if self._files.size(key) is None:
                self.store_as(key, package)
            self._stored.add(package.digest)

    def store_as(self, key: str, package: SkillPackage) -> None:
        with tempfile.TemporaryDirectory(prefix="askback-package-") as folder:
            # A copy: what is packed is what was listed, whatever happens to the folder meanwhile.
            copy, packed = Path(folder, "package"), Path(folder, "packed")
            copy.mkdir()
            copy_files(list_files(package.folder.resolve())[0], copy)
            _pack(copy, packed)
            self._files.put(key, packed)

    def fetch(self, key: str, into: Path) -> bool:
        """Unpack an archive into a folder that does not exist yet. False if there is no such archive.

        The caller compares the digest. Nothing is left behind on failure, unless `into` exists.
        """
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=into.parent) as folder:
            packed, fresh = Path(folder, "packed"), Path(folder, "package")
            try:
                self._files.fetch(key, packed)
            except FileMissing:
                return False
            fresh.mkdir(mode=0o700)
            try:
                with packed.open("rb") as file:
                    unpack(file, fresh, limits=_LIMITS)
            except ArchiveDamaged as fault:
                raise damaged(str(fault)) from fault
            GroupSync(into.parent).sync(fresh)
            fresh.rename(into)
        return True

    def record_stored(self, digest: str) -> None:
        self._stored.add(digest)


def _pack(folder: Path, target: Path) -> None:
    import zstandard

    with (
        target.open("wb") as file,
        zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for entry in list_files(folder)[0]:
            info = tarfile.TarInfo(entry.name)
            info.size, info.mode = entry.size, 0o700 if entry.executable else 0o600
            with entry.path.open("rb") as content:
                archive.addfile(info, content)


def damaged(why: str) -> Unavailable:
    message = f"a stored skill package is damaged: {why}; remove it from the store, and install the skill again"
    return Unavailable(RefusalCode.SKILL_DAMAGED, message)
