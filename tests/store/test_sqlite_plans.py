"""No statement reads a table through: what it costs depends on what it returns, not on what is stored."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from lives import DECIDED, NOON, TIMEOUT_SEC, at, create, new_run, reply, running, succeeded, waiting
from stores import opened

from askback.core.interactions import InboxOrder
from askback.core.queue import UNLIMITED
from askback.core.runs import Run, RunState
from askback.store.base import Store
from askback.store.pages import PAGE_BYTES, InboxFilter, LabelSet, RunFilter
from askback.store.sql import reads, rows, statistics
from askback.store.sqlite.connection import DIALECT, SqliteConnection, open_reader, open_writer

pytestmark = pytest.mark.sqlite

FOR_PEOPLE = {"count_all_runs", "inbox_count", "count_stored_runs", "some_archive_keys"}
"""Statements that may read all there is; none of them is on the way of a run."""

STATEMENTS = {
    **{
        name: sql
        for name, sql in DIALECT.sql.items()
        if "{" not in sql and name not in FOR_PEOPLE and name != "labelled_days"
    },
    **{f"finished_by_{column}": statistics.adding_up_by(DIALECT.sql, column) for column in ("day", "skill", "engine")},
    "finished_labelled": statistics.adding_up_by(DIALECT.sql, "day", frozenset({("customer", "4711")})),
}
FILTERS = [
    RunFilter(state=state, skill=skill, engine=engine)
    for state, skill, engine in itertools.product(
        (None, RunState.WAITING_USER, RunState.FAILED), (None, "skill"), (None, "engine")
    )
]
LABELS = frozenset({("customer", "4711"), ("plan", "trial")})
MAY_BE_SCANNED = r"SCAN ((owners|times|named|limited|wanted|had|own|json_each) VIRTUAL TABLE|lanes|parties|waiting|heads|found|CONSTANT ROW|\(subquery-\d+\))"
"""What the caller passes, or what the statement itself has made of a few lookups."""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[SqliteConnection]:
    with closing(open_writer(tmp_path / "askback.db")) as connection:
        yield connection


def plan(connection: SqliteConnection, sql: str) -> list[str]:
    names = re.findall(r"(?<!\"):(\w+)", sql)
    bindings: Any = dict.fromkeys(names, 1) if names else (1,) * sql.count("?")
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]


def scans(steps: list[str]) -> list[str]:
    return [step for step in steps if step.startswith("SCAN") and not re.match(MAY_BE_SCANNED, step)]


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_no_statement_scans_a_table(connection: SqliteConnection, name: str) -> None:
    assert scans(plan(connection, STATEMENTS[name])) == []


@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_no_list_scans_or_sorts(connection: SqliteConnection, where: RunFilter) -> None:
    sql, _ = reads.filtered(DIALECT.sql, where, "list")
    [step] = plan(connection, sql)
    assert step.startswith("SEARCH runs USING")
    wanted = [name for name in ("state", "skill", "engine") if getattr(where, name) is not None]
    if where.state is RunState.WAITING_USER:
        assert "runs_by_state (state=? AND rowid<?)" in step
    else:
        assert step.count("=?") == len(wanted)


@pytest.mark.contract("N-5")
@pytest.mark.parametrize("where", FILTERS, ids=str)
def test_no_list_by_label_scans_or_sorts(connection: SqliteConnection, where: RunFilter) -> None:
    sql, _ = reads.filtered(DIALECT.sql, replace(where, labels=LABELS), "list")
    steps = plan(connection, sql)
    assert scans(steps) == []
    assert not any("TEMP B-TREE" in step for step in steps)
    if where.state is RunState.WAITING_USER:
        assert "runs_by_state (state=? AND rowid<?)" in steps[0]
    else:
        assert steps[0].startswith("SEARCH wanted USING")
        assert "name=? AND value=?" in steps[0]
        assert ("ended=?" in steps[0]) == (where.state is not None)


@pytest.mark.parametrize("where", FILTERS, ids=str)
@pytest.mark.parametrize("labels", [frozenset(), LABELS], ids=["any", "labelled"])
def test_no_count_scans(connection: SqliteConnection, where: RunFilter, labels: LabelSet) -> None:
    sql, _ = reads.filtered(DIALECT.sql, replace(where, labels=labels), "count")
    steps = plan(connection, sql)
    assert scans(steps) == []
    assert any(step.startswith("SEARCH runs USING") for step in steps)


def test_a_scan_would_be_seen(connection: SqliteConnection) -> None:
    assert scans(plan(connection, "SELECT doc FROM runs WHERE doc = ?"))
    assert scans(plan(connection, DIALECT.sql["count_all_runs"]))


@pytest.mark.parametrize("name", ["pending", "pending_by_deadline", "closed_questions", "oldest_open_questions"])
def test_no_list_of_questions_sorts(connection: SqliteConnection, name: str) -> None:
    assert [step for step in plan(connection, STATEMENTS[name]) if "TEMP B-TREE" in step] == []


# Steps: the same reads, in a store with many times as many runs.


async def answered(store: Store, run: Run) -> Run:
    return await reply(store, await waiting(store, run))


async def fill(store: Store, count: int) -> None:
    """`count` of each kind of run that a read must not stumble over, and always the same few that it is to find."""
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (succeeded, {}),
        (succeeded, {"skill": "rare"}),
        (answered, {"labels": {"customer": "crowd", "plan": "trial"}}),
        (succeeded, {"labels": {"plan": "trial"}}),
        (answered, {}),
        (waiting, {}),
        (waiting, {"options": DECIDED, "owner": "crowd"}),
        (create, {"owner": "crowd"}),
        (create, {"owner": "me", "engine": "full"}),
    ]
    crowd = itertools.product(range(count), kinds)
    await asyncio.gather(
        *(
            make(store, new_run(f"{make.__name__}-{n}-{'-'.join(sorted(changes))}", **changes))
            for n, (make, changes) in crowd
        )
    )
    for number in range(3):
        await create(store, new_run(f"mine-{number}", owner="me"))
        await running(store, new_run(f"busy-{number}", owner="me", engine="rare"))
        await waiting(store, new_run(f"late-{number}", owner="me", options=DECIDED))
        await answered(store, new_run(f"labelled-{number}", owner="me", labels=dict(LABELS)))
        await succeeded(store, new_run(f"labelled-over-{number}", owner="me", labels=dict(LABELS)))


LATE, ANNOUNCED = at(TIMEOUT_SEC - 60), timedelta(seconds=600)
FAR = datetime.max.replace(tzinfo=NOON.tzinfo)


def runs(name: str, **given: Any) -> Callable[[SqliteConnection], object]:
    return lambda connection: reads.runs(connection, name, rows.values(**given))


def fetched(name: str, **given: Any) -> Callable[[SqliteConnection], object]:
    return lambda connection: connection.fetch(connection.sql[name], rows.values(**given))


READS: dict[str, Callable[[SqliteConnection], Any]] = {
    "get": lambda connection: reads.get(connection, "mine-0"),
    "events": lambda connection: reads.events(connection, "mine-0", 0, 10, PAGE_BYTES),
    "last messages": lambda connection: reads.last_messages(connection, "mine-0", 3) == (),
    "interactions": lambda connection: reads.interactions(connection, "late-0"),
    "list": lambda connection: reads.list_runs(connection, RunFilter(), None, 3),
    "list by state": lambda connection: reads.list_runs(connection, RunFilter(state=RunState.RUNNING), None, 3),
    "list by all": lambda connection: reads.list_runs(
        connection, RunFilter(state=RunState.SUCCEEDED, skill="rare", engine="rare"), None, 3
    ),
    "pending": lambda connection: reads.pending(connection, None, 3, InboxFilter(), InboxOrder.OLDEST),
    "pending by deadline": lambda connection: reads.pending(connection, None, 3, InboxFilter(), InboxOrder.DEADLINE),
    "closed questions": lambda connection: reads.closed_questions(connection, None, 3, frozenset()),
    "queued": lambda connection: reads.queued(connection, ["me"], ["full"], 3, UNLIMITED),
    "queued for all": lambda connection: reads.queued(connection, ["me", "crowd"], [], 3, UNLIMITED),
    "longest queued": runs("longest_queued", owners=["me", "crowd"]),
    "held": runs("held"),
    "held by one worker": runs("held_by", workers=["worker"]),
    "workers": fetched("workers"),
    "overdue": runs("overdue", owners=["me", "crowd"], at=FAR, limit=3),
    "parked": lambda connection: runs("parked", engine="scripted", at=NOON)(connection) == (),
    "next deadline": fetched("next_deadline", owners=["me", "crowd"]),
    "expiring": runs("expiring", owners=["me", "crowd"], at=LATE, before=ANNOUNCED, limit=3),
    "next expiring": fetched("next_expiring", owners=["me", "crowd"], at=NOON, before=ANNOUNCED),
    "owners": fetched("owners"),
    "finished runs": lambda connection: statistics.finished_by(connection, "skill", NOON.date(), NOON.date(), 3),
    "answer times": lambda connection: statistics.answer_times(connection, NOON.date(), 10),
    "labels of a run": lambda connection: reads.check_labels(connection, "labelled-0", LABELS) is None,
    "list by labels": lambda connection: reads.list_runs(connection, RunFilter(labels=LABELS), None, 9).items,
    "list by labels and state": lambda connection: (
        reads.list_runs(connection, RunFilter(labels=LABELS, state=RunState.SUCCEEDED), None, 9).items
    ),
    "closed questions by labels": lambda connection: reads.closed_questions(connection, None, 9, LABELS).items,
    "finished runs by labels": lambda connection: statistics.finished_by(
        connection, "skill", NOON.date(), NOON.date(), 3, LABELS
    ),
    "answer times by labels": lambda connection: statistics.answer_times(connection, NOON.date(), 10, LABELS),
    "counts": lambda connection: statistics.count_by_state(connection, RunFilter(), 3),
}


@pytest.fixture(scope="module")
def small_and_large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folders = (tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("large"))

    async def main() -> None:
        for folder, count in zip(folders, (5, 100), strict=True):
            async with opened("sqlite", folder) as store:
                await fill(store, count)

    asyncio.run(main())
    return folders


def steps(folder: Path, read: Callable[[SqliteConnection], Any]) -> int:
    taken: list[int] = []
    with closing(open_reader(folder / "askback.db")) as connection:
        connection.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda event: taken.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )
        assert read(connection)
        connection.trace_v2(0)
    return sum(taken)


@pytest.mark.parametrize("name", sorted(READS))
def test_a_read_takes_as_many_steps_among_many_runs_as_among_few(small_and_large: tuple[Path, Path], name: str) -> None:
    small, large = (steps(folder, READS[name]) for folder in small_and_large)
    assert 0 < large <= small * 1.2


def test_a_read_that_goes_through_all_would_be_seen(small_and_large: tuple[Path, Path]) -> None:
    small, large = (steps(folder, runs("owned_by", owner="crowd")) for folder in small_and_large)
    assert large > small * 5
