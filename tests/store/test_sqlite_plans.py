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
from askback.core.runs import Run, RunState
from askback.store.base import LabelSet, RunFilter, Store
from askback.store.sql import reads, statistics
from askback.store.sqlite.connection import DIALECT, SqliteConnection, open_reader, open_writer

pytestmark = pytest.mark.sqlite

statements = DIALECT.statements

FOR_PEOPLE = {"count_runs", "inbox_count"}
"""Statements that may read all there is; none of them is on the way of a run."""

STATEMENTS = {
    **statements("writes"),
    **statements("deletion"),
    **statements("chats"),
    **{f"open_questions.{name}": sql for name, sql in statements("open_questions").items()},
    **statements("outbox"),
    **statements("queue"),
    **{
        name: sql
        for name, sql in statements("reads").items()
        if name not in FOR_PEOPLE | {"list_runs", "list_labelled"}
    },
    **{name: sql for name, sql in statements("statistics").items() if "{" not in sql and name != "labelled_days"},
    **{f"finished_by_{column}": statistics.adding_up_by(DIALECT, column) for column in ("day", "skill", "engine")},
    "finished_labelled": statistics.adding_up_by(DIALECT, "day", frozenset({("customer", "4711")})),
}
FILTERS = [
    RunFilter(state=state, skill=skill, engine=engine)
    for state, skill, engine in itertools.product(
        (None, RunState.WAITING_USER, RunState.FAILED), (None, "skill"), (None, "engine")
    )
]
LABELS = frozenset({("customer", "4711"), ("plan", "trial")})
MAY_BE_SCANNED = (
    r"SCAN ((owners|times|named|json_each) VIRTUAL TABLE|lanes|parties|heads|found|CONSTANT ROW|\(subquery-\d+\))"
)
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
    sql, _ = reads.filtered(DIALECT, where)
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
    sql, _ = reads.filtered(DIALECT, replace(where, labels=LABELS))
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
    sql, _ = statistics.counting(DIALECT, replace(where, labels=labels))
    steps = plan(connection, sql)
    assert scans(steps) == []
    assert any(step.startswith("SEARCH runs USING") for step in steps)


def test_a_scan_would_be_seen(connection: SqliteConnection) -> None:
    assert scans(plan(connection, "SELECT doc FROM runs WHERE doc = ?"))
    assert scans(plan(connection, statements("reads")["count_runs"]))


@pytest.mark.parametrize("name", ["pending", "pending_by_deadline", "closed_questions", "open_questions.oldest"])
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
READS: dict[str, Callable[[SqliteConnection], Any]] = {
    "get": lambda connection: reads.get(connection, "mine-0"),
    "events": lambda connection: reads.events(connection, "mine-0", 0, 10),
    "interactions": lambda connection: reads.interactions(connection, "late-0"),
    "list": lambda connection: reads.list_runs(connection, RunFilter(), None, 3),
    "list by state": lambda connection: reads.list_runs(connection, RunFilter(state=RunState.RUNNING), None, 3),
    "list by all": lambda connection: reads.list_runs(
        connection, RunFilter(state=RunState.SUCCEEDED, skill="rare", engine="rare"), None, 3
    ),
    "pending": lambda connection: reads.pending(connection, None, 3),
    "pending by deadline": lambda connection: reads.pending(connection, None, 3, order=InboxOrder.DEADLINE),
    "closed questions": lambda connection: reads.closed_questions(connection, None, 3),
    "queued": lambda connection: reads.queued(connection, ["me"], without_engines=["full"], limit=3),
    "queued for all": lambda connection: reads.queued(connection, ["me", "crowd"], without_engines=[], limit=3),
    "longest queued": lambda connection: reads.longest_queued(connection, ["me", "crowd"]),
    "held": reads.held,
    "held by one worker": lambda connection: reads.held(connection, ["worker"]),
    "workers": reads.workers,
    "overdue": lambda connection: reads.overdue(connection, ["me", "crowd"], FAR, 3),
    "next deadline": lambda connection: reads.next_deadline(connection, ["me", "crowd"]),
    "expiring": lambda connection: reads.expiring(connection, ["me", "crowd"], LATE, ANNOUNCED, 3),
    "next expiring": lambda connection: reads.next_expiring(connection, ["me", "crowd"], NOON, ANNOUNCED),
    "owners": reads.owners,
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
    small, large = (steps(folder, lambda connection: reads.owned_by(connection, "crowd")) for folder in small_and_large)
    assert large > small * 5
