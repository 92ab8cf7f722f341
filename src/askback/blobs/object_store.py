"""Stored files in an object store: S3 and what speaks its protocol, Google Cloud Storage, or Azure Blob Storage.

Credentials are found by obstore: in the usual variables of each cloud, or by the role of the machine.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from askback.blobs.base import (
    PIECE,
    USUAL_SEC,
    Calls,
    FileMissing,
    Files,
    StoreAddress,
    StoredFile,
    StoreKind,
    checked,
    too_large,
    unavailable,
    wrong_store,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

_THREADS = 1000
"""More than callers can have: each request ends by its own time limit."""
_PARTS_AT_ONCE = 4
_BATCH = 1000
_DELETES_AT_ONCE = 10
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""What a store says of a bucket, or of a container of Azure, that does not exist."""
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_STATUS = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CAUSES = {
    "missing accesskeyid": "AWS_ACCESS_KEY_ID is not set",
    "missing secretaccesskey": "AWS_SECRET_ACCESS_KEY is not set",
    "invalidcontenttype": "it does not speak TLS; a plain http endpoint needs http:// in its address",
    "dns error": "its host is unknown",
    "connection refused": "the connection was refused",
    "certificate": "its certificate is not trusted",
    "token request": "no credentials were found, or they were refused",
    "operation timed out": "it did not answer in time",
    "builder error": "the request is not allowed; a plain http endpoint needs http:// in its address",
    "error sending request": "it cannot be reached",
}


class ObjectStoreFiles(Files):
    def __init__(self, address: StoreAddress, *, limit_sec: float = USUAL_SEC) -> None:
        self._address = address
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        self._calls = Calls(self.place, limit_sec, threads=_THREADS)
        self._store = _connect(address, limit_sec, self._calls.time_limit(PIECE))

    @property
    def place(self) -> str:
        return str(self._address)

    def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        name = self._name(key)
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        whole = content.read_bytes() if isinstance(content, Path) and size <= PIECE else content

        def store() -> None:
            if isinstance(whole, bytes):
                mode: Any = "overwrite" if replace else "create"
                with suppress(AlreadyExistsError):
                    obstore.put(self._store, name, whole, mode=mode, use_multipart=False)
            elif replace or self._size(name) is None:
                at_once = _PARTS_AT_ONCE
                obstore.put(self._store, name, whole, use_multipart=True, chunk_size=PIECE, max_concurrency=at_once)

        self._run(store, size)

    def get(self, key: str, max_bytes: int) -> bytes:
        def read() -> bytes:
            found = obstore.get(self._store, self._name(key))
            if found.meta["size"] > max_bytes:
                raise too_large(key, max_bytes)
            return bytes(found.bytes())

        return self._run(read, max_bytes, key)

    def pieces(self, key: str) -> Iterator[bytes]:
        """Each piece is a separate request: a slow reader keeps no connection waiting."""

        def begin() -> tuple[int, str | None, bytes]:
            found = obstore.get(self._store, self._name(key))
            size = found.meta["size"]
            return size, found.meta["e_tag"], bytes(found.bytes()) if size <= PIECE else b""

        size, version, whole = self._run(begin, PIECE, key)
        if size <= PIECE:
            yield whole
            return
        for start in range(0, size, PIECE):

            def read(start: int = start) -> bytes:
                options: Any = {"range": (start, min(start + PIECE, size)), "if_match": version}
                return bytes(obstore.get(self._store, self._name(key), options=options).bytes())

            yield self._run(read, PIECE, key)

    def size(self, key: str) -> int | None:
        return self._run(lambda: self._size(self._name(key)))

    def list(self, folder: str) -> Sequence[StoredFile]:
        pages = obstore.list(self._store, self._name(folder.rstrip("/")), chunk_size=_BATCH)
        found: list[StoredFile] = []
        while (page := self._run(lambda: next(pages, None))) is not None:
            for each in page:
                key = each["path"].removeprefix(self._prefix)
                found.append(StoredFile(key=key, size=each["size"], stored_at=each["last_modified"]))
        return found

    def delete(self, keys: Sequence[str]) -> None:
        names = [self._name(key) for key in keys]
        if self._address.kind is StoreKind.S3:
            batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
        else:
            batches = [[name] for name in names]
        with ThreadPoolExecutor(_DELETES_AT_ONCE) as pool:
            deque(pool.map(self._delete, batches), maxlen=0)

    def _delete(self, names: Sequence[str]) -> None:
        def delete() -> None:
            with suppress(FileNotFoundError):
                obstore.delete(self._store, names)

        self._run(delete)

    def _name(self, key: str) -> str:
        return self._prefix + checked(key)

    def _size(self, name: str) -> int | None:
        try:
            return int(obstore.head(self._store, name)["size"])
        except FileNotFoundError as error:
            if _is_bucket_missing(str(error)):
                raise
            return None

    def _run(self, work: Callable[[], T], size: int = 0, key: str = "") -> T:
        """Call the store, and raise its errors as ours. With a key, `not found` becomes `FileMissing`."""

        def translated() -> T:
            try:
                return work()
            except FileNotFoundError as error:
                text = str(error)
                if _is_bucket_missing(text):
                    # Nobody creates it by waiting.
                    raise wrong_store(self.place, f"{cause(text)}: create the bucket, or correct `files`") from None
                if key:
                    raise FileMissing(key) from None
                raise unavailable(self.place, cause(text)) from None
            except PermissionDeniedError as error:
                raise unavailable(self.place, f"access is denied; {cause(str(error))}") from None
            except UnauthenticatedError as error:
                raise unavailable(self.place, f"the credentials are missing or wrong; {cause(str(error))}") from None
            except BaseError as error:
                raise unavailable(self.place, cause(str(error))) from None

        return self._calls.run(translated, size)


def cause(text: str) -> str:
    """The part of an error that contains no secret: the store's code for it, or the kind of the failure."""
    if code := _CODE.search(text):
        return f"it answered {code[1]}"
    folded = text.lower()
    known = next((said for sign, said in _CAUSES.items() if sign in folded), None)
    if known is None and (status := _STATUS.search(folded)):
        known = f"it answered with status {status[1]}; is it an object store?"
    return known or "the request failed"


def _is_bucket_missing(text: str) -> bool:
    return any(code in text for code in _NO_BUCKET)


def _connect(address: StoreAddress, limit_sec: float, request_sec: float) -> ObjectStore:
    """Raises `Unavailable` if the variables of the cloud contradict each other."""
    limit = timedelta(seconds=limit_sec)
    options: Any = {
        "timeout": timedelta(seconds=request_sec),
        "connect_timeout": min(limit, timedelta(seconds=5)),
    }
    if (address.endpoint or "").startswith("http://"):
        options["allow_http"] = True
    retry: Any = {"max_retries": 3, "retry_timeout": limit}
    given = {"endpoint": address.endpoint, "region": address.region, "account_name": address.account}
    config: Any = {name: value for name, value in given.items() if value is not None}
    try:
        match address.kind:
            case StoreKind.S3:
                return S3Store(address.bucket, config=config, client_options=options, retry_config=retry)
            case StoreKind.GCS:
                return GCSStore(address.bucket, config=config, client_options=options, retry_config=retry)
            case StoreKind.AZURE:
                return AzureStore(address.bucket, config=config, client_options=options, retry_config=retry)
    except BaseError as error:
        raise unavailable(str(address), cause(str(error))) from None
