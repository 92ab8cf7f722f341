"""Finds out where control groups (cgroup v2) for engines may be created.

A group can limit memory and processes only if its parent delegates these controllers, and such a parent must not contain
processes. So: the nearest group above us that is writable and already delegates them. Otherwise our own group, if no
other process is in it, after we have moved to a new group below it. A service with `Delegate=yes` is the second case.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = frozenset({"memory", "pids"})
_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_SERVER = "askback-server"
_PROBE_SEC = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The parent of the engines' groups, and the group that we are in; or why there is none."""

    base: Path | None = None
    home: Path | None = None
    why_not: str = ""

    @property
    def usable(self) -> bool:
        return self.base is not None

    @property
    def paths(self) -> tuple[str, ...]:
        return () if self.base is None else (str(self.base), str(self.home))

    def release(self) -> None:
        """Normally the guardian removes the group when it ends. This is for the case that none was started."""
        if self.base is not None:
            with suppress(OSError):
                self.base.rmdir()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a base may be created. `moving`: we must leave the group first, so that it can delegate controllers."""

    parent: Path
    moving: bool


def delegation(mounts: Iterable[Path] = _MOUNTS, controllers: frozenset[str] = CONTROLLERS) -> Delegation:
    """Find a place, create the base there, and test that a process can be moved in and out."""
    root = next((each for each in mounts if (each / "cgroup.controllers").is_file()), None)
    own = _own_group()
    if root is None or own is None:
        return Delegation(why_not="cgroup v2 is not mounted")
    group = root / own.lstrip("/")
    place = find_place(root, group, controllers, may_write=_may_write, ours={os.getpid()})
    if isinstance(place, str):
        return Delegation(why_not=place)
    try:
        return _make(place, group, controllers)
    except (OSError, subprocess.SubprocessError) as error:
        return Delegation(why_not=f"control groups cannot be created in {place.parent}: {error}")


def find_place(
    root: Path, own: Path, controllers: frozenset[str], *, may_write: Callable[[Path], bool], ours: set[int]
) -> Place | str:
    """The best place, or why there is none. Only reads."""
    if not own.is_dir():
        return "the control group of this process is not visible"
    if missing := sorted(controllers - _words(root / "cgroup.controllers")):
        return f"cgroup v2 lacks {' and '.join(missing)} here; cgroup v1 may have them"
    writable = [each for each in (own, *own.parents) if each.is_relative_to(root) and may_write(each)]
    if not writable:
        return "no control group is delegated to this process; a systemd service can have Delegate=yes"
    for each in writable:
        if controllers <= _words(each / "cgroup.subtree_control"):
            return Place(parent=each, moving=False)
    top = writable[0]
    if not controllers <= _words(top / "cgroup.controllers"):
        return f"the control group {top} does not have {' and '.join(sorted(controllers))}"
    # Only the machine's root group may contain processes and delegate controllers; it has no type.
    is_root = not (top / "cgroup.type").exists()
    if not is_root and not {int(word) for word in _words(top / "cgroup.procs")} <= ours:
        return f"the control group {top} contains other processes"
    return Place(parent=top, moving=not is_root)


def _make(place: Place, group: Path, controllers: frozenset[str]) -> Delegation:
    home = group
    if place.moving:
        home = place.parent / _SERVER
        home.mkdir(exist_ok=True)
        (home / "cgroup.procs").write_text(str(os.getpid()))
    enabled = " ".join(f"+{each}" for each in sorted(controllers))
    if enabled and not controllers <= _words(place.parent / "cgroup.subtree_control"):
        (place.parent / "cgroup.subtree_control").write_text(enabled)
    base = place.parent / f"askback-{os.getpid()}"
    base.mkdir(exist_ok=True)
    made = Delegation(base=base, home=home)
    try:
        (base / "cgroup.subtree_control").write_text(enabled)
        _test(made)
    except BaseException:
        made.release()
        raise
    return made


def _test(made: Delegation) -> None:
    """Move a program in and out again, like a keeper."""
    assert made.base is not None
    assert made.home is not None
    inside = made.base / "probe"
    inside.mkdir(exist_ok=True)
    try:
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
            try:
                for place in (inside, made.home):
                    (place / "cgroup.procs").write_text(str(program.pid))
            finally:
                program.communicate(timeout=_PROBE_SEC)
    finally:
        inside.rmdir()


def _own_group() -> str | None:
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                return line[3:]
    return None


def _may_write(group: Path) -> bool:
    files = (group, group / "cgroup.procs", group / "cgroup.subtree_control")
    return all(os.access(each, os.W_OK) for each in files) and not os.statvfs(group).f_flag & os.ST_RDONLY


def _words(file: Path) -> set[str]:
    with suppress(OSError):
        return set(file.read_text().split())
    return set()
