"""The skills that can be run by name: installed ones, and those in the user's skill folders.

<root>/packages/<digest>/    a copy of every package that a run uses, named by the digest of its content
<root>/skills/<id>.json      an installed skill: its versions, the newest last; see `shelf`
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from askback.core.errors import (
    FULL_DISK,
    AskbackError,
    Invalid,
    NotFound,
    RefusalCode,
    Unavailable,
    disk_full,
    raise_if_temporary,
)
from askback.fs.atomic import GroupSync, locked, make_private
from askback.fs.paths import is_kind
from askback.skills.archive import ZipLimits, extract_zip
from askback.skills.files import Digests, copy_files, list_files
from askback.skills.front_matter import FILE, ID
from askback.skills.package import SkillPackage, read_package
from askback.skills.package_archives import PackageArchives, damaged, package_key
from askback.skills.shelf import InstalledVersion, Shelf
from askback.text.formatting import nearest

DEMO = Path(__file__).parent / "demo" / "trip-planner"
"""The skill of `askback demo`, shipped with the program."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNFINISHED = ".new-"
_STALE_SEC = 3600
_FEW_FILES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillListing:
    """A skill in a list. An invalid one has a `problem` and no `package`."""

    id: str
    source: str
    """`installed`, or the path of its folder."""
    package: SkillPackage | None = None
    versions: tuple[InstalledVersion, ...] = ()
    problem: str | None = None


