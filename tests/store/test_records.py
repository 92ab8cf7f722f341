"""Collections of records and secrets: in files, and as rows that several servers share."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stores import STORES

from askback.access.tokens import TokenDirectory, Tokens
from askback.core.access import AccessScope
from askback.core.errors import Invalid, Unavailable
from askback.fs.records import Records
from askback.skills.shelf import InstalledVersion, RecordShelf, Shelf
from support import postgres
from support.postgres import PostgresServer, databases
from support.postgres_proxy import PostgresProxy

LONG_SEC = 120.0
READ = (AccessScope.READ,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    digest: str
    text: str = ""


@pytest.fixture(params=sorted(STORES))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Records]:
    """Opens the same records each time it is called, as another program does."""
    if request.param == "sqlite":
        return lambda: Records(tmp_path)
    address = request.getfixturevalue("address")
    from askback.store.postgres import open_records

    return lambda: open_records(address)


def now() -> datetime:
    return datetime.now(UTC)


# On both.


def test_a_change_is_read_by_every_program(opened: Callable[[], Records]) -> None:
    notes, other = opened().collection("notes", Note), opened().collection("notes", Note)
    assert notes.read() == {}
    with notes.changing() as changed:
        changed |= {name: Note(digest=name) for name in ("a", "b")}
    assert other.read() == {"a": Note(digest="a"), "b": Note(digest="b")}
    with other.changing() as changed:
        del changed["a"]
        changed["b"] = Note(digest="b", text="it's “new”\n\u0000")
    assert list(notes.read()) == ["b"]
    assert notes.read()["b"].text.startswith("it's “new”\n")
    assert opened().collection("others", Note).read() == {}


def test_a_block_that_fails_changes_nothing(opened: Callable[[], Records]) -> None:
    notes = opened().collection("notes", Note)
    with notes.changing() as changed:
        changed["a"] = Note(digest="a")
    with pytest.raises(KeyError, match="missing"), notes.changing() as changed:
        del changed["a"], changed["missing"]
    with notes.changing() as changed:
        changed["b"] = Note(digest="b")
    assert sorted(opened().collection("notes", Note).read()) == ["a", "b"]


@pytest.mark.contract("M-7")
def test_of_two_programs_that_make_a_token_of_the_same_name_one_is_refused(opened: Callable[[], Records]) -> None:
    def make(tokens: Tokens) -> bool:
        try:
            tokens.make("app", READ, None)
        except Invalid:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, [Tokens(opened(), now) for _ in range(8)]))
    assert made.count(True) == 1
    assert [each.name for each in Tokens(opened(), now).all()] == ["app"]


def test_no_change_of_many_at_once_is_lost(opened: Callable[[], Records]) -> None:
    def add(name: str) -> None:
        with opened().collection("notes", Note).changing() as changed:
            changed[name] = Note(digest=name)

    names = {f"note-{number}" for number in range(24)}
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(add, names))
    assert opened().collection("notes", Note).read().keys() == names


@pytest.mark.contract("M-7")
def test_of_programs_that_start_at_once_all_have_the_same_key(opened: Callable[[], Records]) -> None:
    assert opened().known_secret("link-key") is None
    with ThreadPoolExecutor(8) as threads:
        (secret,) = set(threads.map(lambda _: opened().secret("link-key"), range(16)))
    assert len(secret) >= 43
    assert opened().known_secret("link-key") == secret
    assert opened().secret("push-key") != secret


@pytest.fixture(params=["file", "records"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    if request.param == "file":
        (tmp_path / "skills").mkdir()
        return Shelf(tmp_path / "skills")
    return RecordShelf(Records(tmp_path))


def test_a_shelf_has_the_versions_of_each_skill(shelf: Shelf) -> None:
    one, two = InstalledVersion(version="1", digest="a" * 64), InstalledVersion(version=None, digest="b" * 64)
    for skill_id in ("trip", "bill"):
        with shelf.changing(skill_id) as versions:
            assert versions == []
            versions.append(one)
    with shelf.changing("trip") as versions:
        versions.append(two)
    with pytest.raises(IndexError), shelf.changing("bill") as versions:
        del versions[0], versions[0]
    assert (list(shelf.names()), shelf.versions("trip"), shelf.versions("bill")) == (
        ["bill", "trip"],
        (one, two),
        (one,),
    )
    with shelf.changing("trip") as versions:
        versions.clear()
    assert (list(shelf.names()), shelf.versions("trip")) == (["bill"], ())


# As rows.


def test_keys_of_a_data_folder_are_taken_over_by_a_database_without_any(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from askback.store.postgres import open_records

    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    known = Records(first).secret("link-key")
    Records(second).secret("link-key")
    records = open_records(address)
    records.folder = first
    assert records.secret("link-key") == known
    assert "was taken over" in caplog.text
    caplog.clear()
    later = open_records(address)
    later.folder = second
    assert later.secret("link-key") == known
    assert caplog.text == ""


def test_a_record_that_cannot_be_read_is_ignored_and_left_as_it_is(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    from askback.store.postgres import open_records

    notes = open_records(address).collection("notes", Note)
    with notes.changing() as changed:
        changed |= {name: Note(digest=name) for name in ("a", "b")}
    databases.server.execute("UPDATE askback.records SET doc = '{' WHERE key = 'a'", _name(address))
    assert list(notes.read()) == ["b"]
    assert "a record is ignored: the records 'notes' in the database cannot be read" in caplog.text
    with pytest.raises(Unavailable, match="cannot be read"), notes.changing():
        pass
    assert databases.server.execute("SELECT doc FROM askback.records WHERE key = 'a'", _name(address)) == [("{",)]


@pytest.mark.parametrize("forward", [False, True], ids=["before it arrives", "after it arrived"])
def test_a_change_whose_connection_is_cut_at_any_statement_happens_once(address: str, forward: bool) -> None:
    from askback.store.postgres import open_records

    direct = open_records(address).collection("notes", Note)
    with PostgresProxy(address) as proxy:
        through = open_records(proxy.address)
        through.server.patience_sec = LONG_SEC
        for number in itertools.count(1):
            proxy.arm(number, forward=forward)
            with through.collection("notes", Note).changing() as notes:
                assert len(notes) == number - 1
                notes[f"{number}"] = Note(digest=f"{number}")
            cut = proxy.disarm()
            assert len(direct.read()) == number
            assert databases.server.execute("SELECT changes FROM askback.collections", _name(address)) == [(number,)]
            if not cut:
                break
        assert number > 5


def _name(address: str) -> str:
    return address.partition("@/")[2].partition("?")[0]


@asynccontextmanager
async def watching(address: str, patience_sec: float = LONG_SEC) -> AsyncIterator[Records]:
    """The records of a server."""
    from askback.store.postgres import PostgresStore

    store = await PostgresStore.open(address, patience_sec=patience_sec)
    try:
        store.records.watch()
        yield store.records
    finally:
        await store.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_SEC):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.contract("M-7")
def test_a_token_is_valid_and_revoked_on_every_server(address: str) -> None:
    async def main() -> None:
        async with watching(address) as one, watching(address) as other:
            here, there = Tokens(one, now), Tokens(other, now)
            await asyncio.to_thread(here.make, "app", READ, None)
            (token,) = here.all()
            await other.current(exactly=True)
            assert there.find(token.digest) is not None
            await asyncio.to_thread(there.revoke, "app")
            assert there.find(token.digest) is None
            # Nobody asks for it: the notification, or the next look, brings it.
            await until(lambda: here.find(token.digest) is None)

    asyncio.run(main())


@pytest.mark.contract("M-7")
def test_a_request_that_comes_two_seconds_after_a_revocation_knows_it_without_any_notification(address: str) -> None:
    async def main() -> None:
        async with watching(address) as records:
            tokens = Tokens(records, now)
            await asyncio.to_thread(tokens.make, "app", READ, None)
            (token,) = tokens.all()
            name = _name(address)
            revoked_at = time.monotonic()
            databases.server.execute("DELETE FROM askback.records WHERE collection = 'tokens'", name)
            databases.server.execute("UPDATE askback.collections SET changes = changes + 1", name)
            await until(lambda: time.monotonic() > revoked_at + 2.0)
            await records.current()
            assert tokens.find(token.digest) is None

    asyncio.run(main())


@pytest.mark.contract("M-9")
def test_without_a_database_the_cache_is_used_for_a_while_and_nothing_new_is_admitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    from askback.store.postgres.records import RowCollection

    async def main(server: PostgresServer) -> None:
        async with watching(server.make_database(), patience_sec=0.5) as records:
            tokens = Tokens(records, now)
            admitting = TokenDirectory(token="own", api_tokens=tokens)
            await asyncio.to_thread(tokens.make, "app", READ, None)
            (token,) = tokens.all()
            await records.current()
            server.crash()
            assert admitting.admitted(token.digest) is not None, "what was admitted before goes on for a while"
            with pytest.raises(Unavailable, match="cannot be reached"):
                await records.current(exactly=True)
            monkeypatch.setattr(RowCollection, "LIMIT_SEC", 0.0)
            assert admitting.admitted(token.digest) is None
            with pytest.raises(Unavailable, match="cannot be reached"):
                tokens.all()
            monkeypatch.undo()
            server.start()
            async with asyncio.timeout(LONG_SEC):
                while admitting.admitted(token.digest) is None:
                    await asyncio.sleep(0.01)

    server = PostgresServer()
    try:
        asyncio.run(main(server))
    finally:
        server.close()
