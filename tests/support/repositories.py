"""Repositories of a user, for runs that work in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "protocol.file.allow=always")


def git(folder: Path, *arguments: str) -> str:
    """What git prints, without the settings of this machine."""
    env = {
        "PATH": "/usr/bin:/bin",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "HOME": "/nonexistent",
    }
    done = subprocess.run(
        ["git", *IDENTITY, *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout


def repository(folder: Path) -> Path:
    """A repository with a commit, a changed file and an untracked one."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "site.css").write_text("red\n")
    (folder / "old.txt").write_text("old\n")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "start")
    (folder / "old.txt").write_text("old\nand changed before the run\n")
    (folder / "notes.txt").write_text("mine\n")
    return folder


def contents(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder: the content of files, where links lead, and that there are folders."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else ""
    return found
