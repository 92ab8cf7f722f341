"""Several machines on one: each program has its own folders, which it sees at the same paths as all others see theirs.

The folder with the files of runs is bound into a mount namespace of the program, so that no program sees the files of
another machine. The database is reached through a proxy of the machine, which can be closed: the machine is cut off then.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.data_folder import World
from support.program import ASKBACK, Started, until
from support.server import Server

TOKEN = "a-token-that-all-servers-share-0123456789"
_BIND = 'mount --bind "$0" "$1" && shift && exec "$@"'


def missing() -> str | None:
    """Why there can be no machines here."""
    if os.geteuid() != 0:
        return "only root may bind a folder to another path"
    if shutil.which("unshare") is None:
        return "unshare is not installed (Debian: util-linux)"
    probe = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "true"], capture_output=True, timeout=60, check=False
    )
    return None if probe.returncode == 0 else "mount namespaces are not permitted here"


def bound(folder: Path, path: Path) -> tuple[str, ...]:
    """Askback, with the folder at this path, for it alone."""
    found = shutil.which("unshare")
    assert found is not None
    return (found, "--mount", "--propagation", "private", "sh", "-c", _BIND, str(folder), str(path), *ASKBACK)


class Fleet:
    """What the machines share: a database, an object store, a token, and the path of the runs' files."""

    def __init__(self, folder: Path, database: str, files: str) -> None:
        self.folder = folder
        self.database = database
        self.files = files
        self.runs_dir = folder / "runs"
        self.runs_dir.mkdir(parents=True)

    def machine(self, name: str) -> Machine:
        return Machine(self, name)


class Machine(World):
    """One machine: its data folder, its copy of the runs' files, and the programs on it."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        super().__init__(fleet.folder / name)
        self.fleet = fleet
        self.name = name
        self.database = fleet.database
        self.runs = self.folder / "runs"
        """What this machine has at the common path."""
        self.runs.mkdir(parents=True)

    @property
    def program(self) -> tuple[str, ...]:
        return bound(self.runs, self.fleet.runs_dir)

    @property
    def env(self) -> dict[str, str]:
        return {
            "ASKBACK_RUNS_DIR": str(self.fleet.runs_dir),
            "ASKBACK_FILES": self.fleet.files,
            "ASKBACK_SERVER__TOKEN": TOKEN,
            "ASKBACK_SKILLS_DIR": str(self.folder / "skills"),
        }

    def server(self, *args: str, env: Mapping[str, str] | None = None) -> Server:
        """An API server that executes nothing."""
        return Server(self, "--no-worker", *args, env={**self.env, **(env or {})}, program=self.program)

    def worker(self, *args: str, env: Mapping[str, str] | None = None) -> WorkerProgram:
        return WorkerProgram(self, *args, env={**self.env, **(env or {})})

    def lose_disk(self) -> None:
        """Everything that this machine has is gone. Its programs must have ended."""
        for folder in (self.data_dir, self.runs):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)


class WorkerProgram(Started):
    """`askback worker`, once it takes turns."""

    def __init__(self, machine: Machine, *args: str, env: Mapping[str, str]) -> None:
        super().__init__(machine, "worker", "--json", "--port", "0", *args, env=env, program=machine.program)
        self.told: dict[str, Any] = json.loads(until(self._line, self._alive))

    def _line(self) -> str:
        text = self._out.read_text()
        return text if text.endswith("\n") else ""

    def stop(self) -> int:
        return self.kill(signal.SIGTERM)
