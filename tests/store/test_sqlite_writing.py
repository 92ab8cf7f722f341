"""Group commit, a file that others lock, a disk that is full."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw
import pytest
from lives import create, new_run, start
from stores import opened

from askback.core import lifecycle
from askback.core.errors import Conflict, RefusalCode, Unavailable
from askback.core.runs import RunRequest
from askback.store.base import Store
from askback.store.pages import RunFilter
from askback.store.sql import reads
from askback.store.sql.connection import Connection
from askback.store.sql.writes import Change, CreateRun
from askback.store.sqlite import connection as connections
from askback.store.sqlite.connection import open_reader, open_writer
from askback.store.sqlite.writer import Writer

pytestmark = pytest.mark.sqlite


def creation(run_id: str, size: int = 1) -> Callable[[Connection], Change]:
    request = RunRequest(input={"text": "x" * size})
    return CreateRun(lifecycle.create(new_run(run_id), {}), request, None).write


@asynccontextmanager
async def writing(path: Path, notified: list[Change] | None = None) -> AsyncIterator[tuple[Writer, apsw.Connection]]:
    connection = open_writer(path)
    changes: list[Change] = [] if notified is None else notified
    writer = Writer(connection, path, notify=lambda change, _: changes.append(change), wake=lambda run_ids: None)
    try:
        yield writer, connection
    finally:
        await writer.close()


def stored_ids(path: Path) -> set[str]:
    with closing(open_reader(path)) as connection:
        return {run.id for run in reads.list_runs(connection, RunFilter(), None, 10_000).items}


def commits_of(connection: apsw.Connection) -> list[None]:
    """Grows by one with each commit."""
    commits: list[None] = []

    def count() -> bool:
        commits.append(None)
        return False

    connection.set_commit_hook(count)
    return commits


# Group commit.


def test_writes_that_wait_together_are_committed_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path / "askback.db") as (writer, connection):
            commits = commits_of(connection)
            await asyncio.gather(*(writer.write(creation(f"run-{n}")) for n in range(500)))
            assert 1 <= len(commits) <= 50

    asyncio.run(main())
    assert len(stored_ids(tmp_path / "askback.db")) == 500


def test_a_write_that_fails_leaves_the_rest_of_its_commit_alone(tmp_path: Path) -> None:
    async def main() -> None:
        notified: list[Change] = []
        async with writing(tmp_path / "askback.db", notified) as (writer, connection):
            commits = commits_of(connection)
            names = [f"run-{n // 2}" for n in range(100)]
            got = await asyncio.gather(*(writer.write(creation(name)) for name in names), return_exceptions=True)
            assert [isinstance(outcome, Conflict) for outcome in got] == [False, True] * 50
            assert len(commits) < 20
            assert sorted({str(change.changed_id) for change in notified}) == sorted(set(names))

    asyncio.run(main())
    assert len(stored_ids(tmp_path / "askback.db")) == 50


def test_callers_are_answered_before_listeners_are_told(tmp_path: Path) -> None:
    async def main() -> None:
        order: list[str] = []
        told = asyncio.Event()
        connection = open_writer(tmp_path / "askback.db")
        writer = Writer(connection, tmp_path / "askback.db", notify=lambda *_: told.set(), wake=lambda _: None)

        async def call() -> None:
            await writer.write(creation("run-1"))
            order.append("answered")

        async def listen() -> None:
            await told.wait()
            order.append("told")
            assert stored_ids(tmp_path / "askback.db") == {"run-1"}

        await asyncio.gather(listen(), call())
        assert order == ["answered", "told"]
        await writer.close()

    asyncio.run(main())


def test_a_caller_that_gave_up_does_not_stop_the_writer(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path / "askback.db") as (writer, _):
            given_up = asyncio.ensure_future(writer.write(creation("run-1")))
            await asyncio.sleep(0)
            given_up.cancel()
            await writer.write(creation("run-2"))

    asyncio.run(main())
    assert "run-2" in stored_ids(tmp_path / "askback.db")


def test_the_log_stays_short_while_there_are_writes(tmp_path: Path) -> None:
    async def main() -> None:
        async with writing(tmp_path / "askback.db") as (writer, _):
            for part in range(20):
                await asyncio.gather(*(writer.write(creation(f"run-{part}-{n}", 20_000)) for n in range(100)))
            assert (tmp_path / "askback.db").stat().st_size > 30 * 2**20
            assert (tmp_path / "askback.db-wal").stat().st_size < 20 * 2**20

    asyncio.run(main())


# A file that others lock.


def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            run = await create(store, new_run())
            with closing(apsw.Connection(str(tmp_path / "askback.db"))) as other:
                other.execute("BEGIN IMMEDIATE; UPDATE runs SET version = 99")
                async with asyncio.timeout(60):
                    assert await store.get(run.id) == run
                    assert (await store.list_runs(RunFilter())).items == (run,)
                    assert await store.check()

    asyncio.run(main())


def test_a_write_waits_patiently_for_another_program(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            with closing(apsw.Connection(str(tmp_path / "askback.db"))) as other:
                other.execute("BEGIN IMMEDIATE")
                write = asyncio.ensure_future(create(store, new_run()))
                done, _ = await asyncio.wait([write], timeout=0.3)
                assert not done
                other.execute("COMMIT")
            async with asyncio.timeout(60):
                assert (await write).id == "run-1"

    asyncio.run(main())


def test_a_lock_that_never_ends_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE_MS", 100)

    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            with closing(apsw.Connection(str(tmp_path / "askback.db"))) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(Unavailable, match="another program") as error:
                    await create(store, new_run())
                assert error.value.code is RefusalCode.STORE_UNUSABLE
            await create(store, new_run())

    asyncio.run(main())


# A full disk.


async def fill(store: Store) -> tuple[set[str], Unavailable]:
    """Write until there is no room; what was acknowledged, and what was said in the end."""
    kept: set[str] = set()
    request = RunRequest(input={"text": "x" * 5000})
    while True:
        names = [f"run-{len(kept)}-{n}" for n in range(4)]
        writes = (store.create(lifecycle.create(new_run(name), {}), request) for name in names)
        got = await asyncio.gather(*writes, return_exceptions=True)
        kept |= {name for name, outcome in zip(names, got, strict=True) if not isinstance(outcome, BaseException)}
        for outcome in got:
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, Unavailable), outcome
                return kept, outcome


async def full_and_free_again(folder: Path, free: Callable[[], object]) -> None:
    async with opened("sqlite", folder) as store:
        kept, error = await fill(store)
        assert error.code is RefusalCode.DISK_FULL
        assert str(folder / "askback.db") in error.message
        assert kept
        for run_id in kept:
            assert (await store.get(run_id)).id == run_id
        free()
        assert await start(store, await store.get(min(kept)))
        await create(store, new_run("afterwards"))
    async with opened("sqlite", folder) as store:
        found = {run.id for run in (await store.list_runs(RunFilter(), limit=10_000)).items}
        assert found == kept | {"afterwards"}
        await store.check()


def test_a_file_that_may_not_grow_loses_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, limits[1]))
        free = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # noqa: E731
        asyncio.run(full_and_free_again(tmp_path, free))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no right to mount a file system here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_loses_nothing(tiny_disk: Path) -> None:
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 1_000_000)
    asyncio.run(full_and_free_again(tiny_disk, ballast.unlink))


def test_a_disk_without_any_room_cannot_hold_a_new_store(tiny_disk: Path) -> None:
    with pytest.raises(OSError, match="space"):
        (tiny_disk / "ballast").write_bytes(b"x" * 3_000_000)
    with pytest.raises(Unavailable) as error:
        asyncio.run(opened("sqlite", tiny_disk / "data").__aenter__())
    assert error.value.code is RefusalCode.DISK_FULL


def test_what_has_no_room_does_not_take_others_with_it(tmp_path: Path) -> None:
    """A write that is too large stands in one commit with small ones: only it is refused."""

    async def main() -> None:
        async with writing(tmp_path / "askback.db") as (writer, connection):
            await writer.write(creation("first"))
            connection.pragma("max_page_count", int(connection.pragma("page_count")) + 10)
            sizes = [1, 1, 1_000_000, 1]
            writes = (writer.write(creation(f"run-{n}", size)) for n, size in enumerate(sizes))
            got = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(outcome).__name__ for outcome in got] == ["Change", "Change", "Unavailable", "Change"]
            assert isinstance(got[2], Unavailable)
            assert got[2].code is RefusalCode.DISK_FULL

    asyncio.run(main())
    assert stored_ids(tmp_path / "askback.db") == {"first", "run-0", "run-1", "run-3"}


def test_no_thread_is_left_when_a_store_is_closed(tmp_path: Path) -> None:
    # Tests that cut a store off may have left some.
    before = set(threading.enumerate())

    def started() -> list[str]:
        return [each.name for each in set(threading.enumerate()) - before if "askback-store" in each.name]

    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            await store.get((await create(store, new_run())).id)
            assert started()

    asyncio.run(main())
    assert started() == []
