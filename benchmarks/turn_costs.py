"""What a turn costs the database and the file store: rows, bytes, transactions, notifications and requests.

python benchmarks/turn_costs.py [--runs 50] [--rounds 3]

Each run asks once and is answered: two turns, of an engine that prints three lines in each. The files of runs are in an S3
server on loopback, which notes its requests. Needs what `fleet.py` needs, and moto.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import bare_queue
import fleets
import psycopg
import report
from fleets import Database, Fleet, ask
from servers import prepare, reply, submit, until
from thin_http import connections

TURNS = 2
OURS = "askback"
UNHEARD = "procrastinate_any_queue_v1"
"""Of the two notifications that Procrastinate sends for a job, one; no program of Askback listens to them."""
REQUEST = re.compile(r'"(GET|PUT|HEAD|DELETE) /')
ROWS = """
SELECT sum(n_live_tup), sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE schemaname = 'askback'
"""
Figures = dict[str, list[float]]


class Ear:
    """Hears every notification on the database."""

    def __init__(self, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)
        self._connection.execute(f"LISTEN {OURS}")
        self._connection.execute(f"LISTEN {UNHEARD}")

    def heard(self) -> Counter[str]:
        """How many since the last call, by their kind. A statement makes the server send what it still has."""
        self._connection.execute("SELECT 1")
        kinds: Counter[str] = Counter()
        for each in self._connection.notifies(timeout=0.2):
            kinds[each.payload.split(" ", 2)[1] if each.channel == OURS else "unheard"] += 1
        return kinds

    def close(self) -> None:
        self._connection.close()


async def lives(fleet: Fleet, runs: int) -> None:
    """Runs that ask once and are answered, one after the other."""
    async with connections(fleet.url, fleet.token, 1) as [http]:
        for _ in range(runs):
            run_id = await submit(http, "interactive")
            await reply(http, await until(http, run_id, "waiting_user"))
            await until(http, run_id, "succeeded")


def measure_round(fleet: Fleet, database: Database, requests: Path, ear: Ear, runs: int, figures: Figures) -> None:
    turns = TURNS * runs
    ear.heard()
    seen = Counter(REQUEST.findall(requests.read_text()))
    before, first = database.usage(), _last_run(fleet)
    asyncio.run(lives(fleet, runs))
    used = database.usage() - before
    figures["write transactions of a turn, times"].append(used.transactions / turns)
    figures["WAL of a turn, KB"].append(used.wal_bytes / turns / 1024)
    heard = ear.heard()
    figures["notifications of moved runs in a turn, times"].append(heard["moved"] / turns)
    figures["notifications of events in a turn, times"].append(heard["events"] / turns)
    figures["notifications that nobody hears in a turn, times"].append(2 * heard["unheard"] / turns)
    seen = Counter(REQUEST.findall(requests.read_text())) - seen
    figures["objects written in a turn, times"].append(seen["PUT"] / turns)
    figures["objects read in a turn, times"].append((seen["GET"] + seen["HEAD"]) / turns)
    [(events,)] = ask(fleet.address, "SELECT count(*) FROM events WHERE run > %s", (first,))
    figures["events of a turn, rows"].append(events / turns)


def _last_run(fleet: Fleet) -> int:
    [(last,)] = ask(fleet.address, "SELECT coalesce(max(number), 0) FROM runs")
    return int(last)


def measure_connections(database: Database, fleet: Fleet, figures: Figures) -> None:
    """Of each kind of program, after it was used."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    both = ask(fleet.address, query)[0][0]
    fleet.resize(0)
    alone = ask(fleet.address, query)[0][0]
    figures["connections of a server, times"].append(alone - 1)
    figures["connections of a worker, times"].append(both - alone)


def measure_bare(address: str, database: Database, jobs: int, floor: Figures) -> None:
    before = database.usage()
    bare_queue.jobs_per_sec(address, jobs, 1, 1)
    used = database.usage() - before
    floor["write transactions of a turn, times"].append(used.transactions / jobs)
    floor["WAL of a turn, KB"].append(used.wal_bytes / jobs / 1024)


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report(
        "turn_costs", "What a turn costs the database and the file store", "an empty job of Procrastinate"
    )
    if (reason := fleets.missing()) is not None:
        report.progress(f"left out: {reason}")
        return made
    figures: Figures = defaultdict(list)
    floor: Figures = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prepare(folder)
        database = stack.enter_context(fleets.database())
        bare = database.make_empty()
        asyncio.run(bare_queue.prepare(bare))
        store = stack.enter_context(fleets.object_store(folder))
        fleet = stack.enter_context(fleets.fleet(folder, database.make(), files=store.address, env=store.env))
        fleet.resize(1)
        asyncio.run(lives(fleet, 1))
        ear = Ear(fleet.address)
        stack.callback(ear.close)
        for number in range(asked.rounds):
            report.progress(f"round {number + 1} of {asked.rounds}")
            measure_round(fleet, database, store.log, ear, asked.runs, figures)
            measure_bare(bare, database, asked.runs, floor)
        measure_connections(database, fleet, figures)
    for what, samples in figures.items():
        name, _, unit = what.rpartition(", ")
        made.add(name, unit, samples, floor.get(what, ()))
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--runs", type=int, default=50, help="in each round")
    arguments.add_argument("--rounds", type=int, default=3)
    report.run(arguments, measure)
