"""Files that clients upload before the run that uses them: in a folder of this machine, or in the file store as well.

In the file store, for every server; the folder of this machine then has copies of those that were used here:

uploads/PLACE/ID/about.json    the name, the owner and the size; PLACE is a part of the ID, and the same for all of an owner
uploads/PLACE/ID/content       the file
uploads/PLACE/ID/run-RUN       an empty file for each run that uses the upload
runs/RUN/uploads/ID            an empty file, by which the run finds its uploads
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from askback.blobs.base import FileMissing, Files
from askback.core.errors import Conflict, NotFound, RefusalCode, Unavailable
from askback.core.runs import parse_run_id
from askback.fs.atomic import GroupSync
from askback.fs.beneath import remove_tree

log = logging.getLogger(__name__)

ID = re.compile(r"up-[0-9a-f]{24}", re.ASCII)
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f/\\:*?\"<>|\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Separators, characters that some file system forbids, control characters, and bidirectional controls."""
_MAX_NAME_BYTES = 120
_OWNER = ".owner"
"""A file beside the upload with the name of its token. No upload has a name that begins with a dot."""
_RUN = ".run-"
"""The beginning of the name of a file for each run that uses the upload."""
_MIN_BYTES = 65_536
_MAX_ABOUT = 10_000
_ABOUT = "about.json"
_CONTENT = "content"
_RUN_KEY = "run-"
"""The beginning of the name of an empty object for each run that uses the upload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    upload_id: str
    name: str
    size: int


class Uploads:
    """Each upload is in its own folder, under a safe form of its name."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._disk = GroupSync(root)
        self._lock = threading.Lock()
        self._held: dict[str, dict[str, int]] = {}
        self._surveyed = False

    def store(self, name: str, source: BinaryIO, owner: str = "", limit: int | None = None) -> Upload:
        """Store a file. `room` was made for it; where several servers store files, `limit` is checked once more."""
        upload_id = f"up-{secrets.token_hex(12)}"
        size = self._write(upload_id, name, source, owner)
        self._hold(owner, upload_id, size)
        return Upload(upload_id=upload_id, name=safe_name(name), size=size)

    def _write(self, upload_id: str, name: str, source: BinaryIO, owner: str) -> int:
        """A folder with the file, as a whole. Returns the size of the file."""
        partial = self._root / f".{upload_id}-{secrets.token_hex(4)}"
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.mkdir(mode=0o700)
        try:
            with (partial / safe_name(name)).open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                size = target.tell()
            (partial / _OWNER).write_text(owner)
            partial.rename(self._root / upload_id)
            self._disk.sync(self._root / upload_id)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return size

    def _hold(self, owner: str, upload_id: str, size: int) -> None:
        with self._lock:
            self._held.setdefault(owner, {})[upload_id] = weight(size)

    @contextmanager
    def room(self, owner: str, size: int, limit: int | None) -> Iterator[None]:
        """Reserve space for an upload while it arrives, after `survey`. Raises `Conflict` if its owner's quota is used up."""
        ticket = secrets.token_hex(8)
        with self._lock:
            held = self._held.setdefault(owner, {})
            if limit is not None and sum(held.values()) + size > limit:
                raise quota_exceeded(sum(held.values()), limit)
            held[ticket] = size
        try:
            yield
        finally:
            with self._lock:
                held.pop(ticket, None)

    def survey(self, owner: str = "") -> None:
        """Measure the uploads of an owner. Here those of all owners: the disk is read once."""
        with self._lock:
            if self._surveyed:
                return
            with suppress(FileNotFoundError):
                for folder in self._root.iterdir():
                    with suppress(OSError):
                        size = sum(file.lstat().st_size for file in folder.iterdir() if not file.name.startswith("."))
                        self._held.setdefault((folder / _OWNER).read_text(), {})[folder.name] = weight(size)
            self._surveyed = True

    def path(self, upload_id: str, owner: str | None = None) -> Path:
        """The file of an upload; with an owner, only if the upload is its own. Call it in a thread."""
        if ID.fullmatch(upload_id) and owner in (None, self._owner(upload_id)):
            # It may be removed at this moment.
            with suppress(FileNotFoundError):
                for file in (self._root / upload_id).iterdir():
                    if not file.name.startswith("."):
                        return file
        raise no_such_upload()

    def _owner(self, upload_id: str) -> str | None:
        with suppress(OSError, ValueError):
            return (self._root / upload_id / _OWNER).read_text()
        return None

    def record_use(self, files: Iterable[Path], run_id: str) -> None:
        """Record that the run has a copy of these uploads, which are named by their paths."""
        with self._lock:
            for file in files:
                # It may be removed at this moment.
                with suppress(FileNotFoundError):
                    (file.parent / f"{_RUN}{run_id}").touch()

    def discard(self, upload_id: str) -> None:
        """Remove an upload that nothing will use."""
        if ID.fullmatch(upload_id):
            remove_tree(self._root / upload_id)
            self._forget(upload_id)

    def release(self, run_id: str) -> None:
        """The run is deleted: remove the uploads that no other run has used."""
        self.release_here(run_id)

    def release_here(self, run_id: str) -> None:
        """As `release`, of what this machine has."""
        with self._lock:
            used = list(self._root.glob(f"*/{_RUN}{parse_run_id(run_id)}"))
            for use in used:
                use.unlink(missing_ok=True)
            unused = [use.parent for use in used if not any(use.parent.glob(f"{_RUN}*"))]
        for folder in unused:
            remove_tree(folder)
            self._forget(folder.name)

    def sweep(self, older_than_sec: float) -> int:
        """Remove old uploads. A run has its own copy of what it uses."""
        removed = 0
        with suppress(FileNotFoundError):
            for folder in self._root.iterdir():
                with suppress(FileNotFoundError):
                    if time.time() - folder.lstat().st_mtime > older_than_sec:
                        remove_tree(folder)
                        self._forget(folder.name)
                        removed += 1
        return removed

    def _forget(self, upload_id: str) -> None:
        with self._lock:
            for held in self._held.values():
                held.pop(upload_id, None)


