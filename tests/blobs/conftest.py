"""A file store that several machines use: a folder and a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from askback.blobs.base import Files, StoreAddress, read_address
from askback.blobs.folder import FolderFiles
from support.object_store import Bucket


@pytest.fixture(params=["folder", "s3"])
def store_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A value of the setting `files`."""
    if request.param == "folder":
        (tmp_path / "stored").mkdir(mode=0o700)
        return str(tmp_path / "stored")
    bucket: Bucket = request.getfixturevalue("bucket")
    return bucket.address


@pytest.fixture
def open_store(store_address: str) -> Callable[[], Files]:
    """Opens the store as another program would."""

    def make() -> Files:
        from askback.blobs.object_store import ObjectStoreFiles

        address = read_address(store_address)
        return ObjectStoreFiles(address) if isinstance(address, StoreAddress) else FolderFiles(address)

    return make
