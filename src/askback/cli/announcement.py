"""The server that runs on a data folder, as it tells commands on the same machine: a file that is locked while it runs.

The lock proves that it lives: a server that was killed leaves its file behind, but not its lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from askback.process.locks import FileLock, is_held

FILE_NAME = "server.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    url: str
    pid: int
    token_path: str | None
    """None: the token stands in the settings."""


@contextmanager
def announced(data_dir: Path, url: str, token_path: Path | None) -> Iterator[None]:
    """Tell of a server for as long as the block lasts; of two on one folder the first is told."""
    lock = FileLock.take(data_dir / FILE_NAME)
    if lock is None:
        yield
        return
    told = Announcement(url=url, pid=os.getpid(), token_path=None if token_path is None else str(token_path))
    try:
        os.ftruncate(lock.fd, 0)
        os.write(lock.fd, json.dumps(asdict(told)).encode())
        yield
    finally:
        lock.path.unlink(missing_ok=True)
        lock.release()


def read(data_dir: Path) -> Announcement | None:
    """The server that runs on this folder now, if one does."""
    path = data_dir / FILE_NAME
    try:
        return Announcement(**json.loads(path.read_text())) if is_held(path) else None
    except (OSError, ValueError, TypeError):
        # No file, or one that is just being written.
        return None
