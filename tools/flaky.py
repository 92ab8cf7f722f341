"""Run a selection of the tests many times on a busy machine, and count the failures of each test."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
TOTALS = re.compile(r"^=+ (.*(?:passed|failed|error|skipped|deselected).*) =+$", re.MULTILINE)
NO_TESTS = (2, 3, 4, 5)  # The exit codes of pytest for an interrupt, an internal error, a wrong option and no tests.


def run_round(number: int, options: list[str], folder: Path) -> set[str]:
    """Run the selection once; returns the tests that failed."""
    command = [sys.executable, "-m", "pytest", "--dist", "loadgroup", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    failed = set(FAILURE.findall(done.stdout))
    if done.returncode in NO_TESTS or (done.returncode and not failed):
        sys.exit(done.stdout + f"\npytest exited with {done.returncode}")
    output = folder / f"{number}.txt"
    if failed:
        output.write_text(done.stdout)
    totals = TOTALS.findall(done.stdout)
    print(
        f"{number}: {totals[-1] if totals else 'done'}{f', see {output}' if failed else ''}",
        file=sys.stderr,
        flush=True,
    )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Other arguments go to pytest.", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=20, help="how many times to run the selection")
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count(), help="processes that only use the processor meanwhile"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    arguments, options = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="askback-flaky-"))
    failures: Counter[str] = Counter()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.busy)]
    try:
        for number in range(1, arguments.rounds + 1):
            failures.update(run_round(number, options, folder))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    if not failures:
        folder.rmdir()
    if arguments.json:
        print(json.dumps({"rounds": arguments.rounds, "failures": dict(failures.most_common())}, indent=2))
        return 1 if failures else 0
    for test, count in failures.most_common():
        print(f"{count} of {arguments.rounds}  {test}")
    print(
        f"{arguments.rounds} rounds: {f'{len(failures)} tests failed at least once' if failures else 'no test failed'}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
