"""The versions of a run's artifacts: which turn changed each file, and what text files were at the end of a turn.

<run>/versions/index.json   the versions of every file
<run>/versions/DIGEST       the content of a text file, by its SHA-256

An engine without a sandbox can change this folder, so nothing that is read here is trusted.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import msgspec

from askback.background.pools import Checkpoint, unchecked
from askback.blobs.base import FileMissing
from askback.fs import beneath
from askback.fs.atomic import write_private
from askback.fs.paths import read_below
from askback.fs.walk import FileState, open_tree
from askback.workspace.artifacts import MAX_LISTED, MAX_NAMES, Artifact, Bundle, bundle_of, page_of
from askback.workspace.layout import Workspace
from askback.workspace.run_objects import RunObjects

MAX_FILE = 1_000_000
"""Larger files are not read: their versions have no digest and no content."""
MAX_CONTENTS = 50_000_000
"""Bytes of content that are stored for one run."""
MAX_VERSIONS = 100_000
"""Versions of all files of one run. Beyond it, the newest version of a file replaces the one before."""
MAX_READ = 100_000_000
"""Bytes that are read at the end of one turn."""
MAX_FILES_READ = 10_000
"""Files that are read at the end of one turn. The versions of further ones have no digest and no content."""
_MAX_INDEX = 100_000_000
_FOLDER = "versions"
_INDEX = f"{_FOLDER}/index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A file as it was at the end of a turn."""

    turn: int
    size: int
    modified_ns: int
    digest: str | None = None
    kept: bool = False
    """Whether the content is stored."""
    removed: bool = False
    """Whether the file no longer existed."""

    def is_of(self, artifact: Artifact) -> bool:
        return not self.removed and FileState(self.size, self.modified_ns) == artifact.state.portable

    def has_content_of(self, other: Version) -> bool:
        return self.removed == other.removed and self.digest == other.digest and (self.removed or bool(self.digest))


Index = Mapping[str, tuple[Version, ...]]


class ArtifactView(ABC):
    """The artifacts of a run at one moment, with their versions."""

    @abstractmethod
    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]: ...

    @abstractmethod
    def open(self, path: str) -> BinaryIO | None: ...

    @abstractmethod
    def index(self) -> Index:
        """The versions of every file by path, oldest first. Empty if there are none, or if they cannot be read."""

    @abstractmethod
    def content(self, digest: str) -> bytes | None:
        """The content of a version; None if there is none."""

    def text(self, version: Version | None) -> str | None:
        """The content of a version. Empty if the file did not exist; None if the content is not stored."""
        if version is None or version.removed:
            return ""
        content = self.content(version.digest) if version.kept and version.digest is not None else None
        return None if content is None else text_of(content)

    def text_now(self, path: str) -> str | None:
        """The content of the file as it is. None if it is not text, or too large."""
        file = self.open(path)
        if file is None:
            return ""
        with file:
            content = file.read(MAX_FILE + 1)
        return text_of(content) if len(content) <= MAX_FILE else None

    def bundle(self, max_bytes: int, checkpoint: Checkpoint = unchecked) -> Bundle:
        """All artifacts as one zip."""
        return bundle_of(self.artifacts(checkpoint), self.open, max_bytes)


def stored_content(objects: RunObjects, digest: str) -> bytes | None:
    """The content of a text file that any machine has recorded."""
    try:
        return objects.get(f"contents/{digest}", MAX_FILE)
    except FileMissing:
        return None


