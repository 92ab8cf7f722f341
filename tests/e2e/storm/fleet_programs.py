"""The servers and workers of a fleet, each on its own machine; and what is done to them."""

from __future__ import annotations

import asyncio
import os
import signal
from enum import Enum, auto

from storm.processes import Process, descendants, living, seen
from storm.servers import Nursery, answers
from support.machines import Machine
from support.object_store import CREDENTIALS
from support.program import environment, here

LEASE_SEC = 6.0


class State(Enum):
    UP = auto()
    SUSPENDED = auto()
    DOWN = auto()


class FleetProgram:
    def __init__(self, machine: Machine, nursery: Nursery, command: tuple[str, ...], port: int) -> None:
        self.machine = machine
        self.port = port
        self.pid = 0
        self.state = State.DOWN
        self.log = machine.folder / "program.log"
        self._nursery = nursery
        config = str(machine.folder / "askback.toml")
        self._args = [*command, "--json", "--port", str(port), "--config", config]

    @property
    def name(self) -> str:
        return self.machine.name

    async def start(self) -> None:
        machine = self.machine
        lease = {"ASKBACK_FLEET__LEASE_SEC": str(LEASE_SEC)}
        self.pid = await self._nursery.start(
            args=self._args,
            env=environment(machine, **machine.env, **CREDENTIALS, **lease),
            cwd=str(here(machine)),
            log=str(self.log),
            bind=(str(machine.runs), str(machine.fleet.runs_dir)),
        )
        self.state = State.UP

    async def is_ready(self) -> bool:
        return await answers(self.port)

    @property
    def has_ended(self) -> bool:
        """By itself: nobody has killed it."""
        return self.state is not State.DOWN and seen(self.pid) is None

    async def kill(self) -> int:
        """Its exit code."""
        os.kill(self.pid, signal.SIGKILL)
        return await self.reap()

    async def reap(self) -> int:
        self.state = State.DOWN
        pid, self.pid = self.pid, 0
        return await self._nursery.wait(pid)

    def suspend(self) -> None:
        """The program alone, and not its guardian."""
        self.state = State.SUSPENDED
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self.state is State.SUSPENDED:
            os.kill(self.pid, signal.SIGCONT)
            self.state = State.UP

    def processes(self) -> set[Process]:
        """Its guardian, the keepers, and the engines with all that they have started."""
        return descendants(self.pid) if self.pid else set()

    async def lose_disk(self, processes: set[Process], seconds: float) -> None:
        """As when its machine is replaced. `processes` were those of the program that was killed."""
        async with asyncio.timeout(seconds):
            while living(processes):
                await asyncio.sleep(0.05)
        await asyncio.to_thread(self.machine.lose_disk)
