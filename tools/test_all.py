"""Run several targets of the Makefile, also after one has failed, and print how each of them ended."""

import subprocess
import sys
import time


def run(target: str, variables: list[str]) -> tuple[bool, str]:
    """Run one target, and show its output. Returns whether it passed, and the last line that it printed."""
    command = ["make", "--no-print-directory", target, *variables]
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as made:
        assert made.stdout is not None
        for line in made.stdout:
            print(line, end="", flush=True)
            # `make` reports a failure on a line of its own, which says less than the one before.
            last = line.strip(" =\n") if line.strip(" =\n") and not line.startswith("make: ***") else last
    return made.returncode == 0, last


def main() -> int:
    targets = [word for word in sys.argv[1:] if "=" not in word]
    variables = [word for word in sys.argv[1:] if "=" in word]
    summary: list[str] = []
    failed = False
    for target in targets:
        print(f"\nmake {target}", flush=True)
        began = time.monotonic()
        passed, last = run(target, variables)
        failed = failed or not passed
        minutes = (time.monotonic() - began) / 60
        summary.append(f"{target:12} {'passed' if passed else 'FAILED'}  {minutes:5.1f} min  {last}")
    print("\n" + "\n".join(summary))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
