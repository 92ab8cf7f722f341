"""What runs that wait in the store cost the others: the same work beside few and beside many, in turns.

python benchmarks/waiting_runs.py [--few 10] [--many 10000] [--finished 0] [--replies 500] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import report

from askback.core import lifecycle
from askback.core.interactions import Question
from askback.core.outcomes import AskUser, Final
from askback.core.runs import (
    SHARED,
    Handle,
    Mode,
    Profile,
    ProfileKind,
    Run,
    RunOptions,
    RunRequest,
    RunState,
    SkillRef,
    TurnKind,
    TurnOrder,
)
from askback.core.signals import HandleNamed, Replied, SlotAcquired, TurnEnded
from askback.store.base import Store, move
from askback.store.pages import RunFilter
from askback.store.sqlite import SqliteStore
from askback.store.sqlite.connection import open_writer

NOW = datetime.now(UTC)
OPENINGS = 9
CALLERS = 64
COMMIT_SEC = 3.0

COPY_RUNS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO runs (id, version, epoch, state, ended, skill, engine, owner, worker, created_at, asked_at, deadline_at,
    last_seq, doc)
SELECT id || '-' || n, version, epoch, state, ended, skill, engine, owner, worker, created_at, asked_at,
    deadline_at + n, last_seq, json_set(doc, '$.id', id || '-' || n)
FROM runs, numbers WHERE id = :id
"""
COPY_PARTS = """
WITH copies AS MATERIALIZED (SELECT number FROM runs WHERE id > :id || '-' AND id < :id || '.')
INSERT INTO {table} (run, {columns})
SELECT copies.number, {columns} FROM {table} AS part, copies
WHERE part.run = (SELECT number FROM runs WHERE id = :id)
"""
PARTS = {
    "requests": "input, parameter",
    "results": "data",
    "interactions": "interaction_id, outcome, asked_at, answered_at, doc",
    "events": "seq, type, at, data",
}


# Lives.


def new_run(run_id: str) -> Run:
    return Run(
        id=run_id,
        state=RunState.QUEUED,
        skill=SkillRef(id="skill", version="1.0", digest="0" * 64),
        engine="scripted",
        mode=Mode.INTERACTIVE,
        profile=Profile(kind=ProfileKind.RESUMABLE, reason="it resumed", session_timeout_sec=86400),
        options=RunOptions(interactive_require_user_reply=False),
        next_turn=TurnOrder(kind=TurnKind.START, attempt_number=1),
        created_at=NOW,
        updated_at=NOW,
    )


async def running(store: Store, run_id: str) -> Run:
    run = await store.create(lifecycle.create(new_run(run_id), {"skill": "skill"}), RunRequest(input={"topic": "tea"}))
    run = await move(store, run_id, SlotAcquired(worker="worker", at=NOW), seen=run)
    handle = Handle(engine="scripted", handle_type="session_id", handle_value=run_id, created_at_turn=1)
    return await move(store, run_id, HandleNamed(epoch=1, handle=handle, at=NOW), seen=run)


async def waiting(store: Store, run_id: str) -> Run:
    run = await running(store, run_id)
    outcome = AskUser(question=Question(prompt="Which colour?", options=("red", "blue")))
    return await move(store, run_id, TurnEnded(epoch=1, outcome=outcome, at=NOW), seen=run)


async def finished(store: Store, run_id: str) -> Run:
    run = await running(store, run_id)
    ended = TurnEnded(epoch=1, outcome=Final(data={"pages": [1, 2, 3]}, done=True), at=NOW)
    return await move(store, run_id, ended, seen=run)


async def reply(store: Store, run_id: str) -> None:
    signal = Replied(interaction_id="question-1", response="red", owner=SHARED, at=NOW)
    await move(store, run_id, signal)


# Stores.


