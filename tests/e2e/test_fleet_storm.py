"""The storm over a fleet for a minute, and what it must find: a fleet that lacks what holds against it."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from storm import cast
from storm.auditor import Kind
from storm.driver import Weather
from storm.fleet import FleetStorm

from askback.process.guardian import client
from support import machines, postgres

pytestmark = [
    pytest.mark.long,
    pytest.mark.flaky(reruns=0),  # Chance decides what a storm finds: one failure counts.
    pytest.mark.skipif(not client.available(), reason="no guardian on this system"),
]

PARTS = {part.name: part for part in cast.PARTS}
STEADY = cast.Part(name="steady", questions=1, work=({"sleep_sec": 20},))


@pytest.fixture(autouse=True)
def _needs_machines() -> None:
    if (reason := postgres.missing() or machines.missing()) is not None:
        pytest.skip(reason)


def test_a_fleet_whose_parts_fail_over_and_over_loses_doubles_and_leaves_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"make storm-fleet SEED={seed}")
    figures = asyncio.run(FleetStorm(tmp_path, Weather(seed=seed, kills=15)).blow())
    print(figures.line())
    assert figures.verdict.problems == []
    assert figures.verdict.runs > 0


@pytest.mark.parametrize(
    ("without", "part", "kind", "kills"),
    [
        ("fence in PostgreSQL", PARTS["quick"], Kind.LOST, 5),
        ("pointer", PARTS["talkative"], Kind.LOST, 20),
        ("end of the lease", STEADY, Kind.LOST, 20),
    ],
)
def test_a_fleet_without_what_holds_against_failures_is_found_out(
    tmp_path: Path, without: str, part: cast.Part, kind: Kind, kills: int
) -> None:
    weather = Weather(seed=1, kills=kills, parts=(part,), without=without, cancels=0.0)
    figures = asyncio.run(FleetStorm(tmp_path, weather).blow())
    print(figures.line(), *figures.verdict.problems, sep="\n")
    assert figures.verdict.count(kind) > 0
