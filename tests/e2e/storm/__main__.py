"""`python -m storm`: the figures are the last line, and the exit code is the verdict."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from storm import cast, codex
from storm.driver import Storm, Weather


def main() -> int:
    wanted = argparse.ArgumentParser(prog="storm", description=__doc__)
    wanted.add_argument("--kills", type=int, default=1000)
    wanted.add_argument("--seed", type=int, default=None)
    given = wanted.parse_args()
    seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="storm-"))
    with ExitStack() as stack:
        config = stack.enter_context(codex.in_reach(folder))
        parts = (*cast.PARTS, cast.CODEX) if config else cast.PARTS
        figures = asyncio.run(Storm(folder, Weather(seed=seed, kills=given.kills, parts=parts, config=config)).blow())
    for kind, text in figures.verdict.problems:
        print(f"{kind}: {text}", file=sys.stderr)
    if figures.verdict.clean:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"everything is kept in {folder}", file=sys.stderr)
    print(figures.line(), flush=True)
    return 0 if figures.verdict.clean else 1


if __name__ == "__main__":
    sys.exit(main())
