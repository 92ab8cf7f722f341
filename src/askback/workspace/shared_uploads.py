"""Uploads that every server can use. The folder of this machine has copies of those that were used here.

uploads/PLACE/ID/about.json    the name, the owner and the size; PLACE is a part of the ID, and the same for all of an owner
uploads/PLACE/ID/content       the file
uploads/PLACE/ID/run-RUN       an empty file for each run that uses the upload
runs/RUN/uploads/ID            an empty file, by which the run finds its uploads
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from askback.blobs import FileMissing
from askback.blobs.blocking import BlockingFiles
from askback.core.errors import Unavailable
from askback.core.runs import parse_run_id
from askback.fs.tree import remove_tree
from askback.workspace.uploads import ID, Upload, Uploads, no_such_upload, quota_exceeded, safe_name, weight

log = logging.getLogger(__name__)

_MAX_ABOUT = 10_000
_ABOUT = "about.json"
_CONTENT = "content"
_RUN = "run-"


class _About(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    owner: str
    size: int


class SharedUploads(Uploads):
    def __init__(self, root: Path, files: BlockingFiles) -> None:
        super().__init__(root)
        self._files = files

    def keep(self, name: str, source: BinaryIO, owner: str = "", limit: int | None = None) -> Upload:
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

    def note_use(self, files: Iterable[Path], run_id: str) -> None:
        files = list(files)
        super().note_use(files, run_id)
        for file in files:
            upload_id = file.parent.name
            try:
                self._files.put(_key(upload_id, f"{_RUN}{run_id}"), b"")
                self._files.put(f"runs/{run_id}/uploads/{upload_id}", b"")
            except Unavailable as error:
                # The run exists, and has a copy. The upload is removed after a day.
                log.warning("the use of an upload cannot be noted: %s", error.message, extra={"run": run_id})

    def discard(self, upload_id: str) -> None:
        self._remove(upload_id)
        super().discard(upload_id)

    def release(self, run_id: str) -> None:
        for mark in self._files.list(f"runs/{parse_run_id(run_id)}/uploads/"):
            upload_id = mark.key.rpartition("/")[2]
            self._files.delete([_key(upload_id, f"{_RUN}{run_id}")])
            left = self._files.list(_key(upload_id, ""))
            if not any(each.key.rpartition("/")[2].startswith(_RUN) for each in left):
                self.discard(upload_id)
            self._files.delete([mark.key])
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
