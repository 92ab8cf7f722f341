"""Uploads that were made on one server and are used on another."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from askback.blobs.base import Files
from askback.core.errors import Conflict, NotFound, RefusalCode
from askback.workspace.uploads import SharedUploads
from askback.workspace.workspaces import Workspaces

OpenStore = Callable[[], Files]
NAME = "北京 – Plan (1).txt"


@pytest.fixture
def servers(tmp_path: Path, open_store: OpenStore) -> tuple[SharedUploads, SharedUploads]:
    return SharedUploads(tmp_path / "one", open_store()), SharedUploads(tmp_path / "two", open_store())


def test_an_upload_of_one_server_is_found_on_another(servers: tuple[SharedUploads, SharedUploads]) -> None:
    one, two = servers
    kept = one.store(NAME, io.BytesIO(b"the plan"), "alice")
    with ThreadPoolExecutor(4) as pool:
        paths = set(pool.map(lambda _: two.path(kept.upload_id, "alice"), range(4)))
    (path,) = paths
    assert (path.name, path.read_bytes(), path.parent.stat().st_mode & 0o077) == (NAME, b"the plan", 0)
    assert [each.name for each in path.parent.parent.iterdir()] == [kept.upload_id]
    for wrong in ("bob", ""):
        with pytest.raises(NotFound):
            two.path(kept.upload_id, wrong)
    one.discard(kept.upload_id)
    with pytest.raises(NotFound):
        two.path(kept.upload_id)
    assert not path.exists()
    with pytest.raises(NotFound):
        two.path("up-../../etc/passwd")


def test_the_quota_holds_over_all_servers(servers: tuple[SharedUploads, SharedUploads]) -> None:
    one, two = servers
    limit = 250_000
    first = one.store("a", io.BytesIO(b"x" * 200_000), "alice", limit)
    two.survey("alice")
    with pytest.raises(Conflict) as refused, two.room("alice", 100_000, limit):
        pass
    assert refused.value.code is RefusalCode.QUOTA_EXCEEDED
    # As if both had looked before either of them stored its file.
    with pytest.raises(Conflict):
        two.store("b", io.BytesIO(b"x" * 100_000), "alice", limit)
    two.store("b", io.BytesIO(b"x" * 100_000), "bob", limit)
    one.discard(first.upload_id)
    two.survey("alice")
    with two.room("alice", 100_000, limit):
        two.store("b", io.BytesIO(b"x" * 100_000), "alice", limit)


def test_an_upload_goes_with_the_last_run_that_used_it(
    servers: tuple[SharedUploads, SharedUploads], open_store: OpenStore
) -> None:
    one, two = servers
    kept = one.store("a", io.BytesIO(b"x"), "alice")
    one.record_use([one.path(kept.upload_id)], "run1")
    two.record_use([two.path(kept.upload_id)], "run2")
    two.release("run1")
    assert one.path(kept.upload_id).exists()
    one.release("run2")
    with pytest.raises(NotFound):
        two.path(kept.upload_id)
    one.release("run2")
    store = open_store()
    assert (list(store.list("uploads/")), list(store.list("runs/"))) == ([], [])


def test_old_uploads_are_swept_from_the_store(servers: tuple[SharedUploads, SharedUploads]) -> None:
    one, two = servers
    kept = one.store("a", io.BytesIO(b"x"), "alice")
    assert two.sweep(3600) == 0
    assert two.path(kept.upload_id).exists()
    deadline = time.monotonic() + 60
    while not two.sweep(0.001):
        assert time.monotonic() < deadline
    with pytest.raises(NotFound):
        one.path(kept.upload_id)


def test_inputs_are_fetched_where_they_are_missing(tmp_path: Path, open_store: OpenStore) -> None:
    one = Workspaces(tmp_path / "one", files=open_store()).of("run1")
    two = Workspaces(tmp_path / "two", files=open_store()).of("run1")
    (tmp_path / NAME).write_bytes(b"the plan")
    staged = one.stage_input("plan", tmp_path / NAME)
    dropped = one.stage_input("dropped", tmp_path / NAME)
    one.drop_input("dropped", NAME)
    two.fetch_inputs()
    assert (two.cwd / staged).read_bytes() == b"the plan"
    assert not (two.cwd / dropped).exists()
    # What is here is left as it is.
    (two.cwd / staged).write_bytes(b"changed")
    two.fetch_inputs()
    assert (two.cwd / staged).read_bytes() == b"changed"
    Workspaces(tmp_path / "two", files=open_store()).remove_stored("run1")
    assert list(open_store().list("runs/run1/")) == []
