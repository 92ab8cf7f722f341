"""How many commits with a notification a PostgreSQL server performs, by the number of programs that listen.

python benchmarks/listeners.py [--listening 1,10,50,100] [--writers 4] [--seconds 3] [--rounds 3]

A listener here only listens, as the connection of a program does; what a program does when it hears something is left out.
"""

from __future__ import annotations

import argparse
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import fleets
import psycopg
import report
from fleets import ask

COMMIT = (
    "WITH noted AS (UPDATE commits SET last = last + 1 WHERE writer = %(writer)s)"
    " SELECT CASE WHEN %(message)s::text IS NOT NULL THEN pg_notify('askback', %(message)s) END"
)
"""As every write of Askback ends."""
MESSAGE = f"{'0' * 16} moved 1m7n65txwwy71vbd"


def listen(address: str, count: int) -> None:
    """Until the process is ended. For as many programs."""
    waiting = select.epoll()
    opened = {}
    for _ in range(count):
        connection = psycopg.connect(address, autocommit=True)
        connection.execute("LISTEN askback")
        opened[connection.fileno()] = connection
        waiting.register(connection.fileno(), select.EPOLLIN)
    print("ready", flush=True)
    while True:
        for descriptor, _ in waiting.poll():
            pgconn = opened[descriptor].pgconn
            pgconn.consume_input()
            while pgconn.notifies() is not None:
                pass


@contextmanager
def listeners(address: str, count: int) -> Iterator[None]:
    argv = [sys.executable, str(Path(__file__).resolve()), "--listen", address, str(count)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def commits_per_sec(address: str, writers: int, seconds: float, message: str | None) -> float:
    done = [0] * writers
    end = time.perf_counter() + seconds

    def write(number: int) -> None:
        with psycopg.connect(address, autocommit=True, options="-c search_path=askback") as connection:
            while time.perf_counter() < end:
                connection.execute(COMMIT, {"writer": f"writer-{number}", "message": message})
                done[number] += 1

    began = time.perf_counter()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(done) / (time.perf_counter() - began)


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report("listeners", "Commits with a notification, by listening programs", "commits without one")
    if (reason := fleets.missing()) is not None:
        report.progress(f"left out: {reason}")
        return made
    counts = report.numbers(asked.listening)
    figures: dict[int, list[float]] = defaultdict(list)
    floor: list[float] = []
    with ExitStack() as stack:
        database = stack.enter_context(fleets.database())
        address = database.make()
        for number in range(asked.writers):
            ask(address, "INSERT INTO commits (writer, last) VALUES (%s, 0)", (f"writer-{number}",))
        for number in range(asked.rounds):
            report.progress(f"round {number + 1} of {asked.rounds}")
            floor.append(commits_per_sec(address, asked.writers, asked.seconds, None))
            for count in counts:
                with listeners(address, count):
                    figures[count].append(commits_per_sec(address, asked.writers, asked.seconds, MESSAGE))
    for count in counts:
        made.add(f"commits, {count} listeners", "/s", figures[count], floor, x=count, more_is_better=True)
    return made


if __name__ == "__main__":
    if sys.argv[1:2] == ["--listen"]:
        listen(sys.argv[2], int(sys.argv[3]))
    arguments = report.parser(__doc__)
    arguments.add_argument("--listening", default="1,10,50,100", help="how many programs, one measurement each")
    arguments.add_argument("--writers", type=int, default=4, help="connections that commit at the same time")
    arguments.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    arguments.add_argument("--rounds", type=int, default=3)
    report.run(arguments, measure)
