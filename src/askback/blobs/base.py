"""The base class of file stores, their addresses (the setting `files`), calls with a time limit, and errors.

No error has a text of the store, which may contain signed addresses.
"""

from __future__ import annotations

import io
import os
import queue
import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from askback.background.loops import start_thread
from askback.core.errors import FULL_DISK, Invalid, RefusalCode, Unavailable, disk_full

T = TypeVar("T")

USUAL_SEC = 30.0
_IDLE_SEC = 5.0
PIECE = 8 << 20
"""What is transferred at a time of a large file. An object store accepts no smaller parts than 5 MB."""
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}(/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}){0,15}")


class FileMissing(Exception):
    """There is no file under this key."""


class WrongStore(Unavailable):
    """The file store belongs to another database. Retrying does not help: a person must fix the settings."""


def wrong_store(place: str, why: str) -> WrongStore:
    return WrongStore(RefusalCode.FILES_UNAVAILABLE, f"the file store {place} cannot be used: {why}")


def unavailable(place: str, why: str) -> Unavailable:
    return Unavailable(RefusalCode.FILES_UNAVAILABLE, f"the file store {place} cannot be used: {why}")


def too_large(key: str, max_bytes: int) -> Invalid:
    return Invalid(RefusalCode.INPUT_INVALID, f"the stored file {key} is larger than {max_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    key: str
    size: int
    stored_at: datetime


def checked(key: str) -> str:
    """The key. Raises `ValueError` for one that a store or a file system might read in another way."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be the key of a stored file")
    return key


class Files(ABC):
    """Files under keys such as `runs/ID/kept/3.tar.zst`. A file is there as a whole or not at all, and durable once `put` returns.

    A part of a key begins with a letter, a digit or `_`; further characters are letters, digits, `.`, `_` and `-`.
    Every method blocks. It has a time limit, and raises `Unavailable` (`FILES_UNAVAILABLE`) if the store cannot be used.
    Methods may be called in any thread.
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the files are, without secrets."""

    @abstractmethod
    def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        """Store the content, or a copy of a local file. Without `replace`, a key that exists is left as it is.

        If two programs store a large file under one key at the same time, one of the two stays, as a whole.
        """

    @abstractmethod
    def get(self, key: str, max_bytes: int) -> bytes:
        """The content of a small file. Raises `FileMissing`, and `Invalid` if it is larger."""

    @abstractmethod
    def pieces(self, key: str) -> Iterator[bytes]:
        """The content in pieces. Raises `FileMissing` before the first."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """None if there is no such file."""

    @abstractmethod
    def list(self, folder: str) -> Sequence[StoredFile]:
        """The files below a folder, such as `runs/ID/`, in any order."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove files. Those that do not exist are ignored."""

    def fetch(self, key: str, target: Path) -> None:
        """Write the content to a new local file, for its owner alone. Raises `FileMissing`; no part of a file stays."""
        pieces = self.pieces(key)
        first = next(pieces, b"")
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(first)
                file.writelines(pieces)
        except BaseException as error:
            target.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in FULL_DISK:
                raise disk_full() from error
            raise

    def open(self, key: str) -> BinaryIO:
        """The content, read piece by piece. Raises `FileMissing`."""
        pieces = self.pieces(key)
        return cast(BinaryIO, io.BufferedReader(_Reader(pieces, next(pieces, b""))))

    def check(self) -> str:
        """Where the files are, without secrets, after a file was written, read and removed there."""
        key = f"check/{secrets.token_hex(8)}"
        self.put(key, b"askback")
        content = self.get(key, 100)
        self.delete([key])
        if content != b"askback":
            raise unavailable(self.place, "what was read differs from what was written")
        return self.place


class _Reader(io.RawIOBase):
    def __init__(self, pieces: Iterator[bytes], first: bytes) -> None:
        super().__init__()
        self._pieces = pieces
        self._left = memoryview(first)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = memoryview(next(self._pieces, b""))
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken


class Calls:
    """Calls of a store, in daemon threads: a store that hangs delays neither the caller nor the end of the program.

    A thread waits some seconds for another call before it ends.
    """

    def __init__(self, place: str, usual_sec: float, *, threads: int) -> None:
        self._place = place
        self._usual_sec = usual_sec
        self._free = threading.Semaphore(threads)
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._changing = threading.Lock()
        self._idle = 0
        """How many threads wait for a call that nobody has made yet."""

    def time_limit(self, size: int = 0) -> float:
        """The seconds that a call may take. A large file gets one more for each megabyte."""
        return self._usual_sec + size / 1_000_000

    def run(self, work: Callable[[], T], size: int = 0) -> T:
        """The result of `work`. Raises `Unavailable` if it takes too long; it then ends in the background."""
        seconds = self.time_limit(size)
        began = time.monotonic()
        late = unavailable(self._place, f"it did not answer within {seconds:g} seconds")
        if not self._free.acquire(timeout=seconds):
            raise late
        answer: Future[T] = Future()
        try:
            if not self._take_idle():
                start_thread(self._work, name="askback-files")
        except BaseException:
            self._free.release()
            raise
        self._calls.put((work, answer))
        try:
            answer.exception(max(began + seconds - time.monotonic(), 0))
        except TimeoutError:
            raise late from None
        return answer.result()

    def _take_idle(self) -> bool:
        """Count on one idle thread, or end as one. False if there is none."""
        with self._changing:
            is_idle = self._idle > 0
            self._idle -= is_idle
            return is_idle

    def _work(self) -> None:
        while True:
            try:
                work, answer = self._calls.get(timeout=_IDLE_SEC)
            except queue.Empty:
                if self._take_idle():
                    return
                continue
            finish = _outcome(work, answer)
            # First of all: the next call may come as soon as this one is answered.
            with self._changing:
                self._idle += 1
            self._free.release()
            finish()
            del work, answer, finish


def _outcome(work: Callable[[], T], answer: Future[T]) -> Callable[[], None]:
    """Do the work, and return what settles the answer."""
    try:
        return partial(answer.set_result, work())
    except BaseException as error:
        return partial(answer.set_exception, error)


class StoreKind(StrEnum):
    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


_OPTIONS = {
    StoreKind.S3: {"endpoint", "region"},
    StoreKind.GCS: set[str](),
    StoreKind.AZURE: {"endpoint", "account"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """An object store. It contains no secrets."""

    kind: StoreKind
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"{self.kind}://{self.bucket}/{self.prefix}".rstrip("/") + at


def read_address(given: str) -> Path | StoreAddress:
    """A folder or an object store. Raises `Invalid`; the message does not repeat the address."""
    if given.startswith("/"):
        return Path(given)
    parts = urlsplit(given)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return Path(unquote(parts.path))
    if parts.scheme not in set(StoreKind) or not parts.netloc or parts.fragment:
        raise _wrong("must look like s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or /a/folder")
    if "@" in parts.netloc or ":" in parts.netloc:
        raise _wrong("has no user, password or port; credentials come from the environment")
    kind = StoreKind(parts.scheme)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := options.keys() - _OPTIONS[kind]:
        known = ", ".join(sorted(_OPTIONS[kind])) or "none"
        raise _wrong(f"has unknown options: {', '.join(sorted(unknown))}; known for {kind}: {known}")
    endpoint = options.get("endpoint")
    if endpoint is not None and not _is_endpoint(endpoint):
        raise _wrong("has an endpoint that does not look like https://minio.example:9000")
    prefix = parts.path.strip("/")
    if prefix and not all(each not in ("", ".", "..") and each.isascii() for each in prefix.split("/")):
        raise _wrong("has a prefix with unusual folders")
    return StoreAddress(
        kind=kind,
        bucket=parts.netloc,
        prefix=prefix,
        endpoint=endpoint,
        region=options.get("region"),
        account=options.get("account"),
    )


def _is_endpoint(url: str) -> bool:
    parts = urlsplit(url)
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _wrong(problem: str) -> Invalid:
    return Invalid(RefusalCode.SETTINGS_INVALID, "the settings are wrong", [f"files: the address {problem}"])
