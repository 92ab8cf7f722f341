"""The current usage of a process tree and of the folders of a run, read from `/proc` and from the disk.

Part of the keeper: standard library only. `watchdog.py` compares it with the limits.
"""

# Without pathlib, which would double the start-up time of the guardian.
# ruff: noqa: PTH116, PTH208
from __future__ import annotations

import ctypes
import errno
import os
import resource
import stat as modes
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Protocol

    class Scanning(Protocol):
        """An open `os.scandir`."""

        def __next__(self) -> os.DirEntry[str]: ...

        def __iter__(self) -> Iterator[os.DirEntry[str]]: ...

        def close(self) -> None: ...


_TICKS = os.sysconf("SC_CLK_TCK")
_KB = 1024
_BLOCK = 512
_KCMP = {"x86_64": 312, "aarch64": 272}.get(os.uname().machine)
"""The number of the system call that compares two threads."""
_KCMP_FILES = 2
_MAX_COMPARED = 8
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_OPEN = 64
_MAX_PATH = 4096
ENTRY_BYTES = 1024
"""Every name counts at least this much, and the length of its path, so that empty files cannot fill a disk."""


class Processes:
    """All descendants of a process, at one moment."""

    def __init__(self, root: int, limit: float, earlier_sec: float = 0.0) -> None:
        """Stops above `limit` processes: checking a fork bomb must not take long.

        `earlier_sec`: the CPU time of the children that we had reaped before the tree began.
        """
        self.pids: list[int] = []
        self.threads = 0
        self.cpu_sec = 0.0
        self.estimated = 0
        """An upper bound of their memory: a shared page counts for each process."""
        self._mapped: dict[int, int] = {}
        below = children if can_list_children() else _table_of_children()
        todo = [root]
        while todo and len(self.pids) <= limit:
            todo += [pid for pid in below(todo.pop()) if len(self.pids) <= limit and self._take(pid)]
        self.cpu_sec += reaped_sec() - earlier_sec

    def _take(self, pid: int) -> bool:
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            status = _read(f"/proc/{pid}/status")
            threads = int(fields[17])
            if threads > 1 and b"RssAnon:" not in status:
                # The first thread has ended, and the others still use the memory.
                status = _of_other_thread(pid, status)
        except (OSError, IndexError):
            # It has ended in the meantime.
            return False
        self.pids.append(pid)
        self.threads += threads
        self.cpu_sec += sum(int(each) for each in fields[11:15]) / _TICKS
        self._mapped[pid] = sum(_sized(status, name) for name in (b"RssAnon:", b"VmSwap:", b"RssShmem:"))
        self.estimated += self._mapped[pid]
        return True

    def memory(self, unmapped: int) -> int:
        """Their memory and swap; a shared page counts once. Slow for processes with much memory.

        Pages of files that the system can drop at any time do not count. `unmapped` is the size of files in memory;
        mapped parts of them are not counted twice.
        """
        own = shared = 0
        for pid in self.pids:
            try:
                text = _read(f"/proc/{pid}/smaps_rollup")
            except OSError:
                # A process may forbid reading this. Then everything that it maps counts.
                own += self._mapped[pid]
                continue
            own += _sized(text, b"Pss_Anon:") + _sized(text, b"SwapPss:")
            shared += _sized(text, b"Pss_Shmem:")
        return own + max(shared, unmapped)


def reaped_sec() -> float:
    """The CPU time of all children that this process has reaped."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return reaped.ru_utime + reaped.ru_stime


def _of_other_thread(pid: int, status: bytes) -> bytes:
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            other = _read(f"/proc/{pid}/task/{thread}/status")
        except OSError:
            continue
        if b"RssAnon:" in other:
            return other
    return status


def children(pid: int) -> Iterator[int]:
    """From the kernel's list for each thread: the cost depends on the size of the tree, not of the machine."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            yield from map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            continue