class Library:
    def __init__(
        self,
        root: Path,
        skills_dirs: tuple[Path, ...] = (),
        limits: ZipLimits | None = None,
        config_names: frozenset[str] = frozenset(),
        shelf: Shelf | None = None,
        archives: PackageArchives | None = None,
    ) -> None:
        """`config_names` are the names of the engines' configuration, which no package may contain.

        `shelf` has the list of installed skills; by default, files below the root. `archives`: where packages are stored
        for every machine; None if this is the only one.
        """
        self._archives = archives
        self._packages = root / "packages"
        self._disk = GroupSync(self._packages)
        self._skills = root / "skills"
        self._shelf = shelf or Shelf(self._skills)
        self._skills_dirs = skills_dirs
        self._limits = limits or ZipLimits()
        self._config_names = config_names
        self._read: dict[str, SkillPackage] = {}
        self._digests = Digests()

    # Packages by digest.

    def package(self, digest: str) -> SkillPackage:
        """A stored package. It is read, and compared with its digest, once in the life of a program."""
        if (known := self.cached(digest)) is not None:
            return known
        if self._archives is not None and _DIGEST.fullmatch(digest) and not (self._packages / digest).is_dir():
            # Another machine may have stored it.
            with _writing(self._packages):
                self._fetch(self._archives, digest)
        package = self._read[digest] = self._verified(digest)
        return package

    def cached(self, digest: str) -> SkillPackage | None:
        """None if it has not been read, or somebody has removed it since."""
        known = self._read.get(digest)
        return known if known is not None and known.folder.is_dir() else None

    def _fetch(self, archives: PackageArchives, digest: str) -> None:
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=self._packages) as fresh:
            folder = Path(fresh, "package")
            if not archives.fetch(package_key(digest), folder):
                return
            found = None
            with suppress(Invalid):
                found = read_package(folder, None, self._config_names).digest
            if found != digest:
                raise damaged("its content is not that of its name")
            self._put(folder, digest)
        archives.record_stored(digest)

    def _verified(self, digest: str) -> SkillPackage:
        folder = self._packages / digest
        if not _DIGEST.fullmatch(digest) or not folder.is_dir():
            message = f"package {digest[:12]} is not stored here; install the skill again"
            raise NotFound(RefusalCode.SKILL_NOT_FOUND, message)
        title = f"package {digest[:12]}"
        package = read_package(folder, title, self._config_names)
        if package.digest != digest:
            message = f"{title} was changed or damaged; remove its folder in `packages`, and install the skill again"
            raise Unavailable(RefusalCode.SKILL_DAMAGED, message)
        return package

    def unpack(self, path: Path, into: Path, checkpoint: Callable[[], None] = lambda: None) -> SkillPackage:
        """A package that is used once: a zip, checked like one to install, in a folder that does not exist yet."""
        with _writing(into.parent):
            return read_package(
                extract_zip(path, into, self._limits, checkpoint, self._config_names), path.name, self._config_names
            )

    def store_unpacked(self, package: SkillPackage, key: str) -> None:
        """Store a package of `unpack` under this key, for every machine."""
        if self._archives is not None:
            self._archives.store_as(key, package)

    def fetch_unpacked(self, folder: Path, key: str) -> None:
        """Fetch what `store_unpacked` has stored, unless it is here."""
        if self._archives is not None and not folder.is_dir():
            with _writing(folder.parent):
                self._archives.fetch(key, folder)

    def unpacked(self, folder: Path, digest: str) -> SkillPackage:
        """A package of `unpack`, compared with its digest."""
        package = read_package(folder, "the skill", self._config_names)
        if package.digest != digest:
            raise Unavailable(RefusalCode.SKILL_DAMAGED, "the skill was changed or damaged; start the run again")
        return package

    def store(self, skill: SkillPackage | Path) -> SkillPackage:
        """Store a copy of a package for the runs that use it. Idempotent."""
        package = read_package(skill, None, self._config_names) if isinstance(skill, Path) else skill
        stored = self._store_here(package)
        if self._archives is not None:
            self._archives.store(stored)
        return stored

    def _store_here(self, package: SkillPackage) -> SkillPackage:
        if (self._packages / package.digest).is_dir():
            with suppress(AskbackError):
                return self.package(package.digest)
        with _writing(self._packages):
            return self.package(self._copy(package.folder))

    def _copy(self, folder: Path) -> str:
        """Copy, then read the copy: the folder may have changed since it was read."""
        # What killed programs left unfinished.
        for left in self._packages.glob(f"{_UNFINISHED}*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE_SEC:
                    shutil.rmtree(left)
        fresh = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._packages))
        try:
            copy_files(list_files(folder.resolve())[0], fresh)
            digest = read_package(fresh, folder.name, self._config_names).digest
            self._put(fresh, digest)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return digest

    def _put(self, fresh: Path, digest: str) -> None:
        """Move the copy to its place, unless another process was faster. A damaged package is replaced."""
        target = self._packages / digest
        with locked(self._skills / ".lock"):
            try:
                self._verified(digest)
            except AskbackError:
                if target.exists():
                    target.rename(Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self._packages)) / "damaged")
                fresh.rename(target)
        self._disk.sync(target)

    # Installed skills by id.

    def install(self, path: Path, checkpoint: Callable[[], None] = lambda: None) -> SkillPackage:
        """Install a zip or a folder as the newest version of its skill. The demo skill is also found by its name.

        `checkpoint` raises if the caller is gone; nothing is installed then.
        """
        if is_kind(path, Path.is_dir):
            package = self.store(path)
        elif is_kind(path, Path.is_file):
            with _writing(self._packages), tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=self._packages) as fresh:
                folder = extract_zip(path, Path(fresh) / "package", self._limits, checkpoint, self._config_names)
                package = self.store(read_package(folder, path.name, self._config_names))
        elif str(path) == DEMO.name:
            package = self.store(DEMO)
        else:
            message = f"there is no file or folder {path}; name a zip or the folder that contains {FILE}"
            raise NotFound(RefusalCode.SKILL_NOT_FOUND, message)
        checkpoint()
        with _writing(self._skills), self._shelf.changing(package.id) as versions:
            others = [each for each in versions if each.digest != package.digest]
            versions[:] = [*others, InstalledVersion(version=package.version, digest=package.digest)]
        return package

    def remove(self, skill_id: str) -> None:
        """Remove a skill from the list. Its packages stay for the runs that use them."""
        if not ID.fullmatch(skill_id):
            raise self._not_installed(skill_id)
        with _writing(self._skills), self._shelf.changing(skill_id) as versions:
            if not versions:
                raise self._not_installed(skill_id)
            versions.clear()

    def _not_installed(self, skill_id: str) -> NotFound:
        if all(each.id != skill_id for each in self.in_folders()):
            return self._unknown(skill_id, paths=False)
        message = f"skill {skill_id!r} is not installed; remove it from its folder in `skills_dir`"
        return NotFound(RefusalCode.SKILL_NOT_FOUND, message)

    def installed(self) -> list[SkillListing]:
        return [self._listing(skill_id) for skill_id in self._shelf.names()]

    def listing(self, package: SkillPackage) -> SkillListing:
        """The entry of a package that was found. No other skill is read."""
        installed = self._listing(package.id)
        if installed.package is not None:
            return installed
        return SkillListing(id=package.id, source=str(package.folder), package=package)

    def _listing(self, skill_id: str) -> SkillListing:
        versions = self._versions(skill_id)
        try:
            package = self.package(versions[-1].digest) if versions else None
        except AskbackError as fault:
            return SkillListing(id=skill_id, source="installed", versions=versions, problem=fault.message)
        problem = None if package else "its entry cannot be read; install it again"
        return SkillListing(id=skill_id, source="installed", package=package, versions=versions, problem=problem)

    def in_folders(self) -> list[SkillListing]:
        """The skills in the user's skill folders. Invalid ones have a `problem`."""
        return [self._listing_of(folder) for place in self._skills_dirs for folder in _skill_folders(place)]

    def _listing_of(self, folder: Path) -> SkillListing:
        try:
            package = read_package(folder, None, self._config_names)
        except Invalid as fault:
            return SkillListing(id=folder.name, source=str(folder), problem="; ".join(fault.problems))
        return SkillListing(id=package.id, source=str(folder), package=package)

    def names(self) -> list[str]:
        """The names of all skills, found without reading any package."""
        installed = set(self._shelf.names())
        return sorted(installed | {folder.name for place in self._skills_dirs for folder in _skill_folders(place)})

    # Finding.

    def find(self, name: str, *, paths: bool = True) -> SkillPackage:
        """Find a skill, in this order: by path; by installed id; by folder name, in the skill folders or the working
        directory; the demo; by the id of a skill in a skill folder.

        `paths=False` is for callers who must not read files of this machine by path, nor learn paths.
        """
        place = self._place(name, paths=paths)
        if place is None:
            # The id of a skill may differ from the name of its folder.
            for listed in self.in_folders():
                if listed.id == name and listed.package is not None:
                    return listed.package
            raise self._unknown(name, paths=paths)
        return self.package(place) if isinstance(place, str) else self._in(place, paths=paths)

    def find_cached(self, name: str, *, paths: bool = True) -> SkillPackage | None:
        """`store(find(name))` if no file has to be read for it, else None. For callers who must not block.

        Works for installed skills and small folders that were used before.
        """
        with suppress(AskbackError, OSError):
            place = self._place(name, paths=paths)
            if isinstance(place, Path):
                place = self._digests.cached(place.resolve(), _FEW_FILES)
            is_stored = place is not None and (self._archives is None or self._archives.has(place))
            if place is not None and is_stored and (self._packages / place).is_dir():
                return self._read.get(place)
        return None

    def _place(self, name: str, *, paths: bool) -> str | Path | None:
        """Where a skill is: the digest of an installed one, or a folder."""
        if paths and (name in (".", "..") or "/" in name or os.sep in name):
            return _folder_at(Path(name))
        if versions := self._versions(name):
            return versions[-1].digest
        places = (*self._skills_dirs, *([Path()] if paths else []))
        for place in places if ID.fullmatch(name) else ():
            if _holds_skill(place / name):
                return place / name
        # `askback demo` prints commands with this name, and they must work.
        return DEMO if name == DEMO.name else None

    def _in(self, folder: Path, *, paths: bool) -> SkillPackage:
        """Read a folder, unless a package with the same content was read before. Without `paths`, errors have its name."""
        resolved = folder.resolve()
        with suppress(OSError):
            entries, problems = list_files(resolved, self._config_names)
            known = self._read.get(self._digests.of(resolved, entries)) if not problems else None
            if known is not None:
                return known.moved(resolved)
        return read_package(folder, None if paths else folder.name, self._config_names)

    def _unknown(self, name: str, *, paths: bool) -> NotFound:
        known = sorted({each.id for each in self.installed()} | {each.id for each in self.in_folders()})
        if near := nearest(name, [*known, DEMO.name]):
            hint, further = f"did you mean {near!r}?", " A"
        elif known:
            hint, further = f"known: {', '.join(known)}", "; a"
        else:
            hint, further = "none is installed", "; a"
        if paths:
            hint += f"{further} folder is named by its path, such as ./my-skill"
        return NotFound(RefusalCode.SKILL_NOT_FOUND, f"skill {name!r} is unknown; {hint}")

    def _versions(self, skill_id: str) -> tuple[InstalledVersion, ...]:
        """The newest last. Empty for an id that is not installed, and for an unreadable entry."""
        return self._shelf.versions(skill_id) if ID.fullmatch(skill_id) else ()


