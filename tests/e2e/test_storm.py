"""The storm for some seconds, and what it must find: a server that lacks what holds against it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from storm import cast
from storm.auditor import Kind
from storm.driver import Weather
from storm.one_server import ServerStorm

from askback.process.guardian import client

pytestmark = pytest.mark.skipif(not client.available(), reason="no guardian on this system")

PARTS = {part.name: part for part in cast.PARTS}


@pytest.mark.flaky(reruns=0)  # Chance decides what a storm finds: one failure counts.
@pytest.mark.contract("B-1", "B-2", "B-3", "B-4", "V-3", "V-5")
@pytest.mark.parametrize("seed", [20_250_307, pytest.param(None, marks=pytest.mark.long)], ids=["known", "any"])
def test_a_server_that_is_killed_over_and_over_loses_doubles_and_leaves_nothing(
    tmp_path: Path, seed: int | None
) -> None:
    seed = random.SystemRandom().randrange(10**9) if seed is None else seed
    print(f"make storm SEED={seed}")
    figures = asyncio.run(ServerStorm(tmp_path, Weather(seed=seed, kills=8)).blow())
    print(figures.line())
    assert figures.verdict.problems == []
    assert figures.verdict.runs > 0


@pytest.mark.parametrize(
    ("without", "part", "kind", "stops"),
    [
        pytest.param("snapshots", "slow", Kind.TWICE, 0.0, marks=pytest.mark.long),
        pytest.param("lock", "wild", Kind.ALIVE, 1.0, marks=pytest.mark.long),
        ("guardian", "wild", Kind.ALIVE, 0.0),
        pytest.param("fence", "quick", Kind.LOST, 0.0, marks=pytest.mark.long),
        pytest.param("fence", "warm", Kind.LOST, 0.0, marks=pytest.mark.long),
        pytest.param("live snapshots", "warm-slow", Kind.TWICE, 0.0, marks=pytest.mark.long),
        pytest.param("warm ends", "warm-deaf", Kind.ALIVE, 0.0, marks=pytest.mark.long),
    ],
)
def test_a_server_without_what_holds_against_it_is_found_out(
    tmp_path: Path, without: str, part: str, kind: Kind, stops: float
) -> None:
    cancels = 0.5 if without == "warm ends" else 0.08
    weather = Weather(seed=1, kills=25, parts=(PARTS[part],), without=without, stops=stops, cancels=cancels)
    figures = asyncio.run(ServerStorm(tmp_path, weather).blow())
    assert figures.verdict.count(kind) > 0
