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
from storm.fleet import FleetStorm
from storm.one_server import ServerStorm
from support import machines, postgres


def main() -> int:
    wanted = argparse.ArgumentParser(prog="storm", description=__doc__)
    wanted.add_argument("--kills", type=int, default=1000)
    wanted.add_argument("--seed", type=int, default=None)
    wanted.add_argument("--fleet", action="store_true", help="two servers and three workers, each on its own machine")
    given = wanted.parse_args()
    if (reason := _missing(fleet=given.fleet)) is not None:
        print(f"no storm here: {reason}", file=sys.stderr)
        return 2
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    with ExitStack() as stack:
        config = "" if given.fleet else stack.enter_context(codex.in_reach(folder))
        parts = (*cast.PARTS, cast.CODEX) if config else cast.PARTS
        weather = Weather(seed=seed, kills=given.kills, parts=parts, config=config)
        storm = FleetStorm(folder, weather) if given.fleet else ServerStorm(folder, weather)
        figures = asyncio.run(_blow(storm))
    print(figures.line(), file=sys.stderr, flush=True)
    crashed, told = _second_part(folder, seed, left_out=storm.stopped or given.fleet)
    problems = [*figures.verdict.problems, *crashed]
    for kind, text in problems:
        print(f"{kind}: {text}", file=sys.stderr)
    if problems:
        print(f"everything is kept in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(figures.line() + told, flush=True)
    return 1 if problems else 0


async def _blow(storm: Storm) -> Figures:
    """To its end, or until Ctrl-C: what is going on then is still brought to its end and judged."""

    def stop() -> None:
        storm.stopped = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    return await storm.blow()


def _missing(*, fleet: bool) -> str | None:
    if not client.available():
        return "it looks at processes in /proc, which only Linux has"
    return (postgres.missing() or machines.missing()) if fleet else None


def _second_part(folder: Path, seed: int, *, left_out: bool) -> tuple[Sequence[tuple[Kind, str]], str]:
    """A crash of one server at every point of a run where something is written."""
    if left_out:
        return (), ""
    print("now a crash at every point where something is written", file=sys.stderr, flush=True)
    try:
        crashes = asyncio.run(Workshop(folder / "crashes").crash_everywhere(seed=seed, every=1))
    except CannotTrace as reason:
        return (), f"; no crash points: {reason}"
    return crashes.verdict.problems, f"; {crashes.line()}"


if __name__ == "__main__":
    sys.exit(main())
