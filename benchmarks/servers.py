"""A real server to measure, with an engine that does the least that an engine can do."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from thin_http import Connection

SERVE = "import sys; from askback.cli.commands.serve import command; sys.exit(command.main(standalone_mode=False))"
INSTANT = """\
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
"""What it takes is the floor, and not ours. Its first instruction notes the time."""
TICK = os.sysconf("SC_CLK_TCK")


def prepare(folder: Path, engine: str = INSTANT) -> Path:
    """The skill `instant`, and the engine's program, which is returned."""
    program = folder / "engine.sh"
    program.write_text(engine)
    program.chmod(0o755)
    package = folder / "skills" / "instant"
    package.mkdir(parents=True)
    (package / "SKILL.md").write_text("---\nname: instant\ndescription: Ends at once.\n---\nEnd.\n")
    return program


class Program:
    """A program of Askback that serves its health: a server or a worker."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        began = time.perf_counter()
        environment = None if env is None else {**os.environ, **env}
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
        assert self.process.stdout is not None
        self.printed = json.loads(self.process.stdout.readline())
        self.url = self.printed["url"]
        while not self._is_healthy():
            time.sleep(0.005)
        self.start_sec = time.perf_counter() - began

    def _is_healthy(self) -> bool:
        try:
            return bool(httpx.get(f"{self.url}/healthz").json()["status"] == "ok")
        except httpx.TransportError:
            return False

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_mb(self) -> float:
        """The most memory that it has used since `reset_peak`."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024

    def cpu_sec(self) -> float:
        """Of the program's own process, without its children."""
        return cpu_sec(self.process.pid)


def cpu_sec(pid: int, *, with_ended_children: bool = False) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11 : 15 if with_ended_children else 13]) / TICK


class Server(Program):
    def __init__(self, folder: Path, data_dir: Path, config: str, command: list[str]) -> None:
        file = folder / f"askback-{data_dir.name}.toml"
        engine = f"[engines.scripted]\ncommand = {json.dumps(command)}\n"
        file.write_text(f"skills_dir = ['skills']\n{config}\n{engine}")
        super().__init__(
            [sys.executable, "-c", SERVE, "--port=0", "--json", f"--config={file}", f"--data-dir={data_dir}"]
        )
        self.data_dir = data_dir
        self.token = self.printed["token"]
        self.address = self.url.removeprefix("http://")

    def started(self, run_id: str) -> int:
        """When the run's engine executed its first instruction the last time, in nanoseconds."""
        return int((self.data_dir / "runs" / run_id / "home" / "started").read_text().split()[-1])


@contextmanager
def served(
    folder: Path, data_dir: Path, *, slots: int = 64, sandbox: str = "off", config: str = "", command: Any = None
) -> Iterator[Server]:
    # Every turn in a new process: what a warm one saves is not measured here.
    config = f"slots = {slots}\nsandbox = '{sandbox}'\nwarm_sec = 0\n{config}"
    server = Server(folder, data_dir, config, command or [str(folder / "engine.sh")])
    try:
        yield server
    finally:
        server.stop()


# What clients do.


async def submit(http: Connection, mode: str) -> str:
    return str((await http.post("/v1/runs", {"skill": "instant", "engine": "scripted", "mode": mode}))["id"])


async def until(http: Connection, run_id: str, state: str) -> dict[str, Any]:
    while True:
        run: dict[str, Any] = await http.get(f"/v1/runs/{run_id}?wait=20")
        if run["state"] == state:
            return run
        if run["state"] in ("failed", "canceled"):
            raise RuntimeError(f"run {run_id}: {run['error']}")
        await asyncio.sleep(0.002)


async def until_none(http: Connection, *states: str) -> None:
    while any([(await http.get(f"/v1/runs?state={state}&limit=1"))["items"] for state in states]):
        await asyncio.sleep(0.02)


async def reply(http: Connection, run: dict[str, Any]) -> None:
    body = {"interaction_id": run["pending_interaction"]["interaction_id"], "response": "red"}
    await http.post(f"/v1/runs/{run['id']}/interaction/reply", body)


# The floor.


def start_by_hand(folder: Path, home: Path) -> subprocess.Popen[bytes]:
    """Start the engine's program as a shell would, in a home of its own."""
    home.mkdir(parents=True)
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    argv = [str(folder / "engine.sh"), "--mode=auto"]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=env, start_new_session=True)


def bare_loop(folder: Path, home: Path, runs: int, slots: int) -> float:
    """Seconds to start the program `runs` times and to wait for its end, `slots` side by side."""
    began = time.perf_counter()
    running: list[subprocess.Popen[bytes]] = []
    for number in range(runs):
        running.append(start_by_hand(folder, home / str(number)))
        if len(running) >= slots:
            running.pop(0).wait()
    for process in running:
        process.wait()
    return time.perf_counter() - began
