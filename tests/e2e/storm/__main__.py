"""`python -m storm`: the figures are the last line, and the exit code is the verdict."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from askback.process.guardian import client
from storm import cast, codex
from storm.auditor import Kind
from storm.crashes import CannotTrace, Workshop
from storm.driver import Figures, Storm, Weather


def main() -> int:
    wanted = argparse.ArgumentParser(prog="storm", description=__doc__)
    wanted.add_argument("--kills", type=int, default=1000)
    wanted.add_argument("--seed", type=int, default=None)
    given = wanted.parse_args()
    if not client.available():
        print("no storm here: it looks at processes in /proc, which only Linux has", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    with ExitStack() as stack:
        config = stack.enter_context(codex.in_reach(folder))
        parts = (*cast.PARTS, cast.CODEX) if config else cast.PARTS
        storm = Storm(folder, Weather(seed=seed, kills=given.kills, parts=parts, config=config))
        figures = asyncio.run(_blow(storm))
    print(figures.line(), file=sys.stderr, flush=True)
    crashed, told = ((), "stopped by hand") if storm.stopped else _crash(folder / "crashes", seed)
    problems = [*figures.verdict.problems, *crashed]
    for kind, text in problems:
        print(f"{kind}: {text}", file=sys.stderr)
    if problems:
        print(f"everything is kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{figures.line()}; {told}", flush=True)
    return 1 if problems else 0


async def _blow(storm: Storm) -> Figures:
    """To its end, or until Ctrl-C: what is going on then is still brought to its end and judged."""

    def stop() -> None:
        storm.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return await storm.blow()


def _crash(folder: Path, seed: int) -> tuple[Sequence[tuple[Kind, str]], str]:
    """The second part: a crash at every point of a run where something is written."""
    print("now a crash at every point where something is written", file=sys.stderr, flush=True)
    try:
        crashes = asyncio.run(Workshop(folder).crash_everywhere(seed=seed, every=1))
    except CannotTrace as reason:
        return (), f"no crash points: {reason}"
    return crashes.verdict.problems, crashes.line()


if __name__ == "__main__":
    sys.exit(main())
