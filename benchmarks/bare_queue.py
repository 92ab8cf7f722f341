"""Procrastinate alone: empty jobs that are deferred, fetched and finished, without Askback.

python benchmarks/bare_queue.py ADDRESS          # one worker, until it is ended
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import procrastinate
from fleets import ask
from procrastinate.jobs import Status
from servers import cpu_sec

IDLE_SEC = 0.002

# Every job would be a line in the log.
logging.getLogger("procrastinate").setLevel(logging.ERROR)


def _app(address: str, connections: int) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=address, min_size=1, max_size=connections)
    return procrastinate.App(connector=connector)


async def prepare(address: str) -> None:
    async with _app(address, 1).open_async() as app:
        await app.schema_manager.apply_schema_async()


async def defer(address: str, jobs: int, clients: int) -> None:
    async with _app(address, clients).open_async() as app:
        left = iter(range(jobs))

        async def defer_more() -> None:
            for number in left:
                await app.configure_task("empty", queue="shared/scripted").defer_async(run=str(number), epoch=1)

        await asyncio.gather(*(defer_more() for _ in range(clients)))


async def work(address: str) -> None:
    async with _app(address, 1).open_async() as app:
        manager = app.job_manager
        worker = await manager.register_worker()
        print("ready", flush=True)
        while True:
            job = await manager.fetch_job(["shared/scripted"], worker)
            if job is None:
                await asyncio.sleep(IDLE_SEC)
            else:
                await manager.finish_job(job, Status.SUCCEEDED, delete_job=True)


@contextmanager
def workers(address: str, count: int) -> Iterator[list[int]]:
    """The process ids of so many workers."""
    argv = [sys.executable, str(Path(__file__).resolve()), address]
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for each in started:
            assert each.stdout is not None
            each.stdout.readline()
        yield [each.pid for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


def jobs_per_sec(address: str, jobs: int, count: int, clients: int) -> tuple[float, float]:
    """With so many workers; and their CPU time in milliseconds a job."""
    with workers(address, count) as pids:
        began, cpu = time.perf_counter(), sum(map(cpu_sec, pids))
        asyncio.run(defer(address, jobs, clients))
        while ask(address, "SELECT 1 FROM procrastinate_jobs LIMIT 1"):
            time.sleep(IDLE_SEC)
        return jobs / (time.perf_counter() - began), 1000 * (sum(map(cpu_sec, pids)) - cpu) / jobs


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
