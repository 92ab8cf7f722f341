"""The artifacts in a folder: listed page by page, and downloaded as one zip.

Only regular files inside the folder count, whatever links the engine created there. An engine can make a hundred thousand
files with paths of 4,096 characters each, so lists bound the characters as well as the files.
"""

from __future__ import annotations

import re
import stat
import threading
import unicodedata
import zipfile
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, cast

import msgspec

from askback.background.pools import Checkpoint, Pool, unchecked
from askback.core.errors import Invalid, RefusalCode, raise_if_temporary
from askback.fs.walk import FileState, TreeTooLarge, open_tree
from askback.text.json_text import is_encodable

ARTIFACTS_DIR = "artifacts"
MAX_LISTED = 100_000
"""How many files of one folder are listed."""
MAX_NAMES = 16_000_000
"""Characters of all paths in a list: an engine can give each file a path of 4,096. Files after those are left out."""
_MAX_BUNDLED = 50_000
_CHUNK = 1 << 20
_FILES_PER_PIECE = 64
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\\:*?\"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Not allowed in a zip: separators and drives of other systems, control characters, and bidirectional controls."""
PAGE_FILES = 10_000
PAGE_NAMES = 1_000_000
"""Characters of the paths on one page."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    size: int
    modified_ns: int
    changed_ns: int = 0
    """Which nobody can set, unlike `modified_ns`."""
    digest: str = ""
    """Of its content; empty if the content is not stored for every machine."""
    turn: int | None = None
    """The turn that changed it last, if that is known."""
    comparable: bool = False
    """Whether two versions of it can be compared."""

    @property
    def state(self) -> FileState:
        return FileState(self.size, self.modified_ns, self.changed_ns)


def artifacts_in(cwd: Path, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
    """The files below `artifacts/` of a working directory. Raises `TreeTooLarge` after some of them."""
    with suppress(FileNotFoundError, NotADirectoryError, PermissionError), open_tree(cwd, ARTIFACTS_DIR) as tree:
        # The list must not end early because descriptors or memory are short: files that it lacks would count as removed.
        for folder in tree.walk(failed=lambda path, error: raise_if_temporary(error)):
            checkpoint()
            with suppress(PermissionError):
                for name, status in folder.sorted_entries(MAX_LISTED):
                    path, modified_ns, changed_ns = folder.place(name), status.st_mtime_ns, status.st_ctime_ns
                    if stat.S_ISDIR(status.st_mode):
                        folder.descend(name, status)
                    elif stat.S_ISREG(status.st_mode) and is_encodable(path):
                        yield Artifact(path=path, size=status.st_size, modified_ns=modified_ns, changed_ns=changed_ns)


class Bundle:
    """Files as one zip, created piece by piece. A file that was removed in the meantime is skipped."""

    def __init__(self, files: Iterable[tuple[str, int]], opened: Callable[[str], BinaryIO | None]) -> None:
        """`files`: path and size of each. No more of a file is read than its size."""
        self._shown: Callable[[str], str] = str
        self._pieces = _zipped(files, opened, lambda path: self._shown(path))
        self._lock = threading.Lock()

    def with_names(self, shown: Callable[[str], str] | None) -> Self:
        """The same files under the names that `shown` makes of their paths."""
        self._shown = shown or str
        return self

    def next_piece(self) -> bytes | None:
        """The next bytes, possibly empty; None at the end. Takes a fraction of a second, whatever the files are."""
        with self._lock:
            return next(self._pieces, None)

    def close(self) -> None:
        """Close all files. Waits for a piece that another thread is creating."""
        with self._lock:
            self._pieces.close()

    async def pieces(self, pool: Pool) -> AsyncGenerator[bytes]:
        """No thread is held between pieces, so a slow or lost client does not occupy one."""
        try:
            while (piece := await pool.run(self.next_piece, admitted=True)) is not None:
                if piece:
                    yield piece
        finally:
            pool.post(self.close)


def bundle_of(artifacts: Iterable[Artifact], opened: Callable[[str], BinaryIO | None], max_bytes: int) -> Bundle:
    """All artifacts as one zip. A sparse file counts with its full length, because all of it is read."""
    found: list[tuple[str, int]] = []
    total = names = 0
    try:
        for each in artifacts:
            found.append((each.path, each.size))
            total += each.size
            names += len(each.path)
            if total > max_bytes or len(found) > _MAX_BUNDLED or names > MAX_NAMES:
                limit = f"{max_bytes} bytes, {_MAX_BUNDLED} files or {MAX_NAMES} characters of paths"
                raise TreeTooLarge(f"the run's files are more than {limit}")
    except TreeTooLarge as error:
        raise Invalid(RefusalCode.BUNDLE_TOO_LARGE, f"{error}; download them one by one") from None
    return Bundle(found, opened)


class _Sink:
    """Collects what was written since the last `take`."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Nothing is buffered."""

    def take(self) -> bytes:
        taken = bytes(self._written)
        self._written.clear()
        return taken


