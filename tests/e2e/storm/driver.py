"""Drives a storm: keeps so many stories going while somebody does harm, and hands all to the auditor."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from storm import cast
from storm.auditor import Auditor, Kind, Verdict
from storm.cast import Part
from storm.clients import Door, Story
from storm.processes import Process, bearing, living, strike, told

AT_ONCE = 8
SURVIVAL_SEC = 5.0
MERCY_SEC = 3.0
END_SEC = 120.0
HOPELESS_SEC = 5.0
"""How long the runs of a server that lacks something may take to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """What kind of storm it is."""

    seed: int
    kills: int
    parts: Sequence[Part] = cast.PARTS
    config: str = ""
    without: str | None = None
    """What the servers lack, to see that it is found out."""
    stops: float = 0.02
    """How often a keeper is stopped before its server is killed."""
    cancels: float = 0.08
    """How many of the runs are canceled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    weather: Weather
    verdict: Verdict
    kills: int
    besides: Counter[str]
    """What else was done, and how often."""
    codex: int
    seconds: float

    def line(self) -> str:
        verdict = self.verdict
        ends = ", ".join(f"{code} {count}" for code, count in sorted(verdict.ends.items())) or "none"
        bad = ", ".join(f"{kind} {verdict.count(kind)}" for kind in Kind)
        done = "".join(f"{what} {count}, " for what, count in sorted(self.besides.items()))
        return (
            f"seed {self.weather.seed}, kills {self.kills}, {done}"
            f"runs {verdict.runs} (codex {self.codex}), replies {verdict.replies}, {bad}, "
            f"seconds {self.seconds:.0f}; ended otherwise by contract: {ends}"
        )


class Storm(ABC):
    """What all storms have in common. `_open`, `_rage`, `_calm` and `_close` know the programs that are harmed."""

    def __init__(self, weather: Weather, auditor: Auditor) -> None:
        self._weather = weather
        self._auditor = auditor
        self._chance = random.Random(weather.seed)
        self._mark = f"storm-{secrets.token_hex(8)}"
        self._stories: list[Story] = []
        self._kills = 0
        self._besides: Counter[str] = Counter()
        self.stopped = False
        """Set it to have no more kills; the figures are those so far."""

    async def blow(self) -> Figures:
        began = time.monotonic()
        door = None
        try:
            door = await self._open()
            async with asyncio.TaskGroup() as group:
                tellers = [group.create_task(self._tell_stories(door)) for _ in range(AT_ONCE)]
                await self._rage(group)
                await self._calm()
                await self._hear_the_end(tellers, door)
            await self._last_kill()
        finally:
            if door is not None:
                await door.close()
            await self._close()
            for process in self._engines():
                strike(process, signal.SIGKILL)
        for fault in door.faults:
            self._auditor.verdict.add(Kind.LOST, f"a client was told: {fault}")
        codex = sum(story.part.engine == "codex" for story in self._stories)
        return Figures(
            weather=self._weather,
            verdict=self._auditor.verdict,
            kills=self._kills,
            besides=self._besides,
            codex=codex,
            seconds=time.monotonic() - began,
        )

    @abstractmethod
    async def _open(self) -> Door: ...

    @abstractmethod
    async def _rage(self, group: asyncio.TaskGroup) -> None:
        """Do harm while `_raging`."""

    @abstractmethod
    async def _calm(self) -> None:
        """Everything works again: what goes on can come to its end."""

    @abstractmethod
    async def _last_kill(self) -> None:
        """All runs are over: nothing of any may live, and nothing of a program once it is killed."""

    @abstractmethod
    async def _close(self) -> None: ...

    def _config(self, *lines: str) -> str:
        # Every engine has the mark in its command line, which forks keep and no emptied environment takes away.
        engine = f'[engines.scripted]\nextra_args = ["--model={self._mark}"]\n'
        # Few, so that processes are dropped for others.
        warm = "warm_sec = 600\nwarm.max_processes = 3\nwarm.min_free_memory = 0\n"
        return warm + "\n".join((*lines, engine)) + self._weather.config.replace("THE_MARK", self._mark)

    # The stories.

    @property
    def _raging(self) -> bool:
        found_out = self._weather.without is not None and not self._auditor.verdict.clean
        return self._kills < self._weather.kills and not found_out and not self.stopped

    async def _tell_stories(self, door: Door) -> None:
        while self._raging:
            number = len(self._stories)
            chance = random.Random(f"{self._weather.seed}-{number}")
            story = Story(
                number=number,
                part=cast.choose(chance, self._weather.parts),
                token=f"{self._mark}-{number}-",
                chance=chance,
                cancels=chance.random() < self._weather.cancels,
            )
            self._stories.append(story)
            await story.live(door)
            await asyncio.to_thread(self._auditor.look_for_survivors, story)
            await asyncio.to_thread(self._auditor.judge, story)

    def _going_on(self) -> list[Story]:
        return [story for story in self._stories if not story.over]

    # The harm.

    async def _have_mercy(self) -> None:
        deadline = time.monotonic() + MERCY_SEC
        merciful = self._chance.random() < 0.9
        while merciful and self._weary() and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    def _weary(self) -> bool:
        """A turn that is cut off too often fails by contract, which proves little: mostly, let it end before."""
        return any(story.strikes >= 3 for story in self._going_on())

    def _count_strike(self) -> None:
        for story in self._going_on():
            story.kills += 1
            story.strikes += 1

    def _engines(self) -> set[Process]:
        """Every process of every run that lives."""
        return bearing(f"={self._mark}", f"{self._mark}-")

    async def _outlived(self, processes: set[Process], seconds: float) -> None:
        """No process of a program that was killed lives for long."""
        deadline = time.monotonic() + seconds
        while (left := living(processes)) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        for process in left:
            self._auditor.verdict.add(Kind.ALIVE, f"{seconds:.0f} s after its program: {told(process)}")

    def _tell(self) -> None:
        verdict = self._auditor.verdict
        bad = ", ".join(f"{kind} {verdict.count(kind)}" for kind in Kind)
        print(f"{self._kills} kills, {verdict.runs} runs, {bad}", file=sys.stderr, flush=True)

    # The end.

    async def _hear_the_end(self, tellers: Sequence[asyncio.Task[None]], door: Door) -> None:
        _, late = await asyncio.wait(tellers, timeout=END_SEC if self._weather.without is None else HOPELESS_SEC)
        for teller in late:
            teller.cancel()
        self._auditor.judge_unfinished(self._going_on())
        self._auditor.judge_list(self._stories, await door.items("/runs", "cursor"))

    async def _look_for_engines(self) -> None:
        for process in await asyncio.to_thread(self._engines):
            self._auditor.verdict.add(Kind.ALIVE, f"after everything: {told(process)}")