@dataclass(kw_only=True)
class Bench:
    path: Path
    waiting: int
    finished: int
    figures: dict[str, list[float]] = field(default_factory=dict)

    async def fill(self, to_answer: int) -> None:
        """One run of each kind is lived through; the others are copies of its rows. `to_answer` more wait for real."""
        store = await SqliteStore.open(self.path)
        await waiting(store, "waiting")
        await finished(store, "finished")
        await asyncio.gather(*(waiting(store, f"answer-{n}") for n in range(to_answer)))
        await store.close()
        self.copy("waiting", self.waiting)
        self.copy("finished", self.finished)

    def copy(self, run_id: str, count: int) -> None:
        if count < 2:
            return
        connection = open_writer(self.path)
        connection.execute("PRAGMA synchronous = OFF; BEGIN IMMEDIATE")
        connection.execute(COPY_RUNS, {"id": run_id, "count": count - 1})
        for table, columns in PARTS.items():
            connection.execute(COPY_PARTS.format(table=table, columns=columns), {"id": run_id})
        connection.execute("COMMIT")
        connection.close()

    async def time(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await work()
        self.figures.setdefault(what, []).append((time.perf_counter() - began) * 1000)


async def time_opening(benches: Sequence[Bench]) -> None:
    for _ in range(OPENINGS):
        for bench in benches:
            opened: list[SqliteStore] = []

            async def open_it(bench: Bench = bench, opened: list[SqliteStore] = opened) -> None:
                opened.append(await SqliteStore.open(bench.path))

            await bench.time("open", open_it)
            await opened[0].close()


async def time_work(benches: Sequence[Bench], replies: int) -> None:
    async with AsyncExitStack() as stack:
        stores = []
        for bench in benches:
            stores.append(await SqliteStore.open(bench.path))
            stack.push_async_callback(stores[-1].close)
        for number in range(replies):
            for bench, store in zip(benches, stores, strict=True):
                for what, work in works(store, number).items():
                    await bench.time(what, work)


def works(store: Store, number: int) -> dict[str, Callable[[], Awaitable[object]]]:
    return {
        "reply": lambda: reply(store, f"answer-{number}"),
        "next_deadline": lambda: store.next_deadline([SHARED]),
        "overdue": lambda: store.overdue([SHARED], NOW + timedelta(hours=1), 100),
        "queued": lambda: store.queued([SHARED], without_engines=[], limit=4),
        "pending page": lambda: store.pending(limit=10),
        "list page": lambda: store.list_runs(RunFilter(), limit=10),
    }


async def commits_per_sec(path: Path) -> float:
    """Whole lives up to a question, by many callers at once, each waiting for its own commit."""
    store = await SqliteStore.open(path)
    moves = 0
    end = time.perf_counter() + COMMIT_SEC

    async def call(caller: int) -> None:
        nonlocal moves
        lives = 0
        while time.perf_counter() < end:
            await waiting(store, f"run-{caller}-{lives}")
            lives += 1
            moves += 4

    began = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    rate = moves / (time.perf_counter() - began)
    await store.close()
    return rate


# The report.


async def compare(asked: argparse.Namespace, folder: Path, made: report.Report) -> None:
    benches = [
        Bench(path=folder / name / "askback.db", waiting=count, finished=asked.finished)
        for name, count in (("few", asked.few), ("many", asked.many))
    ]
    for bench in benches:
        report.progress(f"storing {bench.waiting:,} waiting and {bench.finished:,} finished runs")
        await bench.fill(asked.replies)
    report.progress("opening the stores")
    await time_opening(benches)
    report.progress(f"{asked.replies} replies to each")
    await time_work(benches, asked.replies)
    few, many = benches
    for what, seen in many.figures.items():
        made.add(what, "ms", seen, few.figures[what])
    report.progress(f"commits of {CALLERS} callers")
    rate = await commits_per_sec(folder / "commits" / "askback.db")
    made.add(f"commits of {CALLERS} callers at once", "/s", [rate], more_is_better=True)


def measure(asked: argparse.Namespace) -> report.Report:
    title = f"The store with {asked.many:,} waiting runs"
    made = report.Report("waiting_runs", title, f"the same with {asked.few:,} waiting runs")
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        asyncio.run(compare(asked, Path(name), made))
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--few", type=int, default=10)
    arguments.add_argument("--many", type=int, default=10_000)
    arguments.add_argument("--finished", type=int, default=1, help="runs that are over, in both stores")
    arguments.add_argument("--replies", type=int, default=500)
    arguments.add_argument("--folder", type=Path, default=None, help="where the stores are made; decides which disk")
    report.run(arguments, measure)
