"""A real server by its figures: its start and its memory, whole runs over HTTP beside a bare loop that only starts the
same program, a reply's way to the engine, and what runs that wait cost in memory and at a restart.

python benchmarks/server.py [--runs 400] [--slots 64] [--waiting 100000] [--sandbox off]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from thin_http import Connection, connections
from waiting_runs import Bench, p99

SERVE = "import sys; from askback.cli.commands.serve import command; sys.exit(command.main(standalone_mode=False))"
# The least that a program can do that is still an engine: what it takes is the floor, and not ours.
ENGINE = """\
#!/bin/sh
case "$*" in *--help*) echo "--resume --stay 1.0"; exit;; *--version*) echo 1.0; exit;; esac
date +%s%N >> "$HOME/started"
echo '{"type":"session.started","session_id":"ses-00000000-0000-4000-8000-000000000000"}'
echo '{"type":"turn.started","turn":1}'
case "$*" in
*--resume*|*--mode=auto*) echo '{"type":"message","text":"{\\\\"__SKILL_DONE__\\\\": true}"}';;
*) echo '{"type":"message","text":"Which colour?"}';;
esac
echo '{"type":"turn.completed"}'
"""
TICK = os.sysconf("SC_CLK_TCK")
CLIENTS = 32


class Server:
    def __init__(self, folder: Path, data_dir: Path, slots: int, sandbox: str) -> None:
        config = folder / "askback.toml"
        engine = f"[engines.scripted]\ncommand = {json.dumps([str(folder / 'engine.sh')])}\n"
        config.write_text(f"skills_dir = ['skills']\nslots = {slots}\nsandbox = '{sandbox}'\n{engine}")
        argv = [sys.executable, "-c", SERVE, "--port=0", "--json", f"--config={config}", f"--data-dir={data_dir}"]
        began = time.perf_counter()
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.url, self.token = told["url"], told["token"]
        while not self._is_healthy():
            time.sleep(0.005)
        self.start_sec = time.perf_counter() - began

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz").json()["status"] == "ok"
        except httpx.TransportError:
            return False

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_sec(self) -> float:
        """Of the server's own process, without its children."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


@contextmanager
def served(folder: Path, data_dir: Path, *, slots: int, sandbox: str) -> Iterator[Server]:
    server = Server(folder, data_dir, slots, sandbox)
    try:
        yield server
    finally:
        server.process.terminate()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()


async def submit(http: Connection, mode: str) -> str:
    return str((await http.post("/v1/runs", {"skill": "instant", "engine": "scripted", "mode": mode}))["id"])


async def until_none(http: Connection, *states: str) -> None:
    while any([(await http.get(f"/v1/runs?state={state}&limit=1"))["items"] for state in states]):
        await asyncio.sleep(0.05)


async def whole_runs(server: Server, runs: int) -> tuple[float, float]:
    """Seconds of wall time, and of the server's CPU."""
    async with connections(server.url, server.token, CLIENTS) as clients:
        await submit(clients[0], "auto")
        await until_none(clients[0], "queued", "running")
        began, cpu = time.perf_counter(), server.cpu_sec()
        left = iter(range(runs))

        async def submit_more(http: Connection) -> None:
            for _ in left:
                await submit(http, "auto")

        await asyncio.gather(*map(submit_more, clients))
        await until_none(clients[0], "queued", "running")
        seconds, used = time.perf_counter() - began, server.cpu_sec() - cpu
        failed = (await clients[0].get("/v1/runs?state=failed&limit=1"))["items"]
        assert not failed, failed
        return seconds, used


async def replies(server: Server, data_dir: Path, count: int) -> list[float]:
    """Milliseconds from the reply's sending to the engine's first instruction, one after the other."""
    delays = []
    async with connections(server.url, server.token, 1) as [http]:
        for _ in range(count):
            run_id = await submit(http, "interactive")
            while (run := await http.get(f"/v1/runs/{run_id}"))["state"] != "waiting_user":
                await asyncio.sleep(0.005)
            body = {"interaction_id": run["pending_interaction"]["interaction_id"], "response": "red"}
            sent = time.time_ns()
            await http.post(f"/v1/runs/{run_id}/interaction/reply", body)
            while (await http.get(f"/v1/runs/{run_id}"))["state"] != "succeeded":
                await asyncio.sleep(0.005)
            started = (data_dir / "runs" / run_id / "home" / "started").read_text().split()
            delays.append((int(started[-1]) - sent) / 1e6)
    return delays


def bare_loop(folder: Path, runs: int, slots: int) -> float:
    """The floor: start the program and read it to its end; `slots` side by side."""
    began = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for number in range(runs):
        home = folder / "floor" / str(number)
        home.mkdir(parents=True)
        env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        argv = [str(folder / "engine.sh"), "--mode=auto"]
        running.append(
            subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env, start_new_session=True)
        )
        if len(running) >= slots:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return time.perf_counter() - began


def main(args: argparse.Namespace, folder: Path) -> None:
    engine = folder / "engine.sh"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    package = folder / "skills" / "instant"
    package.mkdir(parents=True)
    (package / "SKILL.md").write_text("---\nname: instant\ndescription: Ends at once.\n---\nEnd.\n")

    data_dir = folder / "data"
    with served(folder, data_dir, slots=args.slots, sandbox=args.sandbox) as server:
        print(f"start to healthy          {server.start_sec:8.2f} s")
        print(f"idle                      {server.rss_mb():8.1f} MB")
        delays = asyncio.run(replies(server, data_dir, 50))
        print(f"reply to engine started   {statistics.median(delays):8.1f} ms p50, {p99(delays):.1f} ms p99")
        seconds, cpu = asyncio.run(whole_runs(server, args.runs))
    floor = bare_loop(folder, args.runs, args.slots)
    print(f"bare spawn loop           {args.runs / floor:8.1f} /s   ({args.runs} runs, {args.slots} slots)")
    print(f"whole runs over HTTP      {args.runs / seconds:8.1f} /s   {floor / seconds:.0%} of the floor")
    print(f"the server's own CPU      {cpu / args.runs * 1000:8.2f} ms a run")

    figures = []
    for count in (10, args.waiting):
        stored = folder / f"waiting-{count}"
        asyncio.run(Bench(path=stored / "askback.db", waiting=count, finished=1).fill(1))
        with served(folder, stored, slots=args.slots, sandbox=args.sandbox) as server:
            figures.append((server.start_sec, server.rss_mb()))
    (few_sec, few_mb), (many_sec, many_mb) = figures
    print(f"start with {args.waiting:,} waiting {many_sec:8.2f} s   (with 10: {few_sec:.2f} s)")
    print(f"memory per waiting run    {(many_mb - few_mb) * 2**20 / args.waiting:8.1f} bytes")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The figures of a real server.")
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--sandbox", choices=["off", "auto", "on"], default="off")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    with tempfile.TemporaryDirectory() as name:
        main(given, Path(name))
