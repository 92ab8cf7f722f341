"""The storm over one server, which is killed dense and sparse."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from pathlib import Path

from storm import cast
from storm.auditor import Auditor
from storm.clients import Door
from storm.driver import SURVIVAL_SEC, Storm, Weather
from storm.processes import bearing, strike
from storm.servers import Servers, free_port
from support.data_folder import World

RESIDENT = "--no-native"
"""In the command line of a process that may be kept warm, and of no other."""
SLOTS = 6
STOPPED_SEC = 13.0
"""How long a process may outlive its server where a keeper was stopped: first it is waited for, by the guardian and by the
next server."""
READY_SEC = 60.0


class ServerStorm(Storm):
    def __init__(self, folder: Path, weather: Weather) -> None:
        self._world = World(folder)
        super().__init__(weather, Auditor(self._world.data_dir))
        # Not the mark: a server's token is taken out of everything that engines say.
        self._token = secrets.token_hex(16)
        self._servers = Servers(self._world, free_port(), weather.without)
        self._keeper_stopped = False
        self._start_sec = 0.3

    async def _open(self) -> Door:
        self._world.settings(self._config(f"slots = {SLOTS}", f'[server]\ntoken = "{self._token}"'))
        cast.build(self._world, self._weather.parts)
        await self._servers.open()
        return Door(self._servers.port, token=self._token)

    async def _calm(self) -> None:
        await self._ready()

    async def _last_kill(self) -> None:
        guards = await asyncio.to_thread(self._servers.guards)
        await self._servers.kill()
        await self._outlived(set(guards), SURVIVAL_SEC)
        await self._look_for_engines()

    async def _close(self) -> None:
        await self._servers.close()

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
            self._besides["guardians and keepers killed"] += 1
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
            self._besides["warm processes killed"] += 1
            strike(process, signal.SIGKILL)

    async def _stop_keeper(self) -> None:
        keepers = (await asyncio.to_thread(self._servers.guards))[1:]
        if keepers:
            self._keeper_stopped = True
            for keeper in keepers:
                strike(keeper, signal.SIGSTOP)

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
