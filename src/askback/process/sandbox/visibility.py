"""Which files of this machine a sandbox shows: the system folders, and the installation of a program.

Everything else is absent. `DenyList.may_show` is the rule for files outside the system folders.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# The folders of distributions. Silverblue keeps some of them below /var, NixOS and Guix most of them in a store.
SYSTEM = tuple(
    map(
        Path,
        (
            *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/usr/local"),
            *("/nix/store", "/gnu/store", "/run/current-system", "/sys/devices/system"),
            *("/var/lib/ca-certificates", "/var/lib/texmf", "/var/cache/fontconfig"),
        ),
    )
)
ETC = Path("/etc")
PASSING = (Path("/tmp"), Path("/var/tmp"))
_NEVER = frozenset(map(Path, ("/var/tmp", "/var/lib", "/var/home", "/usr/home", "/run/user")))
_FOLDERS_OF_HOMES = (Path("/home"), Path("/var/home"), Path("/usr/home"))
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyList:
    """What no sandbox may show. All paths are absolute and without links."""

    homes: tuple[Path, ...]
    """Homes of people, and the configured homes of engines. A program in one is shown without the rest."""
    private: tuple[Path, ...]
    """Our own files: the data folder and the settings file. Of these, only the run's own folders are shown."""

    def may_show(self, path: Path) -> bool:
        """Whether a path may be shown with everything in it.

        A file may, unless it is private. A folder may not if it is or contains a home, a private path or a shared
        folder such as `/tmp`, or if it is a hidden folder directly in a home, where programs keep credentials.
        """
        real = resolved(path)
        mode = _mode(real)
        if mode is None or within(real, self.private):
            return False
        return not stat.S_ISDIR(mode) or all(self._may_show_folder(each) for each in (path, real))

    def _may_show_folder(self, folder: Path) -> bool:
        if len(folder.parts) <= 2 or folder in _NEVER or self._is_home(folder):
            return False
        if folder.name.startswith(".") and (folder.parent in self.homes or self._is_home(folder.parent)):
            return False
        return not any(each.is_relative_to(folder) for each in (*self.homes, *self.private, *PASSING))

    def _is_home(self, folder: Path) -> bool:
        return folder in self.homes or folder.parent in _FOLDERS_OF_HOMES


def deny_list(*, homes: Iterable[Path], private: Iterable[Path]) -> DenyList:
    """Ignores homes that are part of the system: the user `daemon` has `/usr/sbin`."""
    real = {resolved(home) for home in homes}
    part_of_system = (*SYSTEM, ETC, Path("/usr/bin"), Path("/usr/sbin"), Path("/usr/lib"))
    return DenyList(
        homes=tuple(sorted(home for home in real if not any(each.is_relative_to(home) for each in part_of_system))),
        private=tuple(sorted({resolved(path) for path in private})),
    )


def installation(hide: DenyList, program: str, search: str) -> set[Path]:
    """A program with the files installed beside it, its interpreter, and the folders of its search path."""
    found = {_PACKAGE}
    for path in both(Path(program)):
        found |= siblings(hide, path)
        if (interpreter := _interpreter(path)) is not None:
            for each in both(interpreter):
                found |= siblings(hide, each)
    for folder in search.split(os.pathsep):
        if folder.startswith("/"):
            found |= siblings(hide, Path(folder, "any"))
    return found


def siblings(hide: DenyList, program: Path) -> set[Path]:
    """A program and what was installed next to it, as far as it may be shown."""
    return {each for each in (program, *_siblings(program)) if hide.may_show(each)}


def certificates(env: Mapping[str, str]) -> list[Path]:
    """The certificates of authorities that the environment names."""
    return [Path(env[name]) for name in _CERTIFICATES if env.get(name, "").startswith("/")]


def whole_homes(hide: DenyList, program: str, search: str) -> list[Path]:
    """The homes that the program's folder or the search path would show as a whole, if that were allowed."""
    folders = {Path(folder) for folder in search.split(os.pathsep) if folder.startswith("/")}
    folders |= {path.parent for path in both(Path(program))}
    real = {resolved(each) for each in folders}
    return [home for home in hide.homes if any(home.is_relative_to(folder) for folder in real)]


def _siblings(program: Path) -> Iterator[Path]:
    """Never the whole prefix: some package managers keep credentials next to `bin`."""
    parts, folder = program.parts, program.parent
    if "node_modules" in parts:
        yield Path(*parts[: parts.index("node_modules") + 1])
    elif folder.name in ("bin", "sbin"):
        yield folder
        yield from (folder.parent / name for name in ("lib", "lib64", "libexec", "pyvenv.cfg"))
        if _mode(folder.parent / "pyvenv.cfg") is not None:
            real = resolved(folder / "python")
            yield from (real, real.parent, real.parent.parent / "lib")
    else:
        yield folder


def _interpreter(program: Path) -> Path | None:
    """The interpreter in the first line of a script."""
    try:
        with program.open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    words = first[2:].split()
    return Path(os.fsdecode(words[0])) if first.startswith(b"#!") and words else None


def closed_to_others(folder: Path, depth: int) -> Iterator[Path]:
    """Files that we can read and other users of this machine cannot: keys, passwords, settings with tokens."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:
                # Removed meanwhile. The entries after it still count.
                continue
            path = Path(entry.path)
            if stat.S_ISDIR(mode):
                if not mode & stat.S_IXOTH:
                    yield from (path,) if os.access(path, os.X_OK) else ()
                elif depth > 1:
                    yield from closed_to_others(path, depth - 1)
            elif stat.S_ISREG(mode) and not mode & stat.S_IROTH and os.access(path, os.R_OK):
                yield path


def both(path: Path) -> Iterator[Path]:
    """The path as given, and without links: both must exist inside."""
    yield path
    if (real := resolved(path)) != path:
        yield real


def resolved(path: Path) -> Path:
    """Without links, as far as they can be followed. Unlike `Path.resolve`, this raises no error."""
    return Path(os.path.realpath(path))


def _mode(path: Path) -> int | None:
    """None if the path does not exist or is not accessible."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return None


def within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
