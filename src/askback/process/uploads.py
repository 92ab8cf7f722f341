"""Files that callers sent ahead of the run that will use them."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from askback.core.errors import NotFound, RefusalCode
from askback.process.listing import remove_tree

_ID = re.compile(r"up-[0-9a-f]{24}", re.ASCII)
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f/\\:*?\"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Separators, what some file system forbids, control characters, and those that turn the direction of a line."""
_LONGEST_NAME_BYTES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    upload_id: str
    name: str
    size: int


class Uploads:
    """Each in a folder of its own, under the name it came with, as far as that is a name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, name: str, source: BinaryIO) -> Upload:
        upload_id = f"up-{secrets.token_hex(12)}"
        partial = self._root / f".{upload_id}"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.mkdir(mode=0o700)
        try:
            with (partial / safe_name(name)).open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                size = target.tell()
                target.flush()
                os.fsync(target.fileno())
            partial.rename(self._root / upload_id)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return Upload(upload_id=upload_id, name=safe_name(name), size=size)

    def path(self, upload_id: str) -> Path:
        if _ID.fullmatch(upload_id):
            # It may be swept away while we look.
            with suppress(FileNotFoundError):
                for file in (self._root / upload_id).iterdir():
                    return file
        raise NotFound(RefusalCode.UPLOAD_NOT_FOUND, "there is no such upload; send the file to /v1/uploads first")

    def sweep(self, older_than_sec: float) -> int:
        """Remove what has lain here for so long; a run copies what it takes."""
        removed = 0
        with suppress(FileNotFoundError):
            for folder in self._root.iterdir():
                with suppress(FileNotFoundError):
                    if time.time() - folder.lstat().st_mtime > older_than_sec:
                        remove_tree(folder)
                        removed += 1
        return removed


def safe_name(name: str) -> str:
    """A file's own name: no folders, nothing hidden, nothing that some file system forbids."""
    last = re.split(r"[/\\]", name)[-1]
    clean = _UNFIT.sub("_", last).strip(". \t") or "file"
    if len(clean.encode()) <= _LONGEST_NAME_BYTES:
        return clean
    stem, dot, ending = clean.rpartition(".")
    short = (stem or clean)[:25] + (dot + ending[:4] if dot else "")
    return short.strip(". ") or "file"
