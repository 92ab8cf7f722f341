"""The database file: what is made of it, and what is said of one that cannot be used."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest
from lives import create, new_run, start, waiting
from old_formats import downgrade
from stores import opened

from askback.core.errors import Conflict, RefusalCode, Unavailable
from askback.core.webhooks import Webhook
from askback.store import sqlite
from askback.store.base import Store
from askback.store.sqlite import SqliteStore
from askback.store.sqlite import connection as connections
from askback.store.sqlite.connection import migrations, open_writer

pytestmark = pytest.mark.sqlite

LATER = "CREATE TABLE later (x TEXT); INSERT INTO later VALUES ('made')"


@pytest.fixture(scope="module")
def sound_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with a few runs in it."""
    folder = tmp_path_factory.mktemp("sound")

    async def main() -> None:
        async with opened("sqlite", folder) as store:
            await asyncio.gather(*(waiting(store, new_run(f"run-{number}")) for number in range(200)))

    asyncio.run(main())
    return (folder / "askback.db").read_bytes()


@pytest.fixture
def database(sound_database: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "askback.db"
    path.write_bytes(sound_database)
    return path


def refused(path: Path) -> Unavailable:
    """What is said when the store is opened; the file must stay as it is."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(Unavailable) as error:
        asyncio.run(SqliteStore.open(path))
    assert (path.read_bytes() if path.is_file() else None) == before
    assert str(path) in error.value.message
    return error.value


def changed(path: Path, *statements: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        for statement in statements:
            connection.execute(statement)


# Format and migration.


def test_a_new_file_has_the_newest_format_and_the_safe_settings(tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "new" / "askback.db")) as connection:
        assert connection.pragma("user_version") == len(migrations())
        assert connection.pragma("journal_mode") == "wal"
        assert connection.pragma("synchronous") == 2
        assert connection.pragma("foreign_keys") == 1
        assert connection.pragma("busy_timeout") >= 10_000
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "askback.db")):
        files = sorted(tmp_path.iterdir())
        assert len(files) == 3
        assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_file_of_the_format_before_is_brought_up_to_date(database: Path) -> None:
    with closing(open_writer(database, (*migrations(), LATER))) as connection:
        assert connection.pragma("user_version") == len(migrations()) + 1
        assert connection.execute("SELECT x FROM later").get == "made"
        assert connection.execute("SELECT count(*) FROM runs").get == 200
    with closing(open_writer(database, (*migrations(), LATER))) as connection:
        assert connection.execute("SELECT count(*) FROM later").get == 1


def test_runs_of_the_first_formats_keep_their_owner_and_their_restarts(database: Path) -> None:
    changed(
        database,
        "UPDATE runs SET doc = json_set(doc, '$.keeper', 'program-1', '$.take_ups', 2)",
        "UPDATE runs SET doc = json_remove(doc, '$.owner', '$.restarts')",
        "UPDATE runs SET owner = 'program-1'",
        *downgrade(3),
    )

    async def main() -> None:
        async with opened("sqlite", database.parent) as store:
            run = await store.get("run-7")
            assert (run.owner, run.restarts) == ("program-1", 2)
            assert len(await store.owned_by("program-1")) > 0

    asyncio.run(main())


def test_a_migration_that_fails_leaves_the_file_as_it_was(database: Path) -> None:
    with pytest.raises(Unavailable, match="no_such_table"):
        open_writer(database, (*migrations(), LATER + "; DROP TABLE no_such_table"))
    with closing(open_writer(database)) as connection:
        assert connection.pragma("user_version") == len(migrations())
        assert not connection.table_exists("main", "later")


def test_a_field_that_was_added_later_has_its_default_in_old_rows(database: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", database.parent) as store:
            before = await store.get("run-7")
            removed = "'$.restarts', '$.warnings', '$.usage', '$.options.repair_attempts'"
            changed(database, f"UPDATE runs SET doc = json_remove(doc, {removed})")
            assert await store.get("run-7") == before

    asyncio.run(main())


def test_a_file_of_a_newer_version_is_refused(database: Path) -> None:
    changed(database, f"PRAGMA user_version = {len(migrations()) + 1}")
    error = refused(database)
    assert error.code is RefusalCode.STORE_NEWER
    assert "upgrade" in error.message


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "askback.db"
    changed(path, "CREATE TABLE runs (theirs TEXT)")
    error = refused(path)
    assert error.code is RefusalCode.STORE_UNUSABLE
    assert "another program" in error.message


# Damage.


def overwritten(start: int, count: int, byte: bytes = b"\xa5") -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(start)
            file.write(byte * count)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_text("not a database, but long enough to be one " * 1000),
    "a few bytes": lambda path: path.write_bytes(b"SQL"),
    "cut off": lambda path: os.truncate(path, path.stat().st_size // 2),
    "odd size": lambda path: os.truncate(path, 5000),
    "bad head": overwritten(0, 16),
    "bad page size": overwritten(16, 2),
    "bad schema": overwritten(100, 200),
    "bad pages": overwritten(4096 * 60, 4096 * 60),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_corrupt_file_is_refused_and_left_as_it_is(database: Path, damage: str) -> None:
    DAMAGE[damage](database)
    error = refused(database)
    assert error.code is RefusalCode.STORE_CORRUPT
    assert "left unchanged" in error.message
    assert not (database.parent / "wake").exists() or not list((database.parent / "wake").iterdir())


def test_a_file_that_was_emptied_does_not_take_its_log_with_it(database: Path) -> None:
    log = database.with_name("askback.db-wal")
    log.write_bytes(b"what is left")
    os.truncate(database, 0)
    assert refused(database).code is RefusalCode.STORE_CORRUPT
    assert log.read_bytes() == b"what is left"


def test_damage_that_is_found_later_is_told_to_who_asked(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_CHECKED_BYTES", 0)
    DAMAGE["bad pages"](database)

    async def read_all(store: Store) -> None:
        for number in range(200):
            await store.get(f"run-{number}")

    async def write_all(store: Store) -> None:
        for number in range(1000):
            await create(store, new_run(f"new-{number}"))
            with suppress(Conflict):  # some wait
                await start(store, new_run(f"run-{number}"))

    async def main() -> None:
        async with opened("sqlite", database.parent) as store:
            for attempt in (read_all(store), write_all(store), store.check()):
                with pytest.raises(Unavailable) as error:
                    await attempt
                assert error.value.code is RefusalCode.STORE_CORRUPT

    asyncio.run(main())


def test_a_check_that_would_take_long_says_that_it_did_not_end(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> list[str]:
        async with opened("sqlite", database.parent) as store:
            whole = await store.check()
            monkeypatch.setattr(sqlite, "CHECK_SEC", 0)
            return [whole, await store.check(), (await store.get("run-1")).id]

    whole, part, run_id = asyncio.run(main())
    assert whole == f"SQLite {apsw.sqlite_lib_version()}, WAL, 200 runs, 1 MB"
    assert "only partly checked" in part
    assert run_id == "run-1"


# Access.

OPEN = """
import asyncio, os, sys
from pathlib import Path
from askback.core.errors import Unavailable
from askback.store.sqlite import SqliteStore

async def main(elsewhere, path):
    await (await SqliteStore.open(elsewhere)).close()
    if os.geteuid() == 0:
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
    try:
        await SqliteStore.open(path)
    except Unavailable as error:
        print(error.code, error.message)

asyncio.run(main(*map(Path, sys.argv[1:])))
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that another user can reach, which the ones of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def opened_without_rights(path: Path, elsewhere: Path) -> str:
    """What is said to a program that may do no more than the file modes allow. Root may do anything, so it gives that
    up, but only after all that Python needs is loaded.
    """
    command = [sys.executable, "-c", OPEN, str(elsewhere / "other" / "askback.db"), str(path)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_a_read_only_file_is_refused(database: Path, public_folder: Path) -> None:
    path = public_folder / "askback.db"
    path.write_bytes(database.read_bytes())
    path.chmod(0o444)
    public_folder.chmod(0o777)
    said = opened_without_rights(path, database.parent)
    assert said.startswith(f"STORE_READ_ONLY {path} cannot be written")
    assert path.read_bytes() == database.read_bytes()
    assert list(public_folder.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_folder_is_refused(database: Path, public_folder: Path, exists: bool) -> None:
    path = public_folder / "askback.db"
    if exists:
        path.write_bytes(database.read_bytes())
        path.chmod(0o666)
    public_folder.chmod(0o555)
    assert opened_without_rights(path, database.parent).startswith("STORE_READ_ONLY ")


def test_a_path_that_cannot_hold_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "askback.db", tmp_path / "folder"):
        assert refused(path).code is RefusalCode.STORE_UNUSABLE


# Leaving.


def test_a_store_leaves_nothing_behind_but_its_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            await store.get((await create(store, new_run())).id)

    asyncio.run(main())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["askback.db", "wake"]
    assert list((tmp_path / "wake").iterdir()) == []


def test_a_store_can_be_closed_while_another_has_it_open(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened("sqlite", tmp_path) as other:
            async with opened("sqlite", tmp_path) as store:
                await create(store, new_run())
            assert await start(other, await other.get("run-1"))

    asyncio.run(main())


def test_a_file_from_before_webhooks_keeps_its_runs_and_gets_them(tmp_path: Path) -> None:
    path = tmp_path / "askback.db"

    async def main() -> None:
        async with opened("sqlite", tmp_path) as store:
            run = await create(store, new_run())
        changed(path, *downgrade(1))
        async with opened("sqlite", tmp_path) as store:
            assert await store.get(run.id) == run
            await store.register_webhooks([Webhook(url="https://example.com/")])
            await start(store, run)
            assert [each.new for each in (await store.deliveries()).items] == ["running"]

    asyncio.run(main())
