"""How long `askback --help` takes, beside a Python that does nothing, in turns.

python benchmarks/help.py [--rounds 20]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import report

FLOOR = "python -c pass"
COMMANDS = {
    FLOOR: ["-c", "pass"],
    "import click": ["-c", "import click"],
    "askback --help": ["-m", "askback", "--help"],
    "askback run --help": ["-m", "askback", "run", "--help"],
}


def seconds(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def measure(asked: argparse.Namespace) -> report.Report:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for number in range(asked.rounds):
        report.progress(f"round {number + 1} of {asked.rounds}")
        for name, words in COMMANDS.items():
            taken[name].append(1000 * seconds(words))
    made = report.Report("help", "The time of a command that only prints help", f"`{FLOOR}`")
    for name, times in taken.items():
        if name != FLOOR:
            made.add(name, "ms", times, taken[FLOOR])
    return made


if __name__ == "__main__":
    arguments = report.parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=20)
    report.run(arguments, measure)
