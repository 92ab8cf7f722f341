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
from askback.fs.paths import open_below
from askback.fs.walk import TreeTooLarge
from askback.process.locks import is_held
from askback.process.tree import boot_id
from askback.workspace.artifacts import MAX_LISTED, MAX_NAMES, Artifact
from askback.workspace.layout import Workspace
from askback.workspace.run_objects import RunObjects
from askback.workspace.versions import ArtifactView, Index, LocalArtifacts, Version, stored_content

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


class _List(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[Artifact, ...] = ()
    versions: dict[str, tuple[Version, ...]] = {}


class TurnArtifacts(ArtifactView):
    """The artifacts as they were at the end of a turn."""

    def __init__(self, objects: RunObjects, listed: _List) -> None:
        self._objects = objects
        self._listed = listed
        self._by_path = {each.path: each for each in listed.files}

    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
        yield from self._listed.files

    def open(self, path: str) -> BinaryIO | None:
        found = self._by_path.get(path)
        if found is None:
            return None
        try:
            return self._objects.open(f"contents/{found.digest}")
        except FileMissing:
            return None

    def index(self) -> Index:
        return self._listed.versions

    def content(self, digest: str) -> bytes | None:
        return stored_content(self._objects, digest)


def artifacts_of(workspace: Workspace) -> ArtifactView:
    """Those in the folder of the run, unless another machine has stored newer ones."""
    objects = workspace.objects
    if objects is None or is_held(workspace.lock_path):
        return LocalArtifacts(workspace)
    newest = _newest(objects)
    if newest is None or newest == _recorded_turn(workspace):
        return LocalArtifacts(workspace)
    return TurnArtifacts(objects, _read(objects, newest))


def has_artifacts_of(workspace: Workspace) -> bool:
    """Whether this machine or the file store can know the artifacts of a run whose last turn may not be stored."""
    objects = workspace.objects
    return objects is None or workspace.root.is_dir() or _newest(objects) is not None


# At the end of a turn.


def store_artifacts(
    workspace: Workspace, turn: str, *, max_bytes: int = MAX_STORED, checkpoint: Checkpoint = unchecked
) -> int:
    """Store the artifacts and the raw output of a turn. `turn` is its name, such as `002-003`: number and epoch.

    Returns how many files were left out, because all together have more than `max_bytes`, or too long paths.
    """
    objects = workspace.objects
    if objects is None:
        return 0
    _store_raw_output(objects, workspace, turn)
    local = LocalArtifacts(workspace)
    if local.is_empty():
        return 0
    newest = _newest(objects)
    before = _List() if newest is None else _read(objects, newest)
    fitting, left_out = _fitting(itertools.islice(workspace.artifacts(checkpoint), MAX_LISTED), max_bytes)
    with _folder_of_copies(workspace) as copies, ThreadPoolExecutor(_AT_ONCE) as pool:
        uploader = _ArtifactUploader(objects, workspace, before, copies, checkpoint)
        files = tuple(each for each in pool.map(uploader.upload, fitting) if each is not None)
    made = _List(files=files, versions=dict(_listed(local.index())))
    objects.put(f"artifacts/{turn}.json", msgspec.json.encode(made), replace=True)
    write_private(workspace.root / _NOTE, f"{boot_id()} {turn}".encode())
    return left_out


def _fitting(artifacts: Iterable[Artifact], max_bytes: int) -> tuple[list[Artifact], int]:
    """The files that are stored, and how many are not. An engine can make files that are much longer than its disk: they
    consist of holes."""
    names, fitting, left_out = _MAX_NAMES, [], 0
    try:
        for each in artifacts:
            if each.size <= max_bytes and len(each.path) <= names:
                max_bytes -= each.size
                names -= len(each.path)
                fitting.append(each)
            else:
                left_out += 1
    except TreeTooLarge:
        # Nobody knows how many more there are.
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


def store_earlier(workspace: Workspace, turn: str) -> None:
    """Store the files of a run that ended before they were stored. A list is stored in any case, for the other machines."""
    objects = workspace.objects
    if objects is None or _newest(objects) == turn:
        return
    for name in sorted({Path(path).name.partition(".")[0] for path in workspace.raw_output("*-*")}):
        _store_raw_output(objects, workspace, name)
    store_artifacts(workspace, turn)
    if _newest(objects) is None:
        objects.put(f"artifacts/{turn}.json", msgspec.json.encode(_List()), replace=True)


class _ArtifactUploader:
    """Stores the contents that are not stored yet. Its methods are called in several threads."""

    def __init__(
        self, objects: RunObjects, workspace: Workspace, before: _List, copies: Path, checkpoint: Checkpoint
    ) -> None:
        self._objects = objects
        self._workspace = workspace
        self._copies = copies
        self._checkpoint = checkpoint
        self._known = {each.path: each for each in before.files}
        self._digests = {each.digest for each in before.files}

    def upload(self, artifact: Artifact) -> Artifact | None:
        """None if the file was removed meanwhile."""
        self._checkpoint()
        known = self._known.get(artifact.path)
        if known is not None and known.state == artifact.state:
            return known
        file = self._workspace.open_artifact(artifact.path)
        if file is None:
            return None
        with file:
            size, digest = self._store(file, artifact.size)
        return msgspec.structs.replace(artifact, size=size, digest=digest)

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
            self._objects.put(f"contents/{digest}", content)
            self._digests.add(digest)


def _store_raw_output(objects: RunObjects, workspace: Workspace, turn: str) -> None:
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
        objects.put(f"turns/{turn}.tar.zst", Path(packed.name), replace=True)


# Lists.


def _newest(objects: RunObjects) -> str | None:
    """The name of the last turn whose end is stored. After a restart, that of the higher epoch."""
    names = [found for name in objects.names("artifacts") if (found := _LIST.fullmatch(name))]
    last = max(names, key=lambda found: (int(found[1]), int(found[2])), default=None)
    return None if last is None else last[0].removesuffix(".json")


def _recorded_turn(workspace: Workspace) -> str | None:
    try:
        boot, _, turn = (workspace.root / _NOTE).read_text().partition(" ")
    except (OSError, ValueError):
        return None
    return turn if boot == boot_id() else None


def _read(objects: RunObjects, name: str) -> _List:
    try:
        return msgspec.json.decode(objects.get(f"artifacts/{name}.json", _MAX_LIST), type=_List)
    except (FileMissing, msgspec.MsgspecError, UnicodeDecodeError):
        # The run is being deleted.
        return _List()
