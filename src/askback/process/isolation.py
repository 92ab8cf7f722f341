"""How programs are kept in on this machine, in words for `/healthz` and `askback doctor`."""

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
    """A guardian ends the tree, and each engine has its own process table and sees only what it needs."""
    GUARDIAN = "guardian"
    """Nothing of an engine outlives its turn or us; it may do what the user may do."""
    NONE = "none"
    """An engine's process group is ended; what leaves it may live on."""


class Network(StrEnum):
    """What an engine can connect to."""

    HOST = "host"
    """Everything that the user can, services on the loopback interface and metadata addresses of clouds included."""
    NO_LOOPBACK = "no-loopback"
    """Other machines, by IPv4: neither this machine nor metadata addresses."""
    NONE = "none"
    """Nothing but itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    in_force: IsolationLevel
    why_not_more: str = ""
    advice: str = ""
    shared: tuple[str, ...] = ()
    """Folders outside of its run that an engine may write to, by the settings."""
    no_network: Mapping[Network, str] = field(default_factory=dict)
    """Why a network cannot be had here, with what to do about it."""

    @property
    def hides_files(self) -> bool:
        return self.in_force is IsolationLevel.BUBBLEWRAP


_SET_DUMPABLE = 4


def close_to_others() -> None:
    """From now on nobody of the same user may read this process, nor what it was started with.

    A program that is started from here is readable again; only what it is given can be read there.
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
    """Let nobody else write there. False where the folder is not ours alone to change: another's, or with other files."""
    status = folder.stat()
    names = {path.name for path in folder.iterdir()}
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or (names and own_file not in names):
        return False
    folder.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
    return True
