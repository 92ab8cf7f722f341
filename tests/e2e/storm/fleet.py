"""The storm over a fleet: two API servers and three workers, each on its own machine, a database and an object store.

Programs are killed, and sometimes their disk is lost with them; workers are suspended beyond their lease; the database
crashes; the object store cannot be reached for a while.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from storm import cast
from storm.auditor import Kind
from storm.clients import Door
from storm.driver import SURVIVAL_SEC, Storm, Weather
from storm.fleet_auditor import FleetAuditor
from storm.fleet_programs import LEASE_SEC, FleetProgram, State
from storm.processes import Process
from storm.servers import Nursery, free_port
from support import object_store
from support.machines import TOKEN, Fleet
from support.object_store import S3Server
from support.postgres import PostgresServer

SERVERS = ("api-1", "api-2")
WORKERS = ("worker-1", "worker-2", "worker-3")
SLOTS = 3
READY_SEC = 120.0
STOP_SEC = LEASE_SEC + 4.0
"""How long a process may live after its worker was suspended: the guardian ends it before the lease is over."""
AFTER_OUTAGE_SEC = 60.0
"""A program that starts while the database is down may end; one that runs may not."""


class FleetStorm(Storm):
    def __init__(self, folder: Path, weather: Weather) -> None:
        self._database = PostgresServer()
        self._store = S3Server(folder)
        self._bucket = self._store.make_bucket()
        self._fleet = Fleet(folder / "fleet", self._database.make_database(), self._bucket.address)
        super().__init__(weather, FleetAuditor(folder, self._fleet.database, self._bucket))
        self._nursery = Nursery(weather.without)
        self._servers: list[FleetProgram] = []
        self._workers: list[FleetProgram] = []
        self._make_programs()
        self._outage_at = 0.0
        self._faults: dict[Callable[[asyncio.TaskGroup], Awaitable[bool]], int] = {
            self._kill_worker: 6,
            self._suspend_worker: 3,
            self._kill_server: 3,
            self._crash_database: 1,
            self._close_store: 1,
        }

    def _make_programs(self) -> None:
        port = 0
        for name in (*SERVERS, *WORKERS):
            machine, port = self._fleet.machine(name), free_port(port)
            is_server = name in SERVERS
            machine.settings(self._config(f"slots = {SLOTS}"))
            if is_server:
                cast.build(machine, self._weather.parts)
            command = ("serve", "--no-worker") if is_server else ("worker",)
            programs = self._servers if is_server else self._workers
            programs.append(FleetProgram(machine, self._nursery, command, port))

    @property
    def _programs(self) -> list[FleetProgram]:
        return [*self._servers, *self._workers]

    async def _open(self) -> Door:
        await self._nursery.open()
        for program in self._programs:
            await program.start()
        await self._all_ready()
        return Door(*(server.port for server in self._servers), token=TOKEN, may_refuse=True)

    async def _all_ready(self) -> None:
        deadline = time.monotonic() + READY_SEC
        for program in self._programs:
            while not await program.is_ready():
                assert time.monotonic() < deadline, f"{program.name} did not get ready; see {program.log}"
                await self._restart_ended()
                await asyncio.sleep(0.1)

    # The harm.

    async def _rage(self, group: asyncio.TaskGroup) -> None:
        while self._raging:
            await asyncio.sleep(self._chance.uniform(0.2, 2.0))
            await self._restart_ended()
            await self._have_mercy()
            (fault,) = self._chance.choices(list(self._faults), weights=list(self._faults.values()))
            if await fault(group):
                self._kills += 1
                if self._kills % 25 == 0:
                    self._tell()

    def _any(self, programs: list[FleetProgram]) -> FleetProgram | None:
        up = [program for program in programs if program.state is State.UP]
        return self._chance.choice(up) if up else None

    async def _kill_worker(self, group: asyncio.TaskGroup) -> bool:
        if (worker := self._any(self._workers)) is None:
            return False
        self._count_strike()
        self._besides["workers killed"] += 1
        with_disk = self._chance.random() < 0.3
        self._besides["disks lost"] += with_disk
        await self._kill(worker, group, with_disk=with_disk, pause=self._chance.uniform(0, 1.5 * LEASE_SEC))
        return True

    async def _kill_server(self, group: asyncio.TaskGroup) -> bool:
        """No run may notice."""
        if (server := self._any(self._servers)) is None:
            return False
        self._besides["servers killed"] += 1
        await self._kill(server, group, with_disk=False, pause=self._chance.uniform(0, 2))
        return True

    async def _kill(self, program: FleetProgram, group: asyncio.TaskGroup, *, with_disk: bool, pause: float) -> None:
        left = await asyncio.to_thread(program.processes)
        code = await program.kill()
        assert code == -signal.SIGKILL, f"{program.name} had ended by itself with {code}; see {program.log}"
        group.create_task(self._outlived(left, SURVIVAL_SEC))
        group.create_task(self._start_again(program, left if with_disk else None, pause))

    async def _start_again(self, program: FleetProgram, processes: set[Process] | None, pause: float) -> None:
        if processes is not None:
            await program.lose_disk(processes, READY_SEC)
        await asyncio.sleep(pause)
        await program.start()

    async def _suspend_worker(self, group: asyncio.TaskGroup) -> bool:
        if (worker := self._any(self._workers)) is None:
            return False
        self._count_strike()
        self._besides["workers suspended"] += 1
        engines = await asyncio.to_thread(lambda: worker.processes() & self._engines())
        worker.suspend()
        group.create_task(self._resume_later(worker, engines, self._chance.uniform(0.5, 2.5) * LEASE_SEC))
        return True

    async def _resume_later(self, worker: FleetProgram, engines: set[Process], seconds: float) -> None:
        began = time.monotonic()
        if seconds > STOP_SEC:
            await self._outlived(engines, STOP_SEC)
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        worker.resume()

    async def _crash_database(self, _: asyncio.TaskGroup) -> bool:
        self._count_strike()
        self._besides["crashes of the database"] += 1
        self._outage_at = time.monotonic()
        await asyncio.to_thread(self._database.crash)
        await asyncio.sleep(self._chance.uniform(0, 1))
        await asyncio.to_thread(self._database.start)
        self._outage_at = time.monotonic()
        # Those that began meanwhile may have lost a lease.
        self._count_strike()
        return True

    async def _close_store(self, _: asyncio.TaskGroup) -> bool:
        self._besides["outages of the object store"] += 1
        self._outage_at = time.monotonic()
        self._bucket.turn(self._chance.choice((object_store.Door.REFUSING, object_store.Door.HANGING)))
        await asyncio.sleep(self._chance.uniform(0.2, 3))
        self._bucket.turn(object_store.Door.OPEN)
        self._outage_at = time.monotonic()
        return True

    async def _restart_ended(self) -> None:
        """As a service manager does it."""
        for program in self._programs:
            if program.has_ended:
                code = await program.reap()
                self._besides["ended by themselves"] += 1
                if time.monotonic() - self._outage_at > AFTER_OUTAGE_SEC:
                    what = f"{program.name} has ended by itself with {code}; see {program.log}"
                    self._auditor.verdict.add(Kind.LOST, what)
                await program.start()

    # The end.

    async def _calm(self) -> None:
        for program in self._programs:
            program.resume()
        await self._all_ready()

    async def _last_kill(self) -> None:
        left: set[Process] = set()
        for program in self._programs:
            left |= await asyncio.to_thread(program.processes)
            await program.kill()
        await self._outlived(left, SURVIVAL_SEC)
        await self._look_for_engines()

    async def _close(self) -> None:
        for program in self._programs:
            if program.state is not State.DOWN:
                await program.kill()
        await self._nursery.close()
        self._bucket.close()
        self._store.close()
        self._database.close()