class LocalArtifacts(ArtifactView):
    """The artifacts in the folder of the run."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def artifacts(self, checkpoint: Checkpoint = unchecked) -> Iterator[Artifact]:
        return self._workspace.artifacts(checkpoint)

    def open(self, path: str) -> BinaryIO | None:
        return self._workspace.open_artifact(path)

    def index(self) -> Index:
        content = read_below(self._workspace.root, _INDEX, _MAX_INDEX)
        try:
            return {} if content is None else msgspec.json.decode(content, type=dict[str, tuple[Version, ...]])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    def is_empty(self) -> bool:
        """Whether there is nothing to record: no artifacts, and no versions. Needs only a few calls, and no thread."""
        if os.path.lexists(self._workspace.root / _FOLDER):
            return False
        try:
            artifacts = open_tree(self._workspace.cwd, self._workspace.artifacts_path.name)
            with artifacts as tree, os.scandir(tree.folder("")) as entries:
                return next(entries, None) is None
        except OSError:
            return False

    def record(self, turn: int, checkpoint: Checkpoint = unchecked) -> bool:
        """Record what has changed since the last time. When a turn is recorded again, its versions are replaced.

        Returns False if it is certain that nothing has changed.
        """
        listed = page_of(self._workspace.artifacts(checkpoint), 0, MAX_LISTED, MAX_NAMES)
        found = listed.items
        before = self.index()
        if not found and not before:
            return False
        recording = _Recording(self._workspace, before, turn)
        try:
            for artifact in found:
                checkpoint()
                recording.take(artifact)
            if listed.end is None:
                recording.remove_all_but({artifact.path for artifact in found})
            if recording.files != before:
                beneath.make_folder(self._workspace.root, _FOLDER)
                write_private(self._workspace.root / _INDEX, msgspec.json.encode(recording.files))
        except BaseException:
            # Nothing refers to what was written, so it would not count for the limit of the run.
            self._drop(recording.contents.keys() - _contents(before.values()).keys())
            raise
        self._drop(recording.contents.keys() - _contents(recording.files.values()).keys())
        return recording.files != before or listed.end is not None

    def _drop(self, digests: Iterable[str]) -> None:
        for digest in digests:
            beneath.remove(self._workspace.root, f"{_FOLDER}/{digest}")

    def record_first(self, turn: int, checkpoint: Checkpoint = unchecked) -> None:
        """Record the files that the run starts with, unless something is recorded."""
        if not self.index():
            self.record(turn, checkpoint)

    def content(self, digest: str) -> bytes | None:
        content = read_below(self._workspace.root, f"{_FOLDER}/{digest}", MAX_FILE)
        if content is None:
            objects = self._workspace.objects
            return None if objects is None else stored_content(objects, digest)
        return content if hashlib.sha256(content).hexdigest() == digest else None


class _Recording:
    """The versions while those of one turn are added."""

    def __init__(self, workspace: Workspace, before: Index, turn: int) -> None:
        self.files = dict(before)
        self._workspace = workspace
        self._turn = turn
        self.contents = _contents(before.values())
        """The sizes of all contents on the disk, by digest."""
        self._content_bytes = sum(self.contents.values())
        self._count = sum(len(versions) for versions in before.values())
        self._names = sum(map(len, before))
        self._read_bytes = 0
        self._read_files = 0

    def take(self, artifact: Artifact) -> None:
        known = self.files.get(artifact.path, ())
        if known and known[-1].is_of(artifact):
            return
        version = self._version(artifact)
        if version is not None:
            self._add(artifact.path, version)

    def remove_all_but(self, paths: set[str]) -> None:
        for path in self.files.keys() - paths:
            if not self.files[path][-1].removed:
                self._add(path, Version(turn=self._turn, size=0, modified_ns=0, removed=True))

    def _add(self, path: str, version: Version) -> None:
        known = self.files.get(path, ())
        if not known and self._names + len(path) > MAX_NAMES:
            return
        earlier = tuple(each for each in known if each.turn < self._turn)
        if earlier and earlier[-1].has_content_of(version):
            # Only written again, or changed back by a turn that is recorded again.
            version = replace(version, turn=earlier[-1].turn)
            earlier = earlier[:-1]
        elif len(earlier) >= len(known) and self._count >= MAX_VERSIONS:
            if not known:
                return
            earlier = earlier[:-1]
        versions = (*earlier, version) if earlier or not version.removed else ()
        self._count += len(versions) - len(known)
        self._names += len(path) * (bool(versions) - bool(known))
        self.files[path] = versions
        if not versions:
            del self.files[path]

    def _version(self, artifact: Artifact) -> Version | None:
        """None if the file was removed meanwhile."""
        bare = Version(turn=self._turn, size=artifact.size, modified_ns=artifact.modified_ns)
        full = self._read_bytes + artifact.size > MAX_READ or self._read_files >= MAX_FILES_READ
        if full or artifact.size > MAX_FILE:
            return bare
        file = self._workspace.open_artifact(artifact.path)
        if file is None:
            return None
        with file:
            content = file.read(MAX_FILE + 1)
        self._read_bytes += len(content)
        self._read_files += 1
        if len(content) > MAX_FILE:
            return bare
        digest = hashlib.sha256(content).hexdigest()
        return replace(bare, size=len(content), digest=digest, kept=self._store(digest, content))

    def _store(self, digest: str, content: bytes) -> bool:
        if digest in self.contents:
            return True
        if text_of(content) is None or self._content_bytes + len(content) > MAX_CONTENTS:
            return False
        beneath.write(self._workspace.root, f"{_FOLDER}/{digest}", content)
        self.contents[digest] = len(content)
        self._content_bytes += len(content)
        return True


def with_turns(index: Index, artifacts: Iterable[Artifact], current: int | None) -> list[Artifact]:
    """The artifacts with the turns that changed them last. `current` is the turn that is executed now, if any."""
    shown = []
    for artifact in artifacts:
        turn, known = current, index.get(artifact.path, ())
        comparable = sum(version.kept or version.removed for version in known)
        if known and known[-1].is_of(artifact):
            turn, can_compare = known[-1].turn, comparable > 1 and known[-1].kept
        else:
            turn, can_compare = current, comparable > 0 and artifact.size <= MAX_FILE
        shown.append(msgspec.structs.replace(artifact, turn=turn, comparable=can_compare))
    return shown


def _contents(files: Iterable[Sequence[Version]]) -> dict[str, int]:
    """The sizes of the stored contents, by digest."""
    return {each.digest: each.size for versions in files for each in versions if each.kept and each.digest}


def text_of(content: bytes) -> str | None:
    """None if the content is not text."""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
