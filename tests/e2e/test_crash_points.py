"""The server killed where it writes, by strace: at some of the points here, at all of them in `make storm`."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from storm.crashes import CannotTrace, Workshop


@pytest.mark.flaky(reruns=0)  # Chance decides what a crash finds: one failure counts.
@pytest.mark.contract("B-1", "B-4")
def test_a_run_recovers_from_a_crash_at_any_write(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    try:
        crashes = asyncio.run(Workshop(tmp_path).crash_everywhere(seed=seed, every=14))
    except CannotTrace as reason:
        pytest.skip(str(reason))
    print(crashes.line())
    assert crashes.verdict.problems == []
    assert crashes.killed > 0
