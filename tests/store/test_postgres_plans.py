"""Every statement finds its rows by an index: with sequential scans as the last resort, none is left."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from askback.core.runs import RunState
from askback.store.pages import RunFilter
from askback.store.sql import reads
from askback.store.sql.rows import word_values
from support import postgres
from support.postgres import databases

if TYPE_CHECKING:
    from askback.store.postgres.connection import PostgresConnection


FOR_PEOPLE = {"count_all_runs", "inbox_count", "labelled_days", "count_stored_runs", "some_archive_keys"}
"""Statements that may read all there is, and a part of others."""
SMALL = ("webhooks", "programs", "migrations", "queue_migrations", "data_folder", "file_store", "commits")
"""Tables that have few rows, or whose rows are found by those of others."""
LABELS = frozenset({("customer", "4711"), ("plan", "trial")})
LISTS = {
    "names",
    "ids",
    "owners",
    "workers",
    "of_any_engine",
    "without_engines",
    "hosts",
    "hosts_of_callers",
    "callers",
    "devices",
    "words",
}
FLAGS = {"all_callers", "claimed", "of_server", "all_devices", "shared", "expiring"}
TEXTS = {"id", "state", "ended", "skill", "engine", "owner", "creator", "worker", "workdir", "searched", "doc", "key"}
TEXTS |= {"name", "change", "reason", "longest", "second", "third", "text", "runs_dir", "writer", "lock", "own_session"}
TEXTS |= {
    "body_digest",
    "interaction_id",
    "outcome",
    "label_name",
    "label_value",
    "old",
    "new",
    "url",
    "host",
    "secret",
}
TEXTS |= {
    "lane",
    "kind",
    "states",
    "remind_after",
    "error",
    "code",
    "actor",
    "via",
    "action",
    "run_id",
    "object",
    "address",
}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[PostgresConnection]:
    if (reason := postgres.missing()) is not None:
        pytest.skip(reason)
    from askback.store.postgres.connection import PostgresConnection

    with (
        databases.chosen(True),
        closing(PostgresConnection.open(databases.make(tmp_path))) as connection,
    ):
        connection.execute("SET enable_seqscan = off")
        yield connection


def value_of(name: str, sql: str) -> Any:
    if name == "labels":
        return '[["customer", "4711"]]'
    if name in LISTS:
        return '["x"]'
    if name in ("named", "engines", "lanes"):
        return '{"x": 1}'
    if name in FLAGS:
        return True
    if (name == "run" and "WHERE id = :run" in sql) or (name == "run" and "runs.id = :run" in sql):
        return "x"
    return "x" if name in TEXTS else 1


def scans(connection: PostgresConnection, sql: str) -> list[str]:
    names = re.findall(r"(?<![:\"]):([a-z_]+)", sql)
    values: Any = {name: value_of(name, sql) for name in names} or _positional(sql)
    found = [row for (row,) in connection.fetch(f"EXPLAIN {sql}", values)]
    tables = [table for row in found for table in re.findall(r"Seq Scan on (\w+)", row)]
    return [table for table in tables if table not in SMALL]


def _positional(sql: str) -> tuple[Any, ...]:
    """The first one is a text where a run is looked up by its id."""
    count = sql.count("?")
    first: Any = "x" if re.search(r"\b(?:id|owner|ended) = \?|\(name, value", sql) else 1
    return (first, *([1] * (count - 1)))[:count]


def test_no_statement_scans_a_table_in_postgres(connection: PostgresConnection) -> None:
    scanned = {}
    for name, sql in connection.sql.items():
        if (
            sql.startswith(("CREATE", "ALTER", "DO "))
            or ("INSERT" in sql and "SELECT" not in sql)
            or "{" in sql
            or name in FOR_PEOPLE
        ):
            continue
        if found := scans(connection, sql):
            scanned[name] = found
    assert scanned == {}


def test_no_list_scans_in_postgres(connection: PostgresConnection) -> None:
    kinds = itertools.product((None, RunState.WAITING_USER, RunState.FAILED), (None, "skill"), (None, "engine"))
    for state, skill, engine in kinds:
        where = RunFilter(state=state, skill=skill, engine=engine)
        for each in (where, replace(where, labels=LABELS)):
            assert scans(connection, reads.filtered(connection.sql, each, "list")[0]) == [], each
            assert scans(connection, reads.filtered(connection.sql, each, "count")[0]) == [], each


def test_the_inbox_is_counted_without_its_rows(connection: PostgresConnection) -> None:
    connection.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
    counting = connection.sql["inbox_count"]
    plan = [row for (row,) in connection.fetch(f"EXPLAIN {counting}", {**word_values(""), "labels": None})]
    assert any("Index Only Scan using runs_waiting_counted" in row for row in plan), plan


QUESTIONS = """
INSERT INTO runs (id, version, epoch, state, skill, engine, owner, created_at, asked_at, last_seq, searched, doc)
SELECT 'r' || n, 1, 1, 'waiting_user', 'trips', 'codex', '', n, n, 1,
    CASE WHEN n IN (1, 5000, 10000, 20000) THEN 'a hotel in lisbon' ELSE 'which town ' || md5(n::text) END, '{}'
FROM generate_series(1, 20000) AS n
"""


@pytest.mark.parametrize("name", ["pending", "pending_by_deadline", "inbox_count"])
def test_a_search_of_the_inbox_reads_what_has_its_longest_word(connection: PostgresConnection, name: str) -> None:
    connection.execute("SET enable_seqscan = on")
    connection.execute(QUESTIONS)
    connection.execute("ANALYZE runs")
    values = {"asked_at": 0, "number": 0, "due": 0, "skill": None, "engine": None, "labels": None, "limit": 50}
    explained = f"EXPLAIN (ANALYZE, COSTS off, TIMING off) {connection.sql[name]}"
    plan = [row for (row,) in connection.fetch(explained, values | word_values("hotel in Lisbon"))]
    assert any("Bitmap Index Scan on runs_searched (actual rows=4 " in row for row in plan), plan


def test_a_scan_in_postgres_would_be_seen(connection: PostgresConnection) -> None:
    assert scans(connection, "SELECT doc FROM runs WHERE doc = :doc") == ["runs"]
