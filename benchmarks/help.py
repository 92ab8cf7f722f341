"""How long `askback --help` takes, beside a Python that does nothing, in turns.

python benchmarks/help.py [ROUNDS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import click": ["-c", "import click"],
    "askback --help": ["-m", "askback", "--help"],
    "askback run --help": ["-m", "askback", "run", "--help"],
}


def seconds(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, words in COMMANDS.items():
            taken[name].append(seconds(words))
    print(f"{ROUNDS} rounds; milliseconds  {'best':>8} {'median':>8} {'worst':>8}")
    for name, times in taken.items():
        figures = (min(times), statistics.median(times), max(times))
        print(f"{name:<24}" + "".join(f" {1000 * each:8.1f}" for each in figures))


if __name__ == "__main__":
    main()
