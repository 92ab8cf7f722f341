"""Levels of isolation and networks of engines, and what protects our own process and data folder from other users."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class IsolationLevel(StrEnum):
    """From the strongest to the weakest."""

    BUBBLEWRAP = "bubblewrap"
    """As `guardian`, and each engine has its own process table and sees only what it needs."""
    GUARDIAN = "guardian"
    """Nothing of an engine outlives its turn or Askback. The engine can do what the user can do."""
    NONE = "none"
    """An engine's process group is ended. A process that leaves the group may survive."""


class Network(StrEnum):
    """What an engine can connect to."""

    HOST = "host"
    """Everything that the user can, including services on the loopback interface and metadata addresses of clouds."""
    NO_LOOPBACK = "no-loopback"
    """Other machines, over IPv4. Not this machine, and no metadata addresses."""
    NONE = "none"
    """Only itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    level: IsolationLevel
    why_not_more: str = ""
    advice: str = ""
    shared: tuple[str, ...] = ()
    """Folders outside its run that an engine may write to, from the settings."""
    no_network: Mapping[Network, str] = field(default_factory=dict)
    """Networks that are not available here, with the reason and a fix."""

    @property
    def hides_files(self) -> bool:
        return self.level is IsolationLevel.BUBBLEWRAP


_SET_DUMPABLE = 4


def close_to_others() -> None:
    """Hide the memory and environment of this process from other processes of the same user.

    A program that it starts is readable again, but only with what that program was given.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


class Access(StrEnum):
    """What other users of this machine may do in a folder."""

    NONE = "none"
    READ = "read"
    WRITE = "write"


def access_of_others(folder: Path) -> Access:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o022:
        return Access.WRITE
    return Access.READ if mode & 0o055 else Access.NONE


def withdraw_write_access(folder: Path, own_file: str) -> bool:
    """Deny write access to others. False if the folder may not be only ours: another owner, or other files in it."""
    status = folder.stat()
    names = {path.name for path in folder.iterdir()}
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or (names and own_file not in names):
        return False
    folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    return True
