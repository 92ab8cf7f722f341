"""`askback database import` of a folder that somebody else has prepared: its names, rows and files are data, never commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from askback.app.storage import record_kinds
from askback.core.errors import AskbackError, NotFound
from askback.core.runs import Workdir
from askback.store.postgres.importing import Source, import_folder
from askback.store.sql.rows import load_run
from askback.store.sqlite.connection import open_writer
from askback.workspace.workdirs import Workdirs, WorkdirUnavailable
from askback.workspace.workspaces import Workspaces
from support import postgres
from support.asking import asking
from support.data_folder import World
from support.postgres import databases
from support.program import Ran, askback

RUN = "1m7gekfsksrgk77s"
COLUMNS = "number, id, version, epoch, state, skill, engine, owner, created_at, last_seq, doc"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    open_writer(folder / "askback.db").close()
    with databases.chosen(True):
        yield folder


@pytest.fixture
def address(folder: Path, tmp_path: Path) -> str:
    return databases.make(tmp_path / "database")


def rows_of(address: str, query: str) -> list[Any]:
    return list(databases.server.execute(query, address.partition("@/")[2].partition("?")[0]))


def change(folder: Path, *statements: str) -> None:
    """Change the file as an attacker can, who is bound to no rule of ours."""
    with closing(apsw.Connection(os.fspath(folder / "askback.db"))) as connection:
        for statement in statements:
            connection.execute(statement)


def add_run(folder: Path, run_id: str = RUN, doc: str | None = None) -> None:
    doc = sample_document(id=run_id) if doc is None else doc
    with closing(apsw.Connection(os.fspath(folder / "askback.db"))) as connection:
        values = (1, run_id, 1, 0, "waiting_user", "s", "scripted", "", 1, 0, doc)
        connection.execute(f"INSERT INTO runs ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def sample_document(**changes: Any) -> str:
    import msgspec

    document = msgspec.to_builtins(asking("Which?", []))
    document.pop("newer")
    return json.dumps({**document, **changes})


def imported(folder: Path, address: str) -> Any:
    source = Source(folder=folder, database=folder / "askback.db", runs=folder / "runs", record_kinds=record_kinds())
    return import_folder(source, address, lambda *_: None)


def refusal(folder: Path, address: str) -> str:
    """What the import says. Nothing is imported, and the file can be imported once it is repaired."""
    before = (folder / "askback.db").read_bytes()
    with pytest.raises(AskbackError) as caught:
        imported(folder, address)
    assert rows_of(address, "SELECT 1 FROM askback.runs UNION ALL SELECT 1 FROM askback.audit") == []
    assert (folder / "askback.db").read_bytes() == before
    return caught.value.message


def with_command(world: World, address: str, folder: Path) -> Ran:
    return askback(world, "database", "import", str(folder), env={"ASKBACK_DATABASE": address})


def test_the_name_of_a_column_is_no_command_of_the_database(folder: Path, address: str, tmp_path: Path) -> None:
    rows_of(address, "CREATE TABLE public.victim (number int)")
    marker = tmp_path / "executed"
    for name in (
        f"address) FROM PROGRAM 'touch {marker}' --",
        "address) FROM STDIN; DROP TABLE public.victim; --",
    ):
        change(folder, f'ALTER TABLE audit RENAME COLUMN address TO "{name}"')
        ran = with_command(World(tmp_path / "world"), address, folder)
        assert (ran.code, "audit" in ran.stderr, "Traceback" in ran.stderr) == (1, True, False), ran.stderr
        assert not marker.exists()
        assert rows_of(address, "SELECT * FROM public.victim") == []
        change(folder, f'ALTER TABLE audit RENAME COLUMN "{name}" TO address')
    assert with_command(World(tmp_path / "world"), address, folder).code == 0


def journal_naming(victim: Path) -> bytes:
    """A rollback journal that was left by a transaction over several files, of which one is `victim`."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim)
    header = magic + b"".join(number.to_bytes(4, "big") for number in (0, 0, 1, 512, 4096))
    lock_page = (0x40000000 // 4096 + 1).to_bytes(4, "big")
    checksum = sum(name).to_bytes(4, "big")
    return header.ljust(512, b"\0") + lock_page + name + len(name).to_bytes(4, "big") + checksum + magic


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_no_file_elsewhere_is_deleted_or_written_for_what_lies_beside_the_database(
    folder: Path, address: str, tmp_path: Path, suffix: str
) -> None:
    victim, beside = tmp_path / "victim", folder / f"askback.db{suffix}"
    victim.write_text("mine")
    change(folder, "PRAGMA journal_mode = DELETE")
    if suffix == "-journal":
        beside.write_bytes(journal_naming(victim))
    else:
        change(folder, "PRAGMA journal_mode = WAL")
        beside.unlink(missing_ok=True)
        beside.symlink_to(victim)
    ran = with_command(World(tmp_path / "world"), address, folder)
    assert victim.read_text() == "mine"
    assert (ran.code, f"askback.db{suffix}" in ran.stderr, "Traceback" in ran.stderr) == (1, True, False), ran.stderr
    assert os.path.lexists(beside)
    beside.unlink()
    assert with_command(World(tmp_path / "world"), address, folder).code == 0


ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
SCHEMAS = {
    "a view that never ends": (
        "audit",
        "DROP TABLE audit",
        f"CREATE VIEW audit AS {ENDLESS} x AS number, 1 AS at, '' AS actor, '' AS via, '' AS action, NULL AS run_id,"
        " NULL AS interaction_id, NULL AS object, NULL AS address FROM n",
    ),
    "a view in the place of the runs": ("runs", "DROP TABLE runs", f"CREATE VIEW runs AS {ENDLESS} x AS number FROM n"),
    "a view of its own": ("extra", "CREATE VIEW extra AS SELECT 1"),
    "a trigger": ("extra", "CREATE TRIGGER extra AFTER INSERT ON audit BEGIN DELETE FROM runs; END"),
    "a virtual table": ("audit", "DROP TABLE audit", "CREATE VIRTUAL TABLE audit USING fts5(number, at, actor)"),
    "a generated column": ("extra", "ALTER TABLE audit ADD COLUMN extra TEXT AS (hex(zeroblob(1000000000)))"),
    "another column": ("extra", "ALTER TABLE audit ADD COLUMN extra TEXT"),
    "a missing column": ("address", "ALTER TABLE audit DROP COLUMN address"),
    "a missing table": ("file_store", "DROP TABLE file_store"),
    "another table": ("extra", "CREATE TABLE extra (number INTEGER)"),
    "an index with an expression": ("extra", "CREATE INDEX extra ON audit (abs(-9223372036854775807 - 1 + at))"),
    "a table without types": (
        "file_store",
        "DROP TABLE file_store",
        "CREATE TABLE file_store (single INTEGER PRIMARY KEY, id TEXT NOT NULL, confirmed INTEGER NOT NULL)",
        "INSERT INTO file_store VALUES (1, x'00', 'yes')",
    ),
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_only_our_tables_and_columns_are_read(folder: Path, address: str, case: str) -> None:
    named, *statements = SCHEMAS[case]
    change(folder, *statements)
    assert f"`{named}`" in refusal(folder, address)


ROWS: dict[str, Callable[[Path], None]] = {
    "a run that is no run": lambda folder: add_run(folder, doc="{}"),
    "a run that is no JSON": lambda folder: add_run(folder, doc="'"),
    "a run with another id than its row": lambda folder: add_run(folder, doc=sample_document(id="other")),
    "a run of the wrong types": lambda folder: add_run(folder, doc=sample_document(epoch="../x")),
    "a run that continues a path": lambda folder: add_run(
        folder, doc=sample_document(origin={"run_id": "../x", "files": None, "session": False, "at": None})
    ),
    "a run with the files of another one": lambda folder: add_run(
        folder, doc=sample_document(kept="runs/other/kept/1-1.tar.zst")
    ),
    "a text with U+0000": lambda folder: change(
        folder, "INSERT INTO audit (at, actor, via, action) VALUES (1, 'a' || char(0) || 'b', 'api', 'x')"
    ),
    "a text that is not UTF-8": lambda folder: change(
        folder, "INSERT INTO audit (at, actor, via, action) VALUES (1, CAST(x'61ff' AS TEXT), 'api', 'x')"
    ),
    "a huge value": lambda folder: change(
        folder, "INSERT INTO audit (at, actor, via, action) VALUES (1, hex(zeroblob(200000000)), 'api', 'x')"
    ),
    "a number at the end of all numbers": lambda folder: change(
        folder, "INSERT INTO audit VALUES (9223372036854775807, 1, 'a', 'api', 'x', NULL, NULL, NULL, NULL)"
    ),
    "a counter that is no number": lambda folder: change(
        folder, "INSERT INTO sqlite_sequence (name, seq) VALUES ('audit', 'many')"
    ),
    "an interaction that is none": lambda folder: (
        add_run(folder),
        change(folder, "INSERT INTO interactions VALUES (1, 1, 'q', 'open', 1, NULL, '[]')"),
    )[0],
    "an event that is none": lambda folder: (
        add_run(folder),
        change(folder, "INSERT INTO events VALUES (1, 1, 'run.state', 1, '[]')"),
    )[0],
    "an event at no time": lambda folder: (
        add_run(folder),
        change(folder, "INSERT INTO events VALUES (1, 1, 'run.state', 9223372036854775807, '{}')"),
    )[0],
    "a request that is none": lambda folder: (
        add_run(folder),
        change(folder, "INSERT INTO requests (run, input, parameter) VALUES (1, '[]', '{}')"),
    )[0],
    "a result that is no JSON": lambda folder: (
        add_run(folder),
        change(folder, "INSERT INTO results VALUES (1, '{')"),
    )[0],
    "a webhook of an unknown kind": lambda folder: change(
        folder, "INSERT INTO webhooks (url, host, kind) VALUES ('https://x.example', 'x.example', 'gopher')"
    ),
    "a cost without an end": lambda folder: change(
        folder, "INSERT INTO turn_usage (day, engine, skill, turns, cost_usd) VALUES (1, 'codex', 's', 1, 9e999)"
    ),
    "a use with labels that are none": lambda folder: change(
        folder, "INSERT INTO turn_usage (day, engine, skill, turns, labels) VALUES (1, 'codex', 's', 1, '{\"a\": [')"
    ),
    "a row of a run that does not exist": lambda folder: change(folder, "INSERT INTO results VALUES (77, '{}')"),
}


@pytest.mark.parametrize("case", ROWS)
def test_every_row_is_decoded_before_it_is_written(folder: Path, address: str, case: str) -> None:
    ROWS[case](folder)
    assert "Traceback" not in refusal(folder, address)


@pytest.mark.parametrize("run_id", ["../../../victim", "..", ".", "a/b", "/etc", "", "a\nb", "x" * 65, "-rf"])
def test_the_id_of_a_run_is_no_path(folder: Path, address: str, run_id: str, tmp_path: Path) -> None:
    add_run(folder, run_id)
    assert "run" in refusal(folder, address)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "diary").write_text("mine")
    workspaces = Workspaces(tmp_path / "a" / "b" / "runs")
    for use in (workspaces.of, workspaces.size, workspaces.remove, workspaces.withdraw, workspaces.mark_for_deletion):
        with pytest.raises(NotFound):
            use(run_id)
    assert (victim / "diary").read_text() == "mine"


def test_the_database_of_another_folder_is_not_imported(folder: Path, address: str, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.db"
    (folder / "askback.db").rename(elsewhere)
    (folder / "askback.db").symlink_to(elsewhere)
    before = elsewhere.stat()
    assert "is a link" in refusal(folder, address)
    assert elsewhere.stat().st_mtime_ns == before.st_mtime_ns


def test_the_files_of_a_folder_are_not_followed(folder: Path, address: str, tmp_path: Path) -> None:
    tokens, secret = folder / "tokens.json", tmp_path / "secret"
    secret.write_text("[]")
    tokens.symlink_to(secret)
    assert "tokens.json" in refusal(folder, address)
    tokens.unlink()
    os.mkfifo(tokens)
    assert "tokens.json" in refusal(folder, address)
    tokens.unlink()
    for name in ("database-id", "link-key"):
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        assert name in refusal(folder, address)
        (folder / name).unlink()


@pytest.mark.parametrize(
    "records", ['{"digest": "x"}', '[{"digest": 7}]', '[{"digest": "x", "scopes": "all"}]', "[1]", "'"]
)
@pytest.mark.parametrize("name", ["tokens", "sessions", "invitations", "token-uses", "push-subscriptions", "digests"])
def test_every_record_is_decoded_before_it_is_written(folder: Path, address: str, name: str, records: str) -> None:
    (folder / f"{name}.json").write_text(records)
    assert f"{name}.json cannot be read" in refusal(folder, address)


def test_what_a_run_has_left_is_decoded_before_it_is_written(folder: Path, address: str) -> None:
    add_run(folder)
    links = folder / "runs" / RUN / "links.json"
    links.parent.mkdir(parents=True)
    links.write_text('[{"digest": "x"}]')
    assert "links.json cannot be read" in refusal(folder, address)
    links.unlink()
    assert imported(folder, address).rows["runs"] == 1


def test_a_folder_of_the_user_that_an_imported_run_names_is_allowed_by_the_settings_alone(
    folder: Path, address: str, tmp_path: Path
) -> None:
    """A run of `askback run --workdir` needs no setting. A file from somebody else must not claim to be one."""
    keys = tmp_path / "keys"
    keys.mkdir()
    add_run(folder, doc=sample_document(id=RUN, workdir={"path": str(keys), "by_user": True}))
    imported(folder, address)
    [(doc,)] = rows_of(address, "SELECT doc FROM runs")
    run = load_run(doc)
    assert run.workdir == Workdir(path=str(keys))
    with pytest.raises(WorkdirUnavailable):
        Workdirs(data_dir=folder).prepare(run.workdir)