def _folder_at(path: Path) -> Path:
    """The folder of a skill, given its path or the path of its `SKILL.md`."""
    if is_kind(path, Path.is_dir):
        return path
    if is_kind(path, Path.is_file):
        if path.name == FILE:
            return path.parent
        message = f"{path} is a file; name the folder of a skill, or install a zip with `askback skills install`"
        raise Invalid(RefusalCode.SKILL_INVALID, message)
    raise NotFound(RefusalCode.SKILL_NOT_FOUND, f"there is no folder {path}; name the folder that contains {FILE}")


def _skill_folders(place: Path) -> list[Path]:
    try:
        return sorted(folder for folder in place.iterdir() if _holds_skill(folder))
    except OSError as fault:
        raise_if_temporary(fault)
        return []


def _holds_skill(folder: Path) -> bool:
    return is_kind(folder / FILE, Path.is_file)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Create the folder, and raise `Unavailable` if it cannot be written to."""
    try:
        make_private(folder)
        yield
    except OSError as fault:
        if fault.errno in FULL_DISK:
            raise disk_full() from fault
        raise_if_temporary(fault)
        path = fault.filename or folder
        message = f"{path} cannot be read or written: {fault.strerror or fault}; check its permissions"
        raise Unavailable(RefusalCode.STORE_UNUSABLE, message) from fault
