"""Drives a storm: keeps so many stories going, kills the server dense and sparse, and hands all to the auditor."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from storm import cast
from storm.auditor import Auditor, Kind, Verdict
from storm.cast import Part
from storm.clients import Door, Story
from storm.processes import Process, bearing, living, strike, told
from storm.servers import Servers, free_port
from support.data_folder import World

AT_ONCE = 8
RESIDENT = "--no-native"
"""In the command line of a process that may be kept warm, and of no other."""
SLOTS = 6
SURVIVAL_SEC = 5.0
STOPPED_SEC = 13.0
"""The same where a keeper was stopped: first it is waited for, by the guardian and by the next server."""
READY_SEC = 60.0
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
    guards: int
    warm: int
    codex: int
    seconds: float

    def line(self) -> str:
        verdict = self.verdict
        ends = ", ".join(f"{code} {count}" for code, count in sorted(verdict.ends.items())) or "none"
        bad = ", ".join(f"{kind} {verdict.count(kind)}" for kind in Kind)
        return (
            f"seed {self.weather.seed}, kills {self.kills}, guardians and keepers killed {self.guards}, "
            f"warm processes killed {self.warm}, "
            f"runs {verdict.runs} (codex {self.codex}), replies {verdict.replies}, {bad}, "
            f"seconds {self.seconds:.0f}; ended otherwise by contract: {ends}"
        )


class Storm:
    def __init__(self, folder: Path, weather: Weather) -> None:
        self._weather = weather
        self._world = World(folder)
        self._chance = random.Random(weather.seed)
        self._mark = f"storm-{secrets.token_hex(8)}"
        # Not the mark: a server's token is taken out of everything that engines say.
        self._token = secrets.token_hex(16)
        self._auditor = Auditor(self._world.data_dir)
        self._servers = Servers(self._world, free_port(), weather.without)
        self._stories: list[Story] = []
        self._kills = 0
        self._guards = 0
        self._warm = 0
        self._keeper_stopped = False
        self._start_sec = 0.3
        self.stopped = False
        """Set it to have no more kills; the figures are those so far."""

    async def blow(self) -> Figures:
        began = time.monotonic()
        self._prepare()
        await self._servers.open()
        door = Door(self._servers.port, self._token)
        try:
            async with asyncio.TaskGroup() as group:
                tellers = [group.create_task(self._tell_stories(door, group)) for _ in range(AT_ONCE)]
                await self._rage(group)
                await self._calm_down(tellers, door)
            await self._last_kill()
        finally:
            await door.close()
            await self._servers.close()
            for process in self._engines():
                strike(process, signal.SIGKILL)
        for fault in door.faults:
            self._auditor.verdict.add(Kind.LOST, f"a client was told: {fault}")
        codex = sum(story.part.engine == "codex" for story in self._stories)
        return Figures(
            weather=self._weather,
            verdict=self._auditor.verdict,
            kills=self._kills,
            guards=self._guards,
            warm=self._warm,
            codex=codex,
            seconds=time.monotonic() - began,
        )

    def _prepare(self) -> None:
        # Every engine has the mark in its command line, which forks keep and no emptied environment takes away.
        engine = f'[engines.scripted]\nextra_args = ["--model={self._mark}"]\n'
        # Few, so that processes are dropped for others.
        warm = "warm_sec = 0\nwarm.max_processes = 3\nwarm.min_free_memory = 0\n"
        server = f'slots = {SLOTS}\n{warm}[server]\ntoken = "{self._token}"\n'
        self._world.settings(server + engine + self._weather.config.replace("THE_MARK", self._mark))
        cast.build(self._world, self._weather.parts)

    # The stories.

    @property
    def _raging(self) -> bool:
        found_out = self._weather.without is not None and not self._auditor.verdict.clean
        return self._kills < self._weather.kills and not found_out and not self.stopped

    async def _tell_stories(self, door: Door, group: asyncio.TaskGroup) -> None:
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
            self._auditor.judge(story)

    def _going_on(self) -> list[Story]:
        return [story for story in self._stories if not story.over]

    # The kills.

    async def _rage(self, group: asyncio.TaskGroup) -> None:
        while self._raging:
            for _ in range(self._chance.randint(0, 4)):
                if not self._weary() or self._chance.random() < 0.05:
                    await self._dense_life(group)
            await self._sparse_life(group)
        await self._servers.start()

    async def _dense_life(self, group: asyncio.TaskGroup) -> None:
        """Killed anywhere in its start, or shortly after."""
        await self._servers.start(sandbox=self._sandbox())
        await asyncio.sleep(self._chance.uniform(0, 2) * self._start_sec)
        await self._kill(group)

    async def _sparse_life(self, group: asyncio.TaskGroup) -> None:
        """Lives long enough for runs to get on."""
        cold, began = self._chance.random() < 0.1, time.monotonic()
        await self._servers.start(cold=cold, sandbox=self._sandbox())
        await self._ready()
        if not cold:
            self._start_sec = time.monotonic() - began
        await asyncio.sleep(self._chance.uniform(0.1, 0.6))
        if self._chance.random() < 0.3:
            await self._kill_guard()
        await self._kill_warm()
        await asyncio.sleep(self._chance.uniform(0.1, 0.6))
        await self._kill_warm()
        await self._have_mercy()
        if self._chance.random() < self._weather.stops:
            await self._stop_keeper()
        await self._kill(group)

    def _sandbox(self) -> str:
        """One server has its engines in a sandbox, where there is one, and the next has not."""
        return self._chance.choice(("auto", "off")) if self._weather.without is None else "off"

    async def _ready(self) -> None:
        deadline = time.monotonic() + READY_SEC
        while not await self._servers.is_ready():
            assert self._servers.alive, f"the server has ended by itself; see {self._servers.log}"
            assert time.monotonic() < deadline, f"the server did not get ready; see {self._servers.log}"
            await asyncio.sleep(0.01)

    async def _kill_guard(self) -> None:
        """The guardian, or one keeper."""
        guards = await asyncio.to_thread(self._servers.guards)
        if guards:
            self._count_strike()
            self._guards += 1
            strike(self._chance.choice([guards[0], self._chance.choice(guards)]), signal.SIGKILL)

    async def _kill_warm(self) -> None:
        """A process that is kept for a run that waits, or has just been answered."""
        waiting = [story for story in self._going_on() if story.part.warm and story.state == "waiting_user"]
        if not waiting:
            return
        story = self._chance.choice(waiting)
        found = await asyncio.to_thread(bearing, f"ASKBACK_RUN={story.run_id}")
        for process in found & await asyncio.to_thread(bearing, RESIDENT):
            story.kills += 1
            story.strikes += 1
            self._warm += 1
            strike(process, signal.SIGKILL)

    async def _stop_keeper(self) -> None:
        keepers = (await asyncio.to_thread(self._servers.guards))[1:]
        if keepers:
            self._keeper_stopped = True
            for keeper in keepers:
                strike(keeper, signal.SIGSTOP)

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

    async def _kill(self, group: asyncio.TaskGroup) -> None:
        guards = await asyncio.to_thread(self._servers.guards)
        self._count_strike()
        code = await self._servers.kill()
        assert code == -signal.SIGKILL, f"the server had ended by itself with {code}; see {self._servers.log}"
        self._kills += 1
        left = await asyncio.to_thread(self._engines)
        seconds, self._keeper_stopped = (STOPPED_SEC if self._keeper_stopped else SURVIVAL_SEC), False
        group.create_task(self._outlived({*guards, *left}, seconds))
        if self._kills % 25 == 0:
            self._tell()

    def _engines(self) -> set[Process]:
        """Every process of every run that lives."""
        return bearing(f"={self._mark}", f"{self._mark}-")

    async def _outlived(self, processes: set[Process], seconds: float) -> None:
        """No process of a server that was killed lives for long."""
        deadline = time.monotonic() + seconds
        while (left := living(processes)) and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        for process in left:
            self._auditor.verdict.add(Kind.ALIVE, f"{seconds:.0f} s after its server: {told(process)}")

    def _tell(self) -> None:
        verdict = self._auditor.verdict
        bad = ", ".join(f"{kind} {verdict.count(kind)}" for kind in Kind)
        print(f"{self._kills} kills, {verdict.runs} runs, {bad}", file=sys.stderr, flush=True)

    # The end.

    async def _calm_down(self, tellers: Sequence[asyncio.Task[None]], door: Door) -> None:
        await self._ready()
        _, late = await asyncio.wait(tellers, timeout=END_SEC if self._weather.without is None else HOPELESS_SEC)
        for teller in late:
            teller.cancel()
        self._auditor.judge_unfinished(self._going_on())
        self._auditor.judge_list(self._stories, await door.items("/runs", "cursor"))

    async def _last_kill(self) -> None:
        """All runs are over: nothing of any may live, and nothing of the server once it is killed."""
        guards = await asyncio.to_thread(self._servers.guards)
        await self._servers.kill()
        await self._outlived(set(guards), SURVIVAL_SEC)
        for process in await asyncio.to_thread(self._engines):
            self._auditor.verdict.add(Kind.ALIVE, f"after everything: {told(process)}")
