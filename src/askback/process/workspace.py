"""The files of one run: where the engine works, its private home, and what every turn printed.

<run>/work/             the engine's working directory
<run>/work/artifacts/   what the run leaves for its user
<run>/work/skill/       the skill package
<run>/work/inputs/      files that were given as input
<run>/home/             the engine's private HOME
<run>/snapshots/        the home before the turn
<run>/turns/            prompt and raw output of every turn
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from askback.process import snapshot

SKILL_DIR = "skill"
INPUTS_DIR = "inputs"
ARTIFACTS_DIR = "artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    path: str
    size: int


class Workspace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "work"
        self.home = root / "home"
        self.tmp = root / "tmp"
        self.turns = root / "turns"
        self.lock_path = root / "turn.lock"
        self._snapshots = root / "snapshots"

    def prepare(self, package: Path, home_template: Path | None) -> None:
        """Make what a first turn needs; done again it changes nothing."""
        for folder in (self.cwd / ARTIFACTS_DIR, self.tmp, self.turns, self._snapshots):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _copy_once(package, self.cwd / SKILL_DIR)
        if home_template is not None:
            _copy_once(home_template, self.home)
        self.home.mkdir(exist_ok=True, mode=0o700)

    def begin_turn(self, attempt_number: int) -> None:
        snapshot.begin_turn(self.home, self._snapshots, attempt_number)

    def stage_input(self, key: str, source: Path) -> str:
        """Copy a file that was given as input; returns its path as the engine sees it."""
        folder = self.cwd / INPUTS_DIR / key
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(source, folder / source.name)
        return f"{INPUTS_DIR}/{key}/{source.name}"

    def write_home(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def prompt_path(self, turn_name: str) -> Path:
        return self.turns / f"{turn_name}.prompt"

    def write_prompt(self, turn_name: str, prompt: bytes) -> None:
        self.prompt_path(turn_name).write_bytes(prompt)

    def open_raw(self, turn_name: str, stream: str) -> BinaryIO:
        return open(self.turns / f"{turn_name}.{stream}", "wb")

    @property
    def artifacts_path(self) -> Path:
        return self.cwd / ARTIFACTS_DIR

    def artifacts(self) -> Iterator[Artifact]:
        """Plain files only: a link that an engine planted is neither listed nor followed."""
        base = self.artifacts_path
        if base.is_symlink():
            return
        for folder, folders, files in os.walk(base):
            folders.sort()
            for name in sorted(files):
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield Artifact(path=path.relative_to(base).as_posix(), size=status.st_size)


class Workspaces:
    """The workspaces of all runs on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, run_id: str) -> Workspace:
        return Workspace(self._root / run_id)


def _copy_once(source: Path, target: Path) -> None:
    if target.exists():
        return
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, symlinks=True)
    partial.rename(target)
