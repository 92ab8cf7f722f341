"""How long an engine's line takes to the clients that follow its run: a real server, real engine processes, many streams.

python benchmarks/events.py [--streams 1x1,1x100,1x1000,200x5] [--seconds 10]

`200x5` is 200 runs with 5 clients each. The floor is the same program, read through a pipe.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from servers import Server, prepare, served, submit
from thin_http import connections

ENGINE = """
import json, os, sys, time
if "--version" in sys.argv or "--help" in sys.argv:
    print("1.0 --resume")
    sys.exit()
def tell(**event):
    print(json.dumps(event), flush=True)
tell(type="session.started", session_id="ses-00000000-0000-4000-8000-000000000000")
tell(type="turn.started", turn=1)
while not os.path.exists({plan!r}):
    time.sleep(0.05)
pause, lines = open({plan!r}).read().split()
time.sleep(float(pause) * (os.getpid() % 97) / 97)
for _ in range(int(lines)):
    time.sleep(float(pause))
    tell(type="message", text="at %d." % time.monotonic_ns())
tell(type="message", text='{{"__SKILL_DONE__": true}}')
tell(type="turn.completed")
"""
STAMP = re.compile(rb"at (\d+)\.")
LINES_PER_SEC = 100.0
"""Of all engines together, so that many runs are not simply more lines."""
SHORTEST_PAUSE = 0.25
AT_ONCE = 32
ENOUGH = 1000
"""Below so many measurements, the clock of CPU times is too coarse."""


class Client(asyncio.Protocol):
    """Notes when each of the engine's lines arrived. Reads nothing else of the stream."""

    def __init__(self, request: bytes) -> None:
        self.delays_ms: list[float] = []
        self.begun = asyncio.Event()
        self.over = asyncio.Event()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        self.begun.set()
        self.delays_ms += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(data)]

    def connection_lost(self, error: Exception | None) -> None:
        self.begun.set()
        self.over.set()


def stream(server: Server, run_id: str) -> bytes:
    return (
        f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {server.address}\r\nAccept: text/event-stream\r\n"
        f"Authorization: Bearer {server.token}\r\nConnection: close\r\n\r\n"
    ).encode()


def pace(runs: int, seconds: float) -> tuple[float, int]:
    """Seconds between two lines of one engine, and how many lines it prints."""
    pause = max(SHORTEST_PAUSE, runs / LINES_PER_SEC)
    return pause, max(2, round(seconds / pause))


def let_go(plan: Path, pause: float, lines: int) -> None:
    """The engines wait for this file."""
    fresh = plan.with_suffix(".new")
    fresh.write_text(f"{pause} {lines}")
    fresh.rename(plan)


async def follow(server: Server, plan: Path, runs: int, clients: int, seconds: float) -> tuple[list[float], float]:
    """The delays that all clients saw, in milliseconds, and the server's CPU time in microseconds for each of them."""
    host, port = server.address.split(":")
    async with connections(server.url, server.token, 1) as [http]:
        ids = [await submit(http, "auto") for _ in range(runs)]
    followers = [Client(stream(server, run_id)) for run_id in ids for _ in range(clients)]
    for place in range(0, len(followers), AT_ONCE):
        # A server drops connections if too many have not sent their token yet.
        for each in followers[place : place + AT_ONCE]:
            await asyncio.get_running_loop().create_connection(lambda each=each: each, host, int(port))
        for each in followers[place : place + AT_ONCE]:
            await each.begun.wait()
    pause, lines = pace(runs, seconds)
    used = server.cpu_sec()
    let_go(plan, pause, lines)
    for each in followers:
        await each.over.wait()
    used = server.cpu_sec() - used
    plan.unlink()
    delays = [delay for each in followers for delay in each.delays_ms]
    assert len(delays) == runs * clients * lines, f"{len(delays)} lines seen of {runs * clients * lines}"
    return delays, 1e6 * used / len(delays)


def by_pipe(engine: Path, plan: Path, seconds: float) -> list[float]:
    """Milliseconds from the engine's line to a program that reads it directly."""
    process = subprocess.Popen([sys.executable, "-I", "-S", str(engine)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    pause, lines = pace(1, seconds)
    let_go(plan, pause, lines)
    delays = []
    for line in process.stdout:
        now = time.monotonic_ns()
        delays += [(now - int(stamp)) / 1e6 for stamp in STAMP.findall(line)]
    process.stdout.close()
    process.wait()
    plan.unlink()
    return delays


def measure(asked: argparse.Namespace) -> report.Report:
    made = report.Report(
        "events", "Time from an engine's line to a client of the event stream", "through a pipe, by hand"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # A pause of ours would count as one of the server's.
    gc.disable()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        plan, engine = folder / "plan", folder / "engine.py"
        engine.write_text(ENGINE.format(plan=str(plan)))
        streams = [tuple(map(int, each.split("x"))) for each in asked.streams.split(",")]
        floor = by_pipe(engine, plan, min(asked.seconds, 5.0))
        # In a sandbox, the engine would not see the file that it waits for.
        command = [sys.executable, "-I", "-S", str(engine)]
        with served(folder, folder / "data", slots=max(runs for runs, _ in streams), command=command) as server:
            for runs, clients in streams:
                report.progress(f"{runs} runs with {clients} clients each")
                delays, used = asyncio.run(follow(server, plan, runs, clients, asked.seconds))
                label = f"{runs} runs, {clients} clients each"
                made.add(label, "ms", delays, floor, x=runs * clients)
                if len(delays) >= ENOUGH:
                    made.add(f"{label}: the server's CPU time for a line and a client", "µs", [used], x=runs * clients)
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--streams", default="1x1,1x100,1x1000,200x5", help="runs x clients, one measurement each")
    arguments.add_argument("--seconds", type=float, default=10.0, help="how long the engines of a measurement print")
    report.run(arguments, measure)
