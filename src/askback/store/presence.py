"""Whether the database files are still where they were opened.

SQLite writes on into a file that somebody removed or replaced: such writes succeed, and are gone with the program. So
every write and read looks first whether the names still lead to the files that were opened.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from askback.core.errors import RefusalCode, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    path: Path
    files: tuple[tuple[str, tuple[int, int]], ...]
    """Every file by its name, with the device and the number that it had when it was opened."""

    @classmethod
    def of(cls, path: Path) -> Presence:
        """Call it with the database open. The log and its index stay the same files for as long as it is."""
        names = [os.fspath(path) + suffix for suffix in ("", "-wal", "-shm")]
        found = [(name, _identity(name)) for name in names]
        return cls(path=path, files=tuple((name, known) for name, known in found if known is not None))

    def missing(self) -> str | None:
        """The first file that is gone or another one now."""
        return next((name for name, known in self.files if _identity(name) != known), None)

    def fault(self) -> Unavailable | None:
        name = self.missing()
        if name is None:
            return None
        what = "is gone" if not os.path.lexists(name) else "was replaced"
        message = (
            f"{name} {what}: it is not the file that this program opened, so nothing more is stored;"
            " stop every program on this data folder, put the file back or restore a backup, and start again"
        )
        return Unavailable(RefusalCode.STORE_UNUSABLE, message)

    @property
    def only_log_is_gone(self) -> bool:
        """What is in the log can still be moved into the database."""
        return self.missing() == f"{self.path}-wal" and not os.path.lexists(f"{self.path}-wal")


def _identity(name: str) -> tuple[int, int] | None:
    try:
        status = Path(name).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
