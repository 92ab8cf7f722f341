"""The artifacts of a run at the end of each turn, stored for every machine.

runs/RUN/artifacts/TURN.json       the files at the end of the turn, with the versions of each
runs/RUN/contents/DIGEST           the content of a file, by its SHA-256; one that did not change is not stored again
runs/RUN/turns/TURN.tar.zst        the prompt and the raw output of the turn, which no program reads again

On the machine that executes a turn, and on the one that executed the last turn, the files in its folder are shown.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from askback.background.pools import Checkpoint, unchecked
from askback.blobs.base import FileMissing
from askback.fs import beneath
from askback.fs.atomic import write_private
from askback.fs.copies import write_or_skip
from askback.fs.regular import open_below
from askback.process.locks import is_held
from askback.process.tree import boot_id
from askback.workspace.artifacts import MAX_LISTED, MAX_NAMES, Artifact, Bundle, bundle_of
from askback.workspace.layout import Workspace
from askback.workspace.run_objects import StoredRun
from askback.workspace.versions import MAX_FILE, Index, Version, Versions, text_of

MAX_STORED = 20_000_000_000
"""Bytes of all artifacts. A hole counts like data, because all of a file is read."""
_MAX_NAMES = MAX_NAMES
_LIST = re.compile(r"(\d+)-(\d+)\.json")
_MAX_LIST = 200_000_000
_IN_MEMORY = 8 << 20
_AT_ONCE = 8
_NOTE = "stored-turn"
"""In the folder of the run: the name of the turn whose end is stored, and equal to the files here, which are not synced. So it
counts only until the machine restarts, as the note in `workspace/archives.py` does."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    modified_ns: int
    digest: str
    changed_ns: int = 0
    """Which nobody can set, unlike `modified_ns`."""

    def is_of(self, artifact: Artifact) -> bool:
        now = (artifact.size, artifact.modified_ns, artifact.changed_ns)
        return (self.size, self.modified_ns, self.changed_ns) == now


