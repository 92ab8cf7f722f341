"""Runs all benchmarks, stores their JSON documents, and makes the pictures and tables of the pages about performance and scale.

python benchmarks/all.py [--only throughput,events] [--large] [--results benchmarks/results] [--docs docs]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from pictures import ORDER, ROOT, write

LARGE = {"waiting_in_postgres": ["--waiting=10000,1000000"]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default=",".join(ORDER), help="which benchmarks")
    arguments.add_argument(
        "--large", action="store_true", help="with a million waiting runs: 10 GB of disk, 15 minutes more"
    )
    arguments.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    arguments.add_argument("--docs", type=Path, default=ROOT / "docs")
    asked = arguments.parse_args()
    asked.results.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    for name in asked.only.split(","):
        print(f"== {name} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
        file = asked.results / f"{name}.json"
        sizes = LARGE.get(name, []) if asked.large else []
        program = str(ROOT / "benchmarks" / f"{name}.py")
        subprocess.run([sys.executable, program, *sizes, f"--json={file}"], check=True)
        print(flush=True)
    write(asked.results, asked.docs)


if __name__ == "__main__":
    main()
