"""A backup of the database as the guide makes it can be restored, with the index for searches."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import postgres
from support.postgres import databases

if TYPE_CHECKING:
    from askback.store.postgres.connection import PostgresConnection

INDEX = "SELECT count(*) FROM pg_indexes WHERE schemaname = 'askback' AND indexname = 'runs_searched'"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    with databases.chosen(True):
        yield databases.make(tmp_path)


def opened(address: str) -> closing[PostgresConnection]:
    from askback.store.postgres.connection import PostgresConnection

    return closing(PostgresConnection.open(address))


def test_a_dump_restores_the_tables_and_the_index_for_searches(address: str, tmp_path: Path) -> None:
    from askback.store.postgres import schema

    dump = tmp_path / "backup.dump"
    subprocess.run(["pg_dump", "--format", "custom", "--file", str(dump), address], check=True)
    with opened(address) as connection:
        connection.execute("DROP SCHEMA askback CASCADE")
        subprocess.run(["pg_restore", "--dbname", address, str(dump)], check=True)
        assert schema.status(connection).fits
        assert connection.value(INDEX) == 1


def test_the_index_is_created_when_the_extension_becomes_available(address: str) -> None:
    from askback.store.postgres.schema import upgrade

    with opened(address) as connection:
        connection.execute("DROP EXTENSION pg_trgm CASCADE")
        assert connection.value(INDEX) == 0
        upgrade(connection)
        assert connection.value(INDEX) == 1


def test_who_may_not_create_the_extension_has_no_index_and_no_error(address: str) -> None:
    with opened(address) as connection:
        connection.execute("DROP EXTENSION pg_trgm CASCADE")
        connection.execute("GRANT USAGE, CREATE ON SCHEMA askback TO pg_monitor; SET ROLE pg_monitor")
        connection.raw.execute(connection.sql["index_search"].encode())
        assert connection.value(INDEX) == 0
        connection.execute("RESET ROLE; REVOKE ALL ON SCHEMA askback FROM pg_monitor")
