"""The distributions of this repository, built and installed as a user would, without a package index."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from askback import __version__
from support.data_folder import World
from support.program import DEADLINE_SEC, environment

ROOT = Path(__file__).resolve().parents[2]
SERVER, CLIENT = ROOT, ROOT / "clients/python"


def build_wheel(project: Path, name: str, folder: Path) -> Path:
    """A wheel that is made from the unpacked sdist, which has no clone around it."""
    _build(project, "sdist", folder)
    stem = f"{name}-{__version__}"
    with tarfile.open(folder / f"{stem}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    _build(folder / stem, "wheel", folder)
    return folder / f"{stem}-py3-none-any.whl"


def _build(project: Path, target: str, folder: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=DEADLINE_SEC, check=False)
    assert ran.returncode == 0, ran.stderr


class Installation:
    """A new virtual environment with one wheel, and links to the packages that it requires, directly or not.

    `more` names packages that its user installs as well.
    """

    def __init__(self, folder: Path, file: Path, more: Iterable[str] = ()) -> None:
        self.world = World(folder)
        (folder / "home").mkdir(parents=True)
        venv.create(folder / "venv", with_pip=False, symlinks=True)
        self.bin = folder / "venv/bin"
        (self.packages,) = (folder / "venv/lib").glob("python*/site-packages")
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "-q"]
        options = ["--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([*command, *options, str(file)], check=True, timeout=DEADLINE_SEC)
        wanted = _required(metadata.Distribution.at(next(self.packages.glob("*.dist-info")))) | set(more)
        self.names = sorted(self._link_all(wanted))

    def _link_all(self, wanted: set[str]) -> set[str]:
        linked: set[str] = set()
        while wanted:
            name = wanted.pop()
            if name not in linked:
                linked.add(name)
                found = metadata.distribution(name)
                self._link(found)
                wanted |= _required(found)
        return linked

    def _link(self, distribution: metadata.Distribution) -> None:
        for top in {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}:
            if not (self.packages / top).exists():
                (self.packages / top).symlink_to(Path(str(distribution.locate_file(top))))

    def run(self, *command: str, stdin: str = "", **env: str) -> str:
        ran = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment(self.world, **env),
            cwd=self.world.folder,
            timeout=DEADLINE_SEC,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def _required(distribution: metadata.Distribution) -> set[str]:
    requirements = [Requirement(text) for text in distribution.requires or ()]
    return {
        canonicalize_name(each.name) for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})
    }
