"""One server after the other on a world's data folder, at one address; how they are forked, and how they are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from storm.processes import Process, children, seen
from support.data_folder import World
from support.program import ASKBACK, environment, here

NURSERY = Path(__file__).with_name("nursery.py")
TESTS = Path(__file__).resolve().parents[2]


class Nursery:
    """The program that forks others quickly. They lack `without`."""

    def __init__(self, without: str | None) -> None:
        self._without = without
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        words = [] if self._without is None else ["--without", self._without]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(NURSERY), *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )

    async def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()

    async def start(self, **wanted: Any) -> int:
        """Its pid. For the words, see `nursery.start`."""
        return await self._ask({"start": wanted})

    async def wait(self, pid: int) -> int:
        return await self._ask({"wait": pid})

    async def _ask(self, request: object) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        async with self._turn:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            return int(await self._process.stdout.readline())


class Servers:
    def __init__(self, world: World, port: int, without: str | None) -> None:
        self._world = world
        self._args = ["serve", "--json", "--port", str(port), "--config", str(world.folder / "askback.toml")]
        self._without = without
        self._nursery = Nursery(without)
        self._cold: asyncio.subprocess.Process | None = None
        self.port = port
        self.pid = 0
        self.log = world.folder / "servers.log"

    async def open(self) -> None:
        await self._nursery.open()

    async def close(self) -> None:
        if self.pid:
            await self.kill()
        await self._nursery.close()

    async def start(self, *, cold: bool = False, sandbox: str = "off") -> None:
        """Cold: in a Python of its own, as its user starts it, which takes longer."""
        added = {"ASKBACK_SKILLS_DIR": str(self._world.folder / "skills"), "ASKBACK_SANDBOX": sandbox}
        env = environment(self._world, **added)
        cwd = here(self._world)
        if cold and self._without is None:
            with self.log.open("ab") as log:
                self._cold = await asyncio.create_subprocess_exec(
                    *ASKBACK, *self._args, env=env, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            self.pid = self._cold.pid
            return
        self.pid = await self._nursery.start(args=self._args, env=env, cwd=str(cwd), log=str(self.log))

    async def is_ready(self) -> bool:
        return await answers(self.port)

    async def kill(self) -> int:
        """Its exit code: another than KILL's means that it had ended by itself."""
        os.kill(self.pid, signal.SIGKILL)
        pid, self.pid = self.pid, 0
        if self._cold is not None:
            cold, self._cold = self._cold, None
            return await cold.wait()
        return await self._nursery.wait(pid)

    def guards(self) -> list[Process]:
        """The guardian, and then its keepers."""
        return guards_of(self.pid)

    def threads(self) -> list[int]:
        return sorted(int(entry.name) for entry in Path(f"/proc/{self.pid}/task").iterdir())

    @property
    def alive(self) -> bool:
        return seen(self.pid) is not None


async def answers(port: int) -> bool:
    """Whether the program at this port says that it lives."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port)
    try:
        return b" 200 " in await asyncio.wait_for(reader.read(64), 10)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()


def guards_of(pid: int) -> list[Process]:
    """The guardian of a program, and then its keepers."""
    guardians = [each for each in children(pid) if _comm(each.pid) == "askback-guard"]
    return [*guardians, *(keeper for guardian in guardians for keeper in children(guardian.pid))]


def free_port(after: int = 0) -> int:
    """Below those that the system gives away by itself, so that nobody else gets it between two servers."""
    for port in range(max(20_000 + os.getpid() % 10_000, after + 1), 32_000):
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("no free port was found")


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