def can_list_children() -> bool:
    """Whether this kernel has these lists."""
    return os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")  # noqa: PTH110


def _table_of_children() -> Callable[[int], Iterable[int]]:
    """For a kernel without these lists: scan all processes of the machine once."""
    table: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(_read(f"/proc/{name}/stat").rpartition(b")")[2].split()[1])
            except OSError:
                continue
            table.setdefault(parent, []).append(int(name))
    return lambda pid: table.get(pid, ())


class UnlinkedFiles:
    """Usage that no walk finds: open files without a name, and the in-memory file systems of a sandbox."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.disk_bytes = 0
        self.memory_bytes = 0
        self._seen: set[tuple[int, int]] = set()
        self._devices = _devices("self")
        known = set(self._devices)
        for pid in pids:
            for thread in _threads_with_files(pid):
                self._take_files(thread)
                for device, (kind, place) in _devices(thread).items():
                    if device not in known and kind == "tmpfs":
                        self._take_system(device, f"/proc/{thread}/root{place}")
                    known.add(device)

    def _take_files(self, thread: str) -> None:
        try:
            numbers = os.listdir(f"/proc/{thread}/fd")
        except OSError:
            return
        for number in numbers:
            try:
                status = os.stat(f"/proc/{thread}/fd/{number}")
            except OSError:
                continue
            if modes.S_ISREG(status.st_mode) and status.st_nlink == 0:
                self._take_file(status)

    def _take_file(self, status: os.stat_result) -> None:
        if (status.st_dev, status.st_ino) in self._seen:
            return
        self._seen.add((status.st_dev, status.st_ino))
        kind, _ = self._devices.get(_device(status), ("", ""))
        # A memfd is on a device without a major number, which is not in the mount table.
        if kind == "tmpfs" or (not kind and os.major(status.st_dev) == 0):
            self.memory_bytes += status.st_blocks * _BLOCK
        else:
            self.disk_bytes += status.st_blocks * _BLOCK

    def _take_system(self, device: str, place: str) -> None:
        """Only if the path leads to this device: another may be mounted over it, for example during set-up."""
        try:
            file = os.open(place, os.O_PATH)
        except OSError:
            return
        try:
            if _device(os.fstat(file)) == device:
                status = os.statvfs(file)
                self.memory_bytes += (status.f_blocks - status.f_bfree) * status.f_frsize
        except OSError:
            return
        finally:
            os.close(file)


def _threads_with_files(pid: int) -> Iterator[str]:
    """Threads of a process that have all of its open files: threads can have separate ones, and the first may have ended."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    found: list[int] = []
    for thread in map(int, threads):
        if not any(_share_files(thread, other) for other in found[:_MAX_COMPARED]):
            found.append(thread)
            yield f"{pid}/task/{thread}"


def _share_files(thread: int, other: int) -> bool:
    """False if the system cannot tell: then the files of both are looked at."""
    return _KCMP is not None and ctypes.pythonapi.syscall(_KCMP, thread, other, _KCMP_FILES, 0, 0) == 0


def _device(status: os.stat_result) -> str:
    """As in the mount table."""
    return f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"


def _devices(pid: str) -> dict[str, tuple[str, str]]:
    """The mounts of a process, by device: type and path."""
    try:
        lines = _read(f"/proc/{pid}/mountinfo").decode(errors="replace").splitlines()
    except OSError:
        return {}
    mounts = (line.split() for line in lines)
    return {fields[2]: (fields[fields.index("-") + 1], fields[4]) for fields in mounts}


