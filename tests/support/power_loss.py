"""What a power failure would leave: the writes and syncs of a server, as strace saw them, in their order.

A file survives if it was synced after its last write, and so was every folder that got a new name on the path to it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.program import DEADLINE_SEC

_CALLS = (
    "openat,creat,write,writev,pwrite64,ftruncate,copy_file_range,sendfile,sendto,sendmsg,fsync,fdatasync,syncfs,sync,"
    "rename,renameat,renameat2,link,linkat,mkdir,mkdirat"
)
_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)(?:<(.*?)>)?")
_RESUMED = re.compile(r"^<\.\.\. \w+ resumed>(.*)$")
_UNFINISHED = " <unfinished ...>"
_OPENED = re.compile(r"^(?:\w+|\d+)<([^>]*)>")
_PATHS = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    name: str
    words: str
    opened: str
    """The path of the descriptor that it returned."""

    @property
    def file(self) -> str:
        """The path of the descriptor that it was given."""
        found = _OPENED.match(self.words)
        return "" if found is None else found[1]

    @property
    def paths(self) -> list[str]:
        return [
            f"{base}/{name}" if base and not name.startswith("/") else name for base, name in _PATHS.findall(self.words)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    calls: Sequence[Call]

    def lost(self, path: Path, *needles: str) -> set[str]:
        """What of a file and of the path to it would be lost when the row with these texts is first sent to the database."""
        return _unsynced(self.calls[: self.stored_at(*needles)], str(path))

    def stored_at(self, *needles: str) -> int:
        """When these texts were first sent to the database: to the log of SQLite, or to PostgreSQL."""
        for place, call in enumerate(self.calls):
            to_log = call.name == "pwrite64" and call.file.endswith("askback.db-wal")
            to_server = call.name in ("sendto", "write") and "socket" in call.file and "HTTP/1" not in call.words
            if (to_log or to_server) and all(needle in call.words for needle in needles):
                return place
        raise AssertionError(f"nothing with {needles} was sent to the database")

    def written_at(self, name: str) -> int:
        """When a file with this name got it."""
        return max(at for at, call in enumerate(self.calls) if "rename" in call.name and call.paths[-1].endswith(name))

    def syncs(self, start: int, end: int) -> int:
        """How often the whole file system was synced."""
        return sum(call.name == "syncfs" for call in self.calls[start:end])


def _unsynced(calls: Sequence[Call], path: str) -> set[str]:
    lost: set[str] = set()
    above = {path, *map(str, Path(path).parents)}
    for call in calls:
        match call.name:
            case "syncfs" | "sync":
                lost.clear()
            case "fsync" | "fdatasync":
                lost -= {f"content of {call.file}"} | {
                    f"name of {each}" for each in above if _folder(each) == call.file
                }
            case "openat" | "creat" if "O_CREAT" in call.words or call.name == "creat":
                lost |= {f"name of {call.opened}", f"content of {call.opened}"}
            case "mkdir" | "mkdirat":
                lost.add(f"name of {call.paths[-1]}")
            case "rename" | "renameat" | "renameat2" | "link" | "linkat":
                old, new = call.paths[:2]
                lost = {_renamed(each, old, new) for each in lost} | {f"name of {new}"}
            case "write" | "writev" | "pwrite64" | "ftruncate" | "copy_file_range" | "sendfile":
                lost.add(f"content of {call.file}")
    return {each for each in lost if each == f"content of {path}" or each.removeprefix("name of ") in above}


def _folder(path: str) -> str:
    return str(Path(path).parent)


def _renamed(lost: str, old: str, new: str) -> str:
    kind, _, path = lost.partition(" of ")
    inside = path == old or path.startswith(f"{old}/")
    return f"{kind} of {new}{path[len(old) :]}" if inside else lost


@contextmanager
def traced(pid: int, folder: Path) -> Iterator[list[Trace]]:
    """Trace all threads of a process. The list has the trace after the block."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    out, traces = folder / "trace", list[Trace]()
    words = ["strace", "-f", "-y", "-s", "100000", "-e", f"trace={_CALLS}", "-o", str(out), "-p", str(pid)]
    strace = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _wait_until_attached(strace, pid)
        yield traces
    finally:
        strace.terminate()
        strace.communicate()
    traces.append(Trace(calls=list(_calls(out.read_text(errors="replace").splitlines()))))


def _wait_until_attached(strace: subprocess.Popen[str], pid: int) -> None:
    end = time.monotonic() + DEADLINE_SEC
    while any("TracerPid:\t0\n" in each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/status")):
        if strace.poll() is not None:
            pytest.skip(f"strace cannot attach: {strace.communicate()[1].strip()}")
        assert time.monotonic() < end, "strace does not attach"
        time.sleep(0.01)


def _calls(lines: Sequence[str]) -> Iterator[Call]:
    """At the time when each call had returned."""
    unfinished: dict[str, str] = {}
    for line in lines:
        if (found := _LINE.match(line)) is None:
            continue
        thread, text = found[1], found[2]
        if text.endswith(_UNFINISHED):
            unfinished[thread] = text.removesuffix(_UNFINISHED)
            continue
        if (resumed := _RESUMED.match(text)) is not None:
            text = unfinished.pop(thread, "") + resumed[1]
        call = _CALL.match(text)
        if call is not None and int(call[3]) >= 0:
            yield Call(name=call[1], words=call[2], opened=call[4] or "")
