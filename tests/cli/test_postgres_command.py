"""`askback database`, and what a program says about a PostgreSQL database that it cannot use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from askback.store.postgres.steps import newest
from support import postgres
from support.data_folder import ASK, FINISH, World
from support.postgres import PostgresServer, databases
from support.program import Ran, askback

PASSWORD = "open-sesame-47"


@pytest.fixture(autouse=True)
def _needs_postgres() -> None:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture
def server() -> PostgresServer:
    return databases.server


@pytest.fixture
def world(tmp_path: Path) -> World:
    """On SQLite by itself: the tests name the database."""
    with databases.chosen(False):
        return World(tmp_path)


@pytest.fixture
def empty(server: PostgresServer) -> Iterator[str]:
    """The address of a database without tables."""
    address = server.make_database(empty=True)
    yield address
    server.execute(f"DROP DATABASE {address.partition('@/')[2].partition('?')[0]} WITH (FORCE)")


def on(address: str, world: World, *words: str) -> Ran:
    return askback(world, *words, env={"ASKBACK_DATABASE": address})


def test_tables_are_created_by_a_command_and_used_by_runs(world: World, empty: str) -> None:
    skill = world.skill([ASK], [FINISH])
    refused = on(empty, world, "run", skill, "--engine", "scripted")
    assert refused.code == 1
    assert "has no tables yet; create them with: askback database upgrade" in refused.stderr
    assert on(empty, world, "database", "status", "--json").json["fits"] is False
    status = on(empty, world, "database", "status")
    assert (status.code, "askback database upgrade" in status.stderr) == (1, True)

    made = on(empty, world, "database", "upgrade", "--json").json
    assert (made["format"], made["upgraded_from"], made["fits"]) == (newest(), 0, True)
    assert made["format"] >= made["needed_format"]
    assert "nothing was changed" in on(empty, world, "database", "upgrade").stderr
    assert "the tables fit" in on(empty, world, "database").stdout

    run = on(empty, world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--answer", "red", "--json")
    assert run.json["data"] == {"colour": "red"}, run.json
    assert not (world.data_dir / "askback.db").exists()
    assert "PostgreSQL" in on(empty, world, "doctor").stdout
    [listed] = on(empty, world, "runs", "--json").json
    assert listed["id"] == run.json["id"]


def test_a_database_belongs_to_one_data_folder(world: World, empty: str, tmp_path: Path) -> None:
    on(empty, world, "database", "upgrade")
    assert on(empty, world, "runs").code == 0
    with databases.chosen(False):
        other = World(tmp_path / "other")
    refused = on(empty, other, "runs")
    assert refused.code == 1
    assert "belongs to another data folder" in refused.stderr


def test_data_folders_that_share_their_files_share_a_database_at_one_path(
    world: World, empty: str, tmp_path: Path
) -> None:
    on(empty, world, "database", "upgrade")
    shared = {"ASKBACK_DATABASE": empty, "ASKBACK_FILES": str(tmp_path / "stored")}
    with databases.chosen(False):
        other = World(tmp_path / "other")
    assert askback(world, "runs", env=shared).code == 0
    refused = askback(other, "runs", env=shared)
    assert refused.code == 1
    assert f"set `runs_dir` to {world.data_dir / 'runs'}" in refused.stderr
    assert askback(other, "runs", env={**shared, "ASKBACK_RUNS_DIR": str(world.data_dir / "runs")}).code == 0
    # Without a file store, only the first folder has the files.
    assert "belongs to another data folder" in on(empty, other, "runs").stderr
    assert on(empty, world, "runs").code == 0


def test_no_other_folder_joins_while_the_first_one_alone_has_files(world: World, empty: str, tmp_path: Path) -> None:
    on(empty, world, "database", "upgrade")
    skill = world.skill([ASK], [FINISH])
    files = {"ASKBACK_DATABASE": empty, "ASKBACK_FILES": str(tmp_path / "stored")}
    elsewhere = {**files, "ASKBACK_RUNS_DIR": str(world.data_dir / "runs")}
    with databases.chosen(False):
        other = World(tmp_path / "other")
    asked = on(empty, world, "run", skill, "--engine", "scripted", "--mode", "interactive", "--json")
    assert asked.json["state"] == "waiting_user", asked.json
    refused = askback(other, "runs", env=elsewhere)
    assert refused.code == 1
    assert "only in the data folder that was used with it first" in refused.stderr
    assert "`askback files status` there says what is left" in refused.stderr
    there = askback(world, "files", "status", "--json", env=files).json
    assert (there["other_machines_wait"], there["runs"]["not_stored"]) == (True, 1)
    # The folder that has the files is used as before, also by a command, which stores nothing.
    assert askback(world, "runs", env=files).code == 0
    assert askback(other, "runs", env=elsewhere).code == 1
    on(empty, world, "cancel", asked.json["id"])
    assert askback(other, "runs", env=elsewhere).code == 0, "no unfinished run needs files"


def test_a_newer_format_is_refused_and_left_unchanged(world: World, empty: str, server: PostgresServer) -> None:
    on(empty, world, "database", "upgrade")
    name = empty.partition("@/")[2].partition("?")[0]
    server.execute("INSERT INTO askback.migrations (version) VALUES (98)", name)
    assert on(empty, world, "runs").code == 0, "it is additive"
    server.execute("INSERT INTO askback.migrations (version, oldest) VALUES (99, 90)", name)
    for words in (("runs",), ("database", "upgrade"), ("database", "status")):
        refused = on(empty, world, *words)
        assert refused.code == 1
        assert "newer Askback for programs that know format 90" in refused.stderr


def test_a_queue_that_does_not_fit_is_refused(world: World, empty: str, server: PostgresServer) -> None:
    made = on(empty, world, "database", "upgrade", "--json").json
    assert made["queue_format"] == made["needed_queue_format"]
    name = empty.partition("@/")[2].partition("?")[0]
    names = [each for (each,) in server.execute("SELECT name FROM askback.queue_migrations ORDER BY name", name)]
    post, last = [max(each for each in names if kind in each) for kind in ("_post_", "_pre_")]
    server.execute(f"DELETE FROM askback.queue_migrations WHERE name = '{post}'", name)
    status = on(empty, world, "database", "status", "--json").json
    assert (status["fits"], status["waiting_steps"]) == (True, [post]), "it is for when no older program is alive"
    server.execute(f"DELETE FROM askback.queue_migrations WHERE name = '{last}'", name)
    assert on(empty, world, "database", "status", "--json").json["fits"] is False
    assert "askback database upgrade" in on(empty, world, "runs").stderr
    restored = f"('{last}'), ('{post}'), ('98.00.00_01_pre_more')"
    server.execute(f"INSERT INTO askback.queue_migrations (name) VALUES {restored}", name)
    assert on(empty, world, "runs").code == 0, "it is additive"
    server.execute("INSERT INTO askback.queue_migrations (name) VALUES ('99.00.00_50_post_later')", name)
    for words in (("runs",), ("database", "upgrade"), ("database", "status")):
        refused = on(empty, world, *words)
        assert refused.code == 1
        assert "newer Procrastinate (99.00.00_50_post_later)" in refused.stderr


def test_unusable_addresses_are_explained_without_the_password(world: World, server: PostgresServer) -> None:
    server.execute(f"CREATE ROLE keyholder LOGIN PASSWORD '{PASSWORD}x'")
    host = f"?host={server.folder}"
    expected = {
        f"postgresql://keyholder:{PASSWORD}@/postgres{host}": "the password in PGPASSWORD, in ~/.pgpass or in `database`",
        f"postgresql://keyholder@/postgres{host}": "none was given; set PGPASSWORD",
        f"postgresql://askback:{PASSWORD}@/nowhere{host}": "this database does not exist",
        f"postgresql://nobody-here:{PASSWORD}@/postgres{host}": "this user does not exist",
        f"postgresql://askback:{PASSWORD}@127.0.0.1:1/postgres": "check that the server runs",
        f"postgresql://askback:{PASSWORD}@/postgres{host}&nonsense={PASSWORD}": "libpq has no option nonsense",
        f"postgresql://askback:{PASSWORD}@/postgres{host}&sslmod=require": "no option sslmod; did you mean sslmode?",
        f"postgresql://askback:{PASSWORD}@127.0.0.1:1/x?sslmode=requird": "; correct `database`",
        f"postgresql://askback:{PASSWORD}%zz@127.0.0.1:1/x": "with special characters percent-encoded",
        f"mysql://askback:{PASSWORD}@db.example/askback": "must look like postgresql://",
    }
    for address, reason in expected.items():
        for words in (("database", "status"), ("database", "upgrade", "--json")):
            refused = on(address, world, *words)
            assert refused.code != 0
            assert reason in refused.stderr + refused.stdout, address
            assert PASSWORD not in refused.stderr + refused.stdout
            assert "Traceback" not in refused.stderr


def test_an_old_server_is_refused() -> None:
    from askback.store.postgres import errors

    message = errors.too_old("postgresql://askback:secret@db.example/askback", 130_004).message
    assert "PostgreSQL 13, which is too old" in message
    assert "secret" not in message


def test_settings_show_where_the_database_comes_from_but_no_password(world: World) -> None:
    address = f"postgresql://askback:{PASSWORD}@db.example/askback?passfile=/x&sslpassword={PASSWORD}"
    for variable in ("ASKBACK_DATABASE", "DATABASE_URL"):
        shown = askback(world, "config", "database", env={variable: address}).stdout
        assert "askback:[redacted]@db.example/askback" in shown
        assert variable in shown
        assert PASSWORD not in shown
    both = askback(world, "config", "database", env={"ASKBACK_DATABASE": "sqlite", "DATABASE_URL": address})
    assert "sqlite" in both.stdout
    other = askback(world, "config", "database", env={"DATABASE_URL": "mysql://db.example/askback"})
    assert "mysql" not in other.stdout


def test_without_the_driver_a_server_is_refused_with_what_to_install(world: World, tmp_path: Path) -> None:
    package = tmp_path / "blocked/psycopg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not installed')")
    env = {"PYTHONPATH": str(package.parent), "ASKBACK_DATABASE": "postgresql://askback@db.example/askback"}
    refused = askback(world, "runs", env=env, warm=False)
    assert refused.code == 1
    assert "pip install 'askback[postgres]'" in refused.stderr


def test_without_a_server_there_is_nothing_to_upgrade(world: World) -> None:
    assert askback(world, "database", "status", "--json").json["database"] == "sqlite"
    assert "SQLite" in askback(world, "database", "upgrade").stdout


def test_somebody_who_has_the_variable_of_another_program_learns_that_it_was_used(world: World, empty: str) -> None:
    refused = askback(world, "runs", env={"DATABASE_URL": empty})
    assert refused.code == 1
    assert "ASKBACK_DATABASE=sqlite" in refused.stderr
    assert askback(world, "runs", env={"DATABASE_URL": empty, "ASKBACK_DATABASE": "sqlite"}).code == 0
