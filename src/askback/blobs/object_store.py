"""Stored files in an object store: S3 and what speaks its protocol, Google Cloud Storage, or Azure Blob Storage.

Credentials are found by obstore: in the usual variables of each cloud, or by the role of the machine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from askback.blobs import FileMissing, StoredFile, checked
from askback.blobs.addresses import StoreAddress, StoreKind
from askback.blobs.errors import cause, limited, size_of, time_limit, too_large, unavailable, wrong_store
from askback.core.errors import FULL_DISK, disk_full

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_USUAL_SEC = 30.0
_PIECE = 8 << 20
"""What is transferred at a time of a large file. A store accepts no smaller parts than 5 MB."""
_PARTS_AT_ONCE = 4
_DELETES_AT_ONCE = 10
_BATCH = 1000
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
"""What a store says of a bucket, or of a container of Azure, that does not exist."""


class ObjectStoreFiles:
    def __init__(self, address: StoreAddress, *, limit_sec: float = _USUAL_SEC) -> None:
        self.place = str(address)
        self._prefix = f"{address.prefix}/" if address.prefix else ""
        self._limit_sec = limit_sec
        self._store = _opened(address, limit_sec)
        self._batches = address.kind is StoreKind.S3

    async def put(self, key: str, content: bytes | Path, *, replace: bool = False) -> None:
        size = len(content) if isinstance(content, bytes) else await asyncio.to_thread(size_of, content)
        async with self._calling(size):
            if isinstance(content, Path) and size <= _PIECE:
                content = await asyncio.to_thread(content.read_bytes)
            if isinstance(content, bytes):
                mode: Any = "overwrite" if replace else "create"
                with suppress(AlreadyExistsError):
                    await obstore.put_async(self._store, self._name(key), content, mode=mode, use_multipart=False)
            elif replace or await self._size(key) is None:
                await obstore.put_async(
                    self._store,
                    self._name(key),
                    content,
                    use_multipart=True,
                    chunk_size=_PIECE,
                    max_concurrency=_PARTS_AT_ONCE,
                )

    async def get(self, key: str, max_bytes: int) -> bytes:
        async with self._calling(max_bytes, key):
            found = await obstore.get_async(self._store, self._name(key))
            if found.meta["size"] > max_bytes:
                raise too_large(key, max_bytes)
            return bytes(await found.bytes_async())

    async def fetch(self, key: str, target: Path) -> None:
        pieces = self.read(key)
        first = await anext(pieces, b"")
        file = await asyncio.to_thread(_created, target)
        try:
            with file:
                await asyncio.to_thread(file.write, first)
                async for piece in pieces:
                    await asyncio.to_thread(file.write, piece)
        except BaseException as error:
            _removed(target)
            if isinstance(error, OSError) and error.errno in FULL_DISK:
                raise disk_full() from error
            raise

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Each piece is a separate request: a slow reader keeps no connection waiting."""
        async with self._calling(_PIECE, key):
            found = await obstore.get_async(self._store, self._name(key))
            size, version = found.meta["size"], found.meta["e_tag"]
            whole = bytes(await found.bytes_async()) if size <= _PIECE else b""
        if whole:
            yield whole
            return
        del found
        for start in range(0, size, _PIECE):
            async with self._calling(_PIECE, key):
                options: Any = {"range": (start, min(start + _PIECE, size)), "if_match": version}
                part = await obstore.get_async(self._store, self._name(key), options=options)
                piece = bytes(await part.bytes_async())
            yield piece

    async def size(self, key: str) -> int | None:
        async with self._calling():
            return await self._size(key)

    async def list(self, folder: str) -> Sequence[StoredFile]:
        start = self._name(folder.rstrip("/"))
        found: list[StoredFile] = []
        pages = obstore.list(self._store, start, chunk_size=_BATCH)
        while True:
            async with self._calling():
                page = await anext(pages, None)
            if page is None:
                return found
            for each in page:
                key = each["path"].removeprefix(self._prefix)
                found.append(StoredFile(key=key, size=each["size"], stored_at=each["last_modified"]))

    async def delete(self, keys: Sequence[str]) -> None:
        names = [self._name(key) for key in keys]
        step = _BATCH if self._batches else _DELETES_AT_ONCE
        for start in range(0, len(names), step):
            async with self._calling():
                batch = names[start : start + step]
                if self._batches:
                    await obstore.delete_async(self._store, batch)
                else:
                    await asyncio.gather(*map(self._delete, batch))

    async def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def check(self) -> str:
        key = f"check/{secrets.token_hex(8)}"
        await self.put(key, b"askback")
        content = await self.get(key, 100)
        await self.delete([key])
        if content != b"askback":
            raise unavailable(self.place, "what was read differs from what was written")
        return self.place

    async def close(self) -> None:
        """The connections end with the store."""

    def _name(self, key: str) -> str:
        return self._prefix + checked(key)

    async def _size(self, key: str) -> int | None:
        try:
            return int((await obstore.head_async(self._store, self._name(key)))["size"])
        except FileNotFoundError as error:
            if _is_bucket_missing(str(error)):
                raise
            return None

    @asynccontextmanager
    async def _calling(self, size: int = 0, key: str = "") -> AsyncIterator[None]:
        """The time limit of a call, and its errors in our words. With a key, a file that is not found is missing."""
        try:
            async with limited(self.place, time_limit(self._limit_sec, size)):
                yield
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


def _is_bucket_missing(text: str) -> bool:
    return any(code in text for code in _NO_BUCKET)


def _created(path: Path) -> BinaryIO:
    path.touch(mode=0o600, exist_ok=False)
    return path.open("wb")


def _removed(path: Path) -> None:
    path.unlink(missing_ok=True)


def _opened(address: StoreAddress, limit_sec: float) -> ObjectStore:
    """Raises `Unavailable` if the variables of the cloud contradict each other."""
    limit = timedelta(seconds=limit_sec)
    options: Any = {
        "timeout": timedelta(seconds=time_limit(limit_sec, _PIECE)),
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
