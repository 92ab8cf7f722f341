"""How long commands take from start to exit, and an MCP server to its first answer, beside a Python that does nothing, in turns.

python benchmarks/help.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import report
from servers import prepare

FLOOR = "python -c pass"
COMMANDS = {
    FLOOR: ["-c", "pass"],
    "import click": ["-c", "import click"],
    "askback --help": ["-m", "askback", "--help"],
    "askback run --help": ["-m", "askback", "run", "--help"],
}
RUN = "askback run, of an engine that ends at once"
MCP = "askback mcp, to its answer to initialize"
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
Figures = dict[str, list[float]]


def finish(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter() - began


def initialize(words: list[str]) -> float:
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps(request).encode() + b"\n")
        program.stdin.flush()
        answer = json.loads(program.stdout.readline())
        taken = time.perf_counter() - began
        program.stdin.close()
    assert "result" in answer, answer
    return taken


def cpu_sec() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def once(name: str, call: Callable[[list[str]], float], words: list[str], taken: Figures, cpu: Figures) -> None:
    before = cpu_sec()
    taken.setdefault(name, []).append(1000 * call(words))
    cpu.setdefault(name, []).append(1000 * (cpu_sec() - before))


def measure(asked: argparse.Namespace) -> report.Report:
    taken: Figures = {}
    cpu: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = prepare(folder)
        config = folder / "askback.toml"
        config.write_text(f"sandbox = 'off'\n[engines.scripted]\ncommand = [{json.dumps(str(engine))}]\n")
        common = [f"--config={config}", f"--data-dir={folder / 'data'}"]
        run = ["-m", "askback", "run", str(folder / "skills" / "instant"), "--engine=scripted", "--mode=auto", *common]
        # The first run probes the engine.
        finish(run)
        for number in range(asked.rounds):
            report.progress(f"round {number + 1} of {asked.rounds}")
            for command, words in {**COMMANDS, RUN: run}.items():
                once(command, finish, words, taken, cpu)
            once(MCP, initialize, ["-m", "askback", "mcp", *common], taken, cpu)
    made = report.Report("help", "How long commands take", f"`{FLOOR}`")
    for command, times in taken.items():
        if command != FLOOR:
            made.add(command, "ms", times, taken[FLOOR])
        if command in (RUN, MCP):
            made.add(f"its CPU time, {command}", "ms", cpu[command], cpu[FLOOR])
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=20)
    report.run(arguments, measure)
