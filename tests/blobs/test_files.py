"""The Protocol `Files`, in a folder and in a bucket."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from askback.blobs.base import FileMissing, Files, StoreAddress, StoreKind, read_address
from askback.blobs.folder import FolderFiles
from askback.core.errors import Invalid, RefusalCode, Unavailable
from support.object_store import CREDENTIALS, Bucket, Door

LARGE = 17 << 20
"""More than two parts."""


class World:
    """A store that can be down."""

    def __init__(self, files: Files, down: Callable[[], None], up: Callable[[], None]) -> None:
        self.files = files
        self.down = down
        self.up = up


def _folder_world(tmp_path: Path) -> World:
    root, elsewhere = tmp_path / "stored", tmp_path / "elsewhere"
    root.mkdir(mode=0o700)
    return World(FolderFiles(root), lambda: root.rename(elsewhere) and None, lambda: elsewhere.rename(root) and None)


def _bucket_world(bucket: Bucket) -> World:
    from askback.blobs.object_store import ObjectStoreFiles

    address = read_address(bucket.address)
    assert isinstance(address, StoreAddress)
    made = ObjectStoreFiles(address, limit_sec=20)
    return World(made, lambda: bucket.turn(Door.REFUSING), lambda: bucket.turn(Door.OPEN))


@pytest.fixture(params=["folder", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "folder":
        return _folder_world(tmp_path)
    return _bucket_world(request.getfixturevalue("bucket"))


def _whole(files: Files, key: str) -> bytes:
    with files.open(key) as file:
        return file.read()


def test_small_files_are_kept_replaced_and_removed(world: World, tmp_path: Path) -> None:

    files, target = world.files, tmp_path / "fetched"
    files.put("runs/a/one", b"first")
    files.put("runs/a/one", b"second")
    assert files.get("runs/a/one", 5) == b"first"
    files.put("runs/a/one", b"third", replace=True)
    files.put("runs/a/b/two", b"")
    files.put("runs/ab/three", b"333")
    assert (files.size("runs/a/one"), files.size("runs/a")) == (5, None)
    assert (_whole(files, "runs/a/one"), _whole(files, "runs/a/b/two")) == (b"third", b"")
    files.fetch("runs/a/one", target)
    assert target.read_bytes() == b"third"
    assert {(each.key, each.size) for each in files.list("runs/a/")} == {
        ("runs/a/one", 5),
        ("runs/a/b/two", 0),
    }
    assert all(each.stored_at.tzinfo is not None for each in files.list("runs/a/"))
    assert files.list("nothing/") == []
    files.delete(["runs/a/one", "runs/a/none", "runs/a/b/two"])
    assert files.list("runs/a/") == []
    assert files.get("runs/ab/three", 100) == b"333"
    assert files.check()


def test_missing_and_large_files_are_told_apart(world: World, tmp_path: Path) -> None:

    files, target = world.files, tmp_path / "fetched"
    files.put("some/file", b"12345")
    with pytest.raises(Invalid):
        files.get("some/file", 4)
    with pytest.raises(FileMissing):
        files.get("some/other", 4)
    with pytest.raises(FileMissing):
        _whole(files, "some/other")
    with pytest.raises(FileMissing):
        files.fetch("some/other", target)
    assert not target.exists()


def test_a_large_file_is_stored_and_read_in_parts(world: World, tmp_path: Path) -> None:

    files, source, target = world.files, tmp_path / "large", tmp_path / "copy"
    content = os.urandom(1 << 20) * (LARGE >> 20) + b"end"
    source.write_bytes(content)
    files.put("large", source)
    source.write_bytes(b"another")
    files.put("large", source)
    assert files.size("large") == len(content)
    files.fetch("large", target)
    assert target.read_bytes() == content
    assert target.stat().st_mode & 0o077 == 0
    longest = 0
    for piece in files.pieces("large"):
        longest = max(longest, len(piece))
    assert longest <= 8 << 20


def test_a_store_that_is_down_is_unavailable_and_works_again(world: World, tmp_path: Path) -> None:

    files = world.files
    files.put("a/file", b"content")
    world.down()
    calls: list[Callable[[], object]] = [
        lambda: files.put("a/second", b"more"),
        lambda: files.get("a/file", 100),
        lambda: files.fetch("a/file", tmp_path / "fetched"),
        lambda: _whole(files, "a/file"),
        lambda: files.size("a/file"),
        lambda: files.list("a/"),
        lambda: files.check(),
    ]
    with ThreadPoolExecutor(len(calls)) as pool:
        results = [each.exception() for each in [pool.submit(call) for call in calls]]
    assert [type(each) for each in results] == [Unavailable] * len(calls), results
    assert {each.code for each in results if isinstance(each, Unavailable)} == {RefusalCode.FILES_UNAVAILABLE}
    world.up()
    assert files.get("a/file", 100) == b"content"
    files.put("a/second", b"more")


def test_concurrent_puts_of_one_key_leave_one_whole_file(world: World) -> None:

    contents = [bytes([number]) * 200_000 for number in range(6)]
    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(lambda content: world.files.put("same", content), contents))
    assert world.files.get("same", 300_000) in contents


def test_files_come_and_go_in_one_folder_at_the_same_time(world: World) -> None:
    def come_and_go(number: int) -> None:
        for _ in range(20):
            world.files.put(f"a/b/{number}", b"x")
            assert world.files.get(f"a/b/{number}", 10) == b"x"
            world.files.delete([f"a/b/{number}"])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(come_and_go, range(4)))


@pytest.mark.parametrize(
    "key", ["", "/etc/x", "../x", "a/../b", "a//b", "a/", ".hidden", "a/.b", "a\\b", "ü", "a\0", "a b"]
)
def test_keys_that_could_lead_elsewhere_are_refused(key: str, tmp_path: Path) -> None:

    with pytest.raises(ValueError, match="cannot be the key"):
        FolderFiles(tmp_path).put(key, b"x")
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_folder_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "out").symlink_to(outside)
    (root / "direct").symlink_to(outside / "file")

    files = FolderFiles(root)
    for call in (
        lambda: files.get("out/file", 10),
        lambda: files.get("direct", 10),
        lambda: files.put("out/new", b"x"),
        lambda: files.delete(["out/file"]),
    ):
        with pytest.raises(Unavailable):
            call()
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_a_folder_is_private_and_keeps_no_parts(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)

    files = FolderFiles(root)
    files.put("a/b", b"x")
    with pytest.raises(Unavailable):
        files.put("a/b/c", b"x")
    with pytest.raises(FileNotFoundError):
        files.put("a/c", tmp_path / "none")
    assert {path.name: path.stat().st_mode & 0o777 for path in root.rglob("*")} == {"a": 0o700, "b": 0o600}


def test_a_bucket_that_hangs_is_unavailable_within_the_limit(bucket: Bucket) -> None:
    from askback.blobs.object_store import ObjectStoreFiles

    address = read_address(bucket.address)
    assert isinstance(address, StoreAddress)
    files = ObjectStoreFiles(address, limit_sec=0.5)
    bucket.turn(Door.HANGING)
    with pytest.raises(Unavailable, match=r"within 0\.5 seconds"):
        files.size("some/file")
    bucket.turn(Door.OPEN)
    ObjectStoreFiles(address).put("some/file", b"x")


def test_no_message_or_log_has_credentials(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from askback.blobs.object_store import ObjectStoreFiles

    caplog.set_level(logging.DEBUG)

    def told(address: str) -> str:
        parsed = read_address(address)
        assert isinstance(parsed, StoreAddress)
        with pytest.raises(Unavailable) as refused:
            ObjectStoreFiles(parsed, limit_sec=20).put("some/file", b"x")
        assert refused.value.__suppress_context__
        assert refused.value.__cause__ is None
        return refused.value.message

    missing = told(bucket.address.replace(bucket.name, "no-such-bucket"))
    assert missing.endswith("cannot be used: it answered NoSuchBucket: create the bucket, or correct `files`")
    bucket.turn(Door.REFUSING)
    said = told(bucket.address) + missing + caplog.text
    assert not any(
        secret in said for secret in (CREDENTIALS["AWS_ACCESS_KEY_ID"], CREDENTIALS["AWS_SECRET_ACCESS_KEY"])
    )


def test_the_address_of_each_kind_of_store() -> None:
    assert read_address("/srv/files") == read_address("file:///srv/files") == Path("/srv/files")
    made = read_address("s3://bucket/a/b?endpoint=https://minio.example:9000&region=eu-1")
    assert made == StoreAddress(
        kind=StoreKind.S3, bucket="bucket", prefix="a/b", endpoint="https://minio.example:9000", region="eu-1"
    )
    assert str(made) == "s3://bucket/a/b at https://minio.example:9000"
    assert read_address("gs://bucket") == StoreAddress(kind=StoreKind.GCS, bucket="bucket")
    assert read_address("az://container/x?account=acme") == StoreAddress(
        kind=StoreKind.AZURE, bucket="container", prefix="x", account="acme"
    )


@pytest.mark.parametrize(
    "address",
    [
        "relative/folder",
        "ftp://host/x",
        "file://host/x",
        "s3://",
        "s3://key:secret@bucket",
        "s3://bucket?secret=abc",
        "s3://bucket?endpoint=minio:9000",
        "s3://bucket?endpoint=https://u:secret@minio",
        "s3://bucket/a/../b",
        "gs://bucket?endpoint=http://x",
    ],
)
def test_a_wrong_address_is_refused_without_its_secrets(address: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_address(address)
    assert refused.value.code is RefusalCode.SETTINGS_INVALID
    assert "abc" not in str(refused.value.problems)
    assert "secret@" not in str(refused.value.problems)