class _List(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[_File, ...] = ()
    versions: dict[str, tuple[Version, ...]] = {}


class ArtifactsHere:
    """The artifacts in the folder of the run."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._versions = Versions(workspace)

    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
        return self._workspace.artifacts(checkpoint)

    def open(self, path: str) -> BinaryIO | None:
        return self._workspace.open_artifact(path)

    def index(self) -> Index:
        return self._versions.index()

    def text(self, version: Version | None) -> str | None:
        return self._versions.text(version)

    def text_now(self, path: str) -> str | None:
        return self._versions.text_now(path)

    def bundle(self, max_bytes: int, checkpoint: Checkpoint = unchecked) -> Bundle:
        return self._workspace.bundle(max_bytes, checkpoint)


class StoredArtifacts:
    """The artifacts as they were at the end of a turn."""

    def __init__(self, stored: StoredRun, kept: _List) -> None:
        self._stored = stored
        self._kept = kept
        self._by_path = {each.path: each for each in kept.files}

    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
        for each in self._kept.files:
            yield Artifact(path=each.path, size=each.size, modified_ns=each.modified_ns)

    def open(self, path: str) -> BinaryIO | None:
        found = self._by_path.get(path)
        if found is None:
            return None
        try:
            return self._stored.open(_content(found.digest))
        except FileMissing:
            return None

    def index(self) -> Index:
        return self._kept.versions

    def text(self, version: Version | None) -> str | None:
        return stored_text(self._stored, version)

    def text_now(self, path: str) -> str | None:
        file = self.open(path)
        if file is None:
            return ""
        with file:
            content = file.read(MAX_FILE + 1)
        return text_of(content) if len(content) <= MAX_FILE else None

    def bundle(self, max_bytes: int, checkpoint: Checkpoint = unchecked) -> Bundle:
        return bundle_of(self.artifacts(checkpoint), self.open, max_bytes)


RunArtifacts = ArtifactsHere | StoredArtifacts


def artifacts_of(workspace: Workspace) -> RunArtifacts:
    """Those in the folder of the run, unless another machine has stored newer ones."""
    stored = workspace.stored
    if stored is None or is_held(workspace.lock_path):
        return ArtifactsHere(workspace)
    newest = _newest(stored)
    if newest is None or newest == _noted(workspace):
        return ArtifactsHere(workspace)
    return StoredArtifacts(stored, _read(stored, newest))


def has_artifacts_of(workspace: Workspace) -> bool:
    """Whether this machine or the file store can know the artifacts of a run whose last turn may not be stored."""
    stored = workspace.stored
    return stored is None or workspace.root.is_dir() or _newest(stored) is not None


def stored_text(stored: StoredRun, version: Version | None) -> str | None:
    """As `Versions.text`, of the stored contents."""
    if version is None or version.removed:
        return ""
    if not version.kept or version.digest is None:
        return None
    try:
        return text_of(stored.get(_content(version.digest), MAX_FILE))
    except FileMissing:
        return None


# At the end of a turn.


def keep_artifacts(
    workspace: Workspace, turn: str, *, max_bytes: int = MAX_STORED, checkpoint: Checkpoint = unchecked
) -> int:
    """Store the artifacts and the raw output of a turn. `turn` is its name, such as `002-003`: number and epoch.

    Returns how many files were left out, because all together have more than `max_bytes`, or too long paths.
    """
    stored = workspace.stored
    if stored is None:
        return 0
    _keep_raw_output(stored, workspace, turn)
    versions = Versions(workspace)
    if versions.is_empty():
        return 0
    newest = _newest(stored)
    before = _List() if newest is None else _read(stored, newest)
    fitting, left_out = _fitting(itertools.islice(workspace.artifacts(checkpoint), MAX_LISTED), max_bytes)
    with _folder_of_copies(workspace) as copies, ThreadPoolExecutor(_AT_ONCE) as pool:
        keeping = _Keeping(stored, workspace, before, copies, checkpoint)
        files = tuple(each for each in pool.map(keeping.keep, fitting) if each is not None)
    made = _List(files=files, versions=dict(_listed(versions.index())))
    stored.put(f"artifacts/{turn}.json", msgspec.json.encode(made), replace=True)
    write_private(workspace.root / _NOTE, f"{boot_id()} {turn}".encode())
    return left_out


def _fitting(artifacts: Iterable[Artifact], max_bytes: int) -> tuple[list[Artifact], int]:
    """The files that are stored, and how many are not. An engine can make files that are much longer than its disk: they
    consist of holes."""
    names, fitting, left_out = _MAX_NAMES, [], 0
    for each in artifacts:
        if each.size <= max_bytes and len(each.path) <= names:
            max_bytes -= each.size
            names -= len(each.path)
            fitting.append(each)
        else:
            left_out += 1
    return fitting, left_out


def _listed(index: Index) -> Iterator[tuple[str, tuple[Version, ...]]]:
    names = _MAX_NAMES
    for path, versions in index.items():
        if len(path) <= names:
            names -= len(path)
            yield path, versions


@contextmanager
def _folder_of_copies(workspace: Workspace) -> Iterator[Path]:
    """Beside the engine's folders, where a sandboxed engine cannot write. Work that was abandoned may not have ended yet."""
    beneath.make_folder(workspace.root, workspace.storing.name)
    try:
        with tempfile.TemporaryDirectory(dir=workspace.storing) as folder:
            yield Path(folder)
    finally:
        with suppress(OSError):
            workspace.storing.rmdir()


def keep_earlier(workspace: Workspace, turn: str) -> None:
    """Store what a run has left that ended before its files were stored; a list in any case, so that all know it."""
    stored = workspace.stored
    if stored is None or _newest(stored) == turn:
        return
    for name in sorted({Path(path).name.partition(".")[0] for path in workspace.raw_output("*-*")}):
        _keep_raw_output(stored, workspace, name)
    keep_artifacts(workspace, turn)
    if _newest(stored) is None:
        stored.put(f"artifacts/{turn}.json", msgspec.json.encode(_List()), replace=True)


class _Keeping:
    """Stores the contents that are not stored yet. Its methods are called in several threads."""

    def __init__(
        self, stored: StoredRun, workspace: Workspace, before: _List, copies: Path, checkpoint: Checkpoint
    ) -> None:
        self._stored = stored
        self._workspace = workspace
        self._copies = copies
        self._checkpoint = checkpoint
        self._known = {each.path: each for each in before.files}
        self._digests = {each.digest for each in before.files}

    def keep(self, artifact: Artifact) -> _File | None:
        """None if the file was removed meanwhile."""
        self._checkpoint()
        known = self._known.get(artifact.path)
        if known is not None and known.is_of(artifact):
            return known
        file = self._workspace.open_artifact(artifact.path)
        if file is None:
            return None
        with file:
            size, digest = self._store(file, artifact.size)
        return _File(
            path=artifact.path,
            size=size,
            modified_ns=artifact.modified_ns,
            changed_ns=artifact.changed_ns,
            digest=digest,
        )

    def _store(self, file: BinaryIO, size: int) -> tuple[int, str]:
        """At most `size` bytes: a resident process may still write."""
        if size <= _IN_MEMORY:
            content = file.read(size)
            digest = hashlib.sha256(content).hexdigest()
            self._put(digest, content)
            return len(content), digest
        whole, left = hashlib.sha256(), size
        with tempfile.NamedTemporaryFile(dir=self._copies) as copy:
            while left and (piece := file.read(min(left, 1 << 20))):
                self._checkpoint()
                whole.update(piece)
                write_or_skip(copy, piece)
                left -= len(piece)
            copy.truncate()
            copy.flush()
            digest = whole.hexdigest()
            self._put(digest, Path(copy.name))
        return size - left, digest

    def _put(self, digest: str, content: bytes | Path) -> None:
        if digest not in self._digests:
            self._stored.put(_content(digest), content)
            self._digests.add(digest)


def _keep_raw_output(stored: StoredRun, workspace: Workspace, turn: str) -> None:
    import zstandard

    paths = workspace.raw_output(turn)
    if not paths:
        return
    with tempfile.NamedTemporaryFile(prefix="askback-turn-") as packed:
        with (
            zstandard.ZstdCompressor(level=1).stream_writer(packed, closefd=False) as compressed,
            tarfile.open(fileobj=compressed, mode="w|") as archive,
        ):
            for path in paths:
                if (file := open_below(workspace.root, path)) is not None:
                    with file:
                        archive.addfile(archive.gettarinfo(arcname=Path(path).name, fileobj=file), file)
        packed.flush()
        stored.put(f"turns/{turn}.tar.zst", Path(packed.name), replace=True)


# Lists.


def _content(digest: str) -> str:
    return f"contents/{digest}"


def _newest(stored: StoredRun) -> str | None:
    """The name of the last turn whose end is stored. After a restart, that of the higher epoch."""
    names = [found for name in stored.names("artifacts") if (found := _LIST.fullmatch(name))]
    last = max(names, key=lambda found: (int(found[1]), int(found[2])), default=None)
    return None if last is None else last[0].removesuffix(".json")


def _noted(workspace: Workspace) -> str | None:
    try:
        boot, _, turn = (workspace.root / _NOTE).read_text().partition(" ")
    except (OSError, ValueError):
        return None
    return turn if boot == boot_id() else None


def _read(stored: StoredRun, name: str) -> _List:
    try:
        return msgspec.json.decode(stored.get(f"artifacts/{name}.json", _MAX_LIST), type=_List)
    except (FileMissing, msgspec.MsgspecError, UnicodeDecodeError):
        # The run is being deleted.
        return _List()
