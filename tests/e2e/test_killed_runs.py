"""`askback run` and `reply` killed at random moments, several runs at a time on one data folder."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from audit import audit

from askback.core.runs import RunState
from askback.store.pages import RunFilter
from support.data_folder import World
from support.program import Started

SEED = 20_250_307
AT_ONCE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """A run that came to its end in spite of everything."""

    run_id: str
    replies: tuple[str, ...]
    data: Any
    wanted: Any
    kills: int


class Life:
    """One run from its start to its end; whoever carries it is killed so many times on the way."""

    def __init__(self, world: World, number: int, kills: int) -> None:
        self._world = world
        self._chance = random.Random(SEED + number)
        self._kills_left = kills
        self._name = f"storm-{number}"
        self._reply = f"reply-{number}-{self._chance.getrandbits(40):010x}"
        self.kills = 0
        work: list[dict[str, Any]] = [{"touch": self._name}, {"sleep_sec": 0.15}]
        asks = {"ask": {"interaction_id": "q", "prompt": "What?"}}
        self._skill = world.skill([*work, asks], [*work, {"finish": {"colour": "{{reply}}"}}], name=self._name)

    def live(self) -> Lived:
        command: tuple[str, ...] = ("run", self._skill, "--engine", "scripted", "--mode", "interactive")
        while True:
            document = self._carry(*command)
            run_id = self._run_id()
            if run_id is None:
                continue
            if document is None:
                command = ("run", "--continue", run_id)
            elif document["state"] == RunState.WAITING_USER:
                command = ("reply", run_id, self._reply)
            else:
                wanted = {"colour": self._reply}
                data = document.get("data", document.get("error"))
                return Lived(run_id=run_id, replies=(self._reply,), data=data, wanted=wanted, kills=self.kills)

    def _carry(self, *command: str) -> dict[str, Any] | None:
        """What the program said in the end, or None when it was killed before."""
        for sign in self._signs():
            sign.unlink()
        with Started(self._world, *command, "--json") as started:
            if self._kills_left and self._wait_for_moment(started):
                started.process.kill()
            ran = started.ended()
        if ran.code == -signal.SIGKILL:
            self._kills_left -= 1
            self.kills += 1
            return None
        assert "id" in ran.json, ran
        return dict(ran.json)

    def _wait_for_moment(self, started: Started) -> bool:
        """A moment somewhere in the program's life, or in its turn; False when it has ended before."""
        if self._chance.random() < 0.4:
            time.sleep(self._chance.uniform(0.1, 0.6))
            return True
        while started.process.poll() is None:
            if self._signs():
                time.sleep(self._chance.uniform(0, 0.25))
                return True
            time.sleep(0.01)
        return False

    def _signs(self) -> list[Path]:
        """What the engine leaves when a turn has begun."""
        return list(self._world.data_dir.glob(f"runs/*/work/{self._name}"))

    def _run_id(self) -> str | None:
        """By its skill, which no other run has: a program that was killed early has not told its run's id."""

        async def look() -> str | None:
            async with self._world.client() as app:
                found = (await app.service.store.list_runs(RunFilter(skill=self._name))).items
                assert len(found) <= 1
                return found[0].id if found else None

        return asyncio.run(look())


def storm(world: World, *, runs: int, kills: int) -> list[Lived]:
    lives = [Life(world, number, kills) for number in range(runs)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(Life.live, lives))


def judge(world: World, lives: Sequence[Lived]) -> None:
    for lived in lives:
        audit(world, lived.run_id, lived.replies, lived.data, lived.wanted)


@pytest.mark.flaky(reruns=0)  # Chance decides what a storm finds: one failure counts.
@pytest.mark.contract("B-1", "B-4")
@pytest.mark.parametrize(("runs", "kills"), [(3, 2), pytest.param(7, 3, marks=pytest.mark.long)])
def test_a_storm_of_kills_loses_and_doubles_nothing(tmp_path: Path, runs: int, kills: int) -> None:
    world = World(tmp_path)
    world.settings()
    lives = storm(world, runs=runs, kills=kills)
    judge(world, lives)
    assert sum(lived.kills for lived in lives) >= runs * kills * 2 // 3