class Walk:
    """Disk usage of folders, counted in steps of bounded time.

    An engine may swap folders meanwhile. So each is opened relative to the one that listed it, without following a link,
    and is entered only if it is the one that was listed.
    """

    def __init__(self, folders: Iterable[bytes]) -> None:
        self.used = 0
        self.cost_sec = 0.0
        self.blind = False
        """Whether there are folders that cannot be read: not permitted, or nested too deep for a path."""
        self._pending: list[tuple[bytes, os.stat_result | None]] = [(folder, None) for folder in folders]
        self._open: Scanning | None = None
        self._trail: list[tuple[bytes, int]] = []
        """The folder that was opened last, and some of those above it."""
        self._listed: dict[bytes, os.stat_result | None] = {}
        """What that folder, and all above it, were when they were listed."""

    def step(self, seconds: float, limit: float) -> bool:
        """Continue counting. True when all is counted, or more than `limit`."""
        began = time.monotonic()
        while (now := time.monotonic()) < began + seconds:
            if not self._some() or self.used > limit:
                self.cost_sec += now - began
                self.close()
                return True
        self.cost_sec += now - began
        return False

    def _some(self) -> bool:
        """Count a hundred entries. False if there are no more."""
        for _ in range(100):
            entry = self._next()
            if entry is None:
                return False
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                self.blind |= error.errno not in _GONE
                continue
            self._take(os.fsencode(entry.name), status)
        return True

    def _next(self) -> os.DirEntry[str] | None:
        while True:
            if self._open is None:
                if not self._pending:
                    return None
                try:
                    self._open = os.scandir(self._enter(*self._pending.pop()))
                except OSError as error:
                    self.blind |= error.errno not in _GONE
                    continue
            try:
                if (entry := next(self._open, None)) is not None:
                    return entry
            except OSError:
                pass
            self._close()

    def _enter(self, path: bytes, status: os.stat_result | None) -> int:
        """Open a folder. The number of open ones is bounded; those above it that were closed are opened again."""
        if len(path) > _MAX_PATH:
            raise OSError(errno.ENAMETOOLONG, "too deep")
        while self._trail and not _is_within(path, self._trail[-1][0]):
            os.close(self._trail.pop()[1])
        while self._listed and not _is_within(path, next(reversed(self._listed))):
            self._listed.popitem()
        self._listed[path] = status
        if not self._trail:
            self._trail.append((path, os.open(path, _FOLDER)))
        at, folder = self._trail[-1]
        for name in path[len(at) :].split(b"/")[1:]:
            at += b"/" + name
            folder = _open_listed(folder, name, self._listed[at])
            self._trail.append((at, folder))
            if len(self._trail) > _MAX_OPEN:
                os.close(self._trail.pop(1)[1])
        return folder

    def close(self) -> None:
        self._close()
        while self._trail:
            os.close(self._trail.pop()[1])

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _take(self, name: bytes, status: os.stat_result) -> None:
        if modes.S_ISDIR(status.st_mode):
            self._pending.append((self._trail[-1][0] + b"/" + name, status))
        # A hard link counts like a file: a copy of the folder has each name and its content.
        self.used += status.st_blocks * _BLOCK + ENTRY_BYTES + len(self._trail[-1][0]) + len(name)


def _is_within(path: bytes, above: bytes) -> bool:
    return path == above or path.startswith(above + b"/")


def _open_listed(above: int, name: bytes, listed: os.stat_result | None) -> int:
    """Open a folder that was listed in an open folder. Raises `OSError` for anything else in its place."""
    folder = os.open(name, _FOLDER, dir_fd=above)
    status = os.fstat(folder)
    if listed is None or (status.st_dev, status.st_ino) != (listed.st_dev, listed.st_ino):
        os.close(folder)
        raise OSError(errno.ESTALE, "replaced")
    return folder


def free_bytes(folder: bytes) -> float:
    """Infinite if it is unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return float("inf")
    return status.f_bavail * status.f_frsize


def _sized(text: bytes, name: bytes) -> int:
    """A figure in kB from a file with lines of the form `Name: figure kB`."""
    start = text.find(b"\n" + name)
    return 0 if start < 0 else int(text[start + 1 + len(name) :].split(None, 1)[0]) * _KB


def _read(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(file, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)
