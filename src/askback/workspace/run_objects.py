"""The objects of one run in the file store, which every machine can read.

runs/RUN/inputs/PLACE/about.json   the path of an input file in the working directory; PLACE is a digest of that path
runs/RUN/inputs/PLACE/content      the file
runs/RUN/package.tar.zst           the skill package that was uploaded for the run
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from askback.blobs.base import FileMissing, Files
from askback.core.errors import RefusalCode, Unavailable
from askback.core.runs import parse_run_id

_ABOUT = "about.json"
_CONTENT = "content"
_MAX_ABOUT = 100_000


def uploaded_package_key(run_id: str) -> str:
    """Where the skill package is that was uploaded for a run."""
    return f"runs/{parse_run_id(run_id)}/package.tar.zst"


class FilesElsewhere(Unavailable):
    """A run ended before its files were stored, and this is not its machine."""

    def __init__(self, run_id: str) -> None:
        message = (
            f"run {run_id} ended before `files` was set, and its artifacts are only on the machine that executed it; a"
            " server or worker with `files` on the data folder of that machine stores them"
        )
        super().__init__(RefusalCode.FILES_UNAVAILABLE, message)


class _Input(msgspec.Struct, frozen=True, kw_only=True):
    path: str


class RunObjects:
    """Every method waits for the store, and raises `Unavailable` if it cannot be used."""

    def __init__(self, files: Files, run_id: str) -> None:
        self._files = files
        self._folder = f"runs/{parse_run_id(run_id)}"

    def remove(self) -> None:
        """Remove everything that is stored for the run."""
        self._files.delete([each.key for each in self._files.list(f"{self._folder}/")])

    def put(self, name: str, content: bytes | Path, *, replace: bool = False) -> None:
        self._files.put(f"{self._folder}/{name}", content, replace=replace)

    def get(self, name: str, max_bytes: int) -> bytes:
        """Raises `FileMissing`."""
        return self._files.get(f"{self._folder}/{name}", max_bytes)

    def open(self, name: str) -> BinaryIO:
        """Raises `FileMissing`."""
        return self._files.open(f"{self._folder}/{name}")

    def names(self, folder: str) -> Sequence[str]:
        """The names below a folder of the run."""
        start = f"{self._folder}/{folder}/"
        return [each.key.removeprefix(start) for each in self._files.list(start)]

    # Inputs.

    def add_input(self, path: str, source: Path) -> None:
        """Store a file that the next turn finds at this path of the working directory."""
        place = self._input_place(path)
        self._files.put(f"{place}/{_CONTENT}", source)
        # Last: an input without it does not exist.
        self._files.put(f"{place}/{_ABOUT}", msgspec.json.encode(_Input(path=path)))

    def drop_inputs(self, paths: list[str]) -> None:
        names = (_ABOUT, _CONTENT)
        self._files.delete([f"{self._input_place(path)}/{name}" for path in paths for name in names])

    def fetch_inputs(self, is_here: Callable[[str], bool], put_here: Callable[[Path, str], None]) -> None:
        """Fetch the inputs that are not on this machine."""
        for each in self._files.list(f"{self._folder}/inputs/"):
            if each.key.endswith(f"/{_ABOUT}"):
                path = msgspec.json.decode(self._files.get(each.key, _MAX_ABOUT), type=_Input).path
                if not is_here(path):
                    self._fetch_input(path, put_here)

    def _fetch_input(self, path: str, put_here: Callable[[Path, str], None]) -> None:
        with tempfile.TemporaryDirectory(prefix="askback-input-") as folder:
            fetched = Path(folder, _CONTENT)
            try:
                self._files.fetch(f"{self._input_place(path)}/{_CONTENT}", fetched)
            except FileMissing:
                # It was dropped at this moment.
                return
            put_here(fetched, path)

    def _input_place(self, path: str) -> str:
        return f"{self._folder}/inputs/{hashlib.sha256(path.encode()).hexdigest()[:32]}"