def no_such_upload() -> NotFound:
    return NotFound(RefusalCode.UPLOAD_NOT_FOUND, "there is no such upload; send the file to /v1/uploads first")


def weight(size: int) -> int:
    """How much an upload counts towards the quota. Even an empty one needs a folder."""
    return max(size, _MIN_BYTES)


def quota_exceeded(used: int, limit: int) -> Conflict:
    message = f"the uploads of this token or link use {used} of {limit} bytes; they are removed after a day"
    return Conflict(RefusalCode.QUOTA_EXCEEDED, message)


def safe_name(name: str) -> str:
    """The file name without folders, leading dots, and characters that some file system forbids."""
    last = re.split(r"[/\\]", name)[-1]
    clean = _UNFIT.sub("_", last).strip(". \t") or "file"
    if len(clean.encode()) <= _MAX_NAME_BYTES:
        return clean
    stem, dot, ending = clean.rpartition(".")
    short = (stem or clean)[:25] + (dot + ending[:4] if dot else "")
    return short.strip(". ") or "file"


class _About(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    size: int


class SharedUploads(Uploads):
    def __init__(self, root: Path, files: Files) -> None:
        super().__init__(root)
        self._files = files

    def store(self, name: str, source: BinaryIO, owner: str = "", limit: int | None = None) -> Upload:
        """The limit is checked again at the end: another server may have stored a file of this owner meanwhile."""
        upload_id = f"up-{_place(owner)}{secrets.token_hex(8)}"
        size = self._write(upload_id, name, source, owner)
        about = _About(name=safe_name(name), owner=owner, size=size)
        try:
            self._files.put(_key(upload_id, _CONTENT), super().path(upload_id))
            self._files.put(_key(upload_id, _ABOUT), msgspec.json.encode(about))
            if limit is not None and (used := sum(self._stored(owner).values())) > limit:
                raise quota_exceeded(used, limit)
        except BaseException:
            with suppress(Unavailable):
                self.discard(upload_id)
            remove_tree(self._root / upload_id)
            raise
        self._hold(owner, upload_id, size)
        return Upload(upload_id=upload_id, name=about.name, size=size)

    def survey(self, owner: str = "") -> None:
        stored = self._stored(owner)
        with self._lock:
            arriving = {name: size for name, size in self._held.get(owner, {}).items() if not ID.fullmatch(name)}
            self._held[owner] = arriving | stored

    def _stored(self, owner: str) -> dict[str, int]:
        """How much each upload of an owner counts, as every server sees it."""
        found = self._files.list(f"uploads/{_place(owner)}/")
        named = [(each.key.split("/"), each.size) for each in found]
        return {key[2]: weight(size) for key, size in named if key[3:] == [_CONTENT]}

    def path(self, upload_id: str, owner: str | None = None) -> Path:
        if not ID.fullmatch(upload_id):
            raise no_such_upload()
        try:
            about = msgspec.json.decode(self._files.get(_key(upload_id, _ABOUT), _MAX_ABOUT), type=_About)
            if owner not in (None, about.owner):
                raise no_such_upload()
            if not (self._root / upload_id).is_dir():
                self._bring(upload_id, about)
        except FileMissing:
            # Another server has removed it.
            remove_tree(self._root / upload_id)
            raise no_such_upload() from None
        return super().path(upload_id)

    def _bring(self, upload_id: str, about: _About) -> None:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix=".fetched-", dir=self._root) as fresh:
            fetched = Path(fresh, _CONTENT)
            self._files.fetch(_key(upload_id, _CONTENT), fetched)
            try:
                with fetched.open("rb") as source:
                    self._write(upload_id, about.name, source, about.owner)
            except OSError:
                # Another request may have brought the same file.
                if not (self._root / upload_id).is_dir():
                    raise

    def record_use(self, files: Iterable[Path], run_id: str) -> None:
        files = list(files)
        super().record_use(files, run_id)
        for file in files:
            upload_id = file.parent.name
            try:
                self._files.put(_key(upload_id, f"{_RUN_KEY}{run_id}"), b"")
                self._files.put(f"runs/{run_id}/uploads/{upload_id}", b"")
            except Unavailable as error:
                # The run exists, and has a copy. The upload is removed after a day.
                log.warning("the use of an upload cannot be noted: %s", error.message, extra={"run": run_id})

    def discard(self, upload_id: str) -> None:
        self._remove(upload_id)
        super().discard(upload_id)

    def release(self, run_id: str) -> None:
        for use in self._files.list(f"runs/{parse_run_id(run_id)}/uploads/"):
            upload_id = use.key.rpartition("/")[2]
            self._files.delete([_key(upload_id, f"{_RUN_KEY}{run_id}")])
            left = self._files.list(_key(upload_id, ""))
            if not any(each.key.rpartition("/")[2].startswith(_RUN_KEY) for each in left):
                self.discard(upload_id)
            self._files.delete([use.key])
        self.release_here(run_id)

    def sweep(self, older_than_sec: float) -> int:
        """Remove old uploads, and old copies of this machine."""
        super().sweep(older_than_sec)
        try:
            return self._sweep_stored(time.time() - older_than_sec)
        except Unavailable as error:
            log.error("old uploads cannot be removed: %s", error.message)
            return 0

    def _sweep_stored(self, before: float) -> int:
        old = {
            each.key.split("/")[2]
            for each in self._files.list("uploads/")
            if each.stored_at.timestamp() < before and each.key.endswith((f"/{_CONTENT}", f"/{_ABOUT}"))
        }
        for upload_id in old:
            self._remove(upload_id)
        return len(old)

    def _remove(self, upload_id: str) -> None:
        if ID.fullmatch(upload_id):
            self._files.delete([each.key for each in self._files.list(_key(upload_id, ""))])


def _place(owner: str) -> str:
    return hashlib.sha256(owner.encode()).hexdigest()[:8]


def _key(upload_id: str, name: str) -> str:
    return f"uploads/{upload_id.removeprefix('up-')[:8]}/{upload_id}/{name}"
