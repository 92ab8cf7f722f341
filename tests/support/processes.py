"""What the kernel says of other processes. One that ends while it is looked at is not there: nothing here raises for it."""

from __future__ import annotations

from pathlib import Path


def lives(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def running(name: str) -> set[int]:
    """The ids of all processes of a program."""
    pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid for pid in pids if _read(pid, "comm") == f"{name}\n"}


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name, which may have spaces and brackets: the state, the parent, and so on."""
    text = _read(pid, "stat")
    return None if text is None else text.rpartition(")")[2].split()


def _read(pid: int, name: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return None