def _zipped(
    files: Iterable[tuple[str, int]], opened: Callable[[str], BinaryIO | None], shown: Callable[[str], str]
) -> Generator[bytes]:
    sink, entry_names = _Sink(), EntryNames()
    with zipfile.ZipFile(cast(BinaryIO, sink), "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (path, size) in enumerate(files, start=1):
            source = opened(path)
            if source is not None:
                for _ in _added(archive, entry_names.add(shown(path)), source, size):
                    yield sink.take()
            if number % _FILES_PER_PIECE == 0:
                yield sink.take()
    yield sink.take()


class EntryNames:
    """Names for the entries of one archive, without characters that some system treats specially.

    No name is that of another entry or of its folder, also where upper and lower case are the same.
    """

    def __init__(self) -> None:
        self._files: set[int] = set()
        self._folders: set[int] = set()
        self._last: dict[str, int] = {}
        """The last number that was tried for a name: many files may have the same one."""

    def add(self, path: str) -> str:
        name = clean = _UNFIT.sub("_", path)
        *folders, file = _places(name)
        while file in self._files or file in self._folders or not self._files.isdisjoint(folders):
            self._last[clean] = number = self._last.get(clean, 1) + 1
            first, slash, rest = clean.partition("/")
            # A file that has the name of the folder stays in the way of every name in that folder.
            is_below_file = not self._files.isdisjoint(folders)
            name = f"{first}~{number}{slash}{rest}" if is_below_file else f"{clean}~{number}"
            *folders, file = _places(name)
        self._files.add(file)
        self._folders.update(folders)
        return name


def _places(name: str) -> Iterator[int]:
    """The folders of an entry and the entry itself, as hashes: a path may have thousands of folders.

    Names that some file system does not distinguish have the same places.
    """
    place = 0
    for part in unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).split("/"):
        place = hash((place, part))
        yield place


def _added(archive: zipfile.ZipFile, path: str, source: BinaryIO, size: int) -> Iterator[None]:
    """Up to the size when it was listed: a file that an engine keeps writing to would never end."""
    with source, archive.open(path, "w", force_zip64=True) as entry:
        left = size
        while left > 0 and (chunk := source.read(min(left, _CHUNK))):
            left -= len(chunk)
            entry.write(chunk)
            if left > 0:
                yield


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactPage:
    """Some artifacts, and the number of those up to its end if there are further ones."""

    items: Sequence[Artifact]
    end: int | None


def bounded(artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
    """As many of them as are listed."""
    files, names = MAX_LISTED, MAX_NAMES
    with suppress(TreeTooLarge):
        for each in artifacts:
            files, names = files - 1, names - len(each.path)
            if files < 0 or names < 0:
                return
            yield each


def page_of(artifacts: Iterable[Artifact], after: int, limit: int, max_names: int = PAGE_NAMES) -> ArtifactPage:
    """The artifacts after the first `after`: at most `limit`, and fewer if their paths are long."""
    items: list[Artifact] = []
    for number, each in enumerate(artifacts):
        if number < after:
            continue
        max_names -= len(each.path)
        if len(items) >= limit or (max_names < 0 and items):
            return ArtifactPage(items=items, end=number)
        items.append(each)
    return ArtifactPage(items=items, end=None)
