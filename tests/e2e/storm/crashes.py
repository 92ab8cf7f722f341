"""The server killed at each system call by which it writes in the course of a run, one after the other, by strace.

Only the server's own threads are traced, one at a time, for strace counts calls by thread. A thread and a call may come
less often than when they were counted; then the server survives, and the point is told apart.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from storm import cast
from storm.auditor import Auditor, Verdict
from storm.clients import Door, Story
from storm.servers import Servers, free_port
from support.data_folder import World

CALLS = "fsync,fdatasync,rename,renameat,renameat2,write,writev,pwrite64,ftruncate,unlink,unlinkat,mkdir,mkdirat"
PART = next(part for part in cast.PARTS if part.name == "quick")
ATTACH_SEC = 20.0
RUN_SEC = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The server is killed when this thread of it begins this call for the so-manieth time."""

    call: str
    thread: int
    number: int


@dataclass(slots=True, kw_only=True)
class Crashes:
    verdict: Verdict
    points: int = 0
    killed: int = 0

    def line(self) -> str:
        return f"crash points {self.points}, killed {self.killed}, not recovered {len(self.verdict.problems)}"


class CannotTrace(Exception):
    """Why no program can be traced here."""


class Workshop:
    """Servers on one data folder, each for one point."""

    def __init__(self, folder: Path) -> None:
        self._world = World(folder)
        self._mark = f"crash-{secrets.token_hex(8)}"
        self._token = secrets.token_hex(16)
        self._servers = Servers(self._world, free_port(), None)
        self._door = Door(self._servers.port, token=self._token)
        self._auditor = Auditor(self._world.data_dir)
        self._stories: list[Story] = []

    async def crash_everywhere(self, *, seed: int, every: int) -> Crashes:
        """At every so-manieth point, from a random one on."""
        if shutil.which("strace") is None:
            raise CannotTrace("strace is not installed")
        self._world.folder.mkdir(parents=True, exist_ok=True)
        self._world.settings(f'slots = 2\n[server]\ntoken = "{self._token}"\n')
        cast.build(self._world, [PART])
        await self._servers.open()
        crashes = Crashes(verdict=self._auditor.verdict)
        try:
            points = await self._count()
            for point in points[random.Random(seed).randrange(every) :: every]:
                crashes.points += 1
                crashes.killed += await self._crash(point)
                if crashes.points % 25 == 0:
                    print(crashes.line(), file=sys.stderr, flush=True)
            await self._serve()
            self._auditor.judge_list(self._stories, await self._door.items("/runs", "cursor"))
        finally:
            await self._door.close()
            await self._servers.close()
        return crashes

    async def _count(self) -> list[Point]:
        """The points of a run that nobody disturbs."""
        threads = await self._warm_server()
        trace = self._world.folder / "trace"
        async with _traced(threads, "-o", str(trace), "-e", f"trace={CALLS}"):
            await self._tell_story()
        await self._servers.kill()
        seen = Counter(re.findall(r"^(\d+) +(\w+)\(", trace.read_text(), re.MULTILINE))
        return [
            Point(call=call, thread=threads.index(int(thread)), number=number)
            for (thread, call), times in sorted(seen.items())
            for number in range(1, times + 1)
        ]

    async def _crash(self, point: Point) -> bool:
        """Whether the server was killed there; the run goes on with the next one."""
        threads = await self._warm_server()
        if point.thread >= len(threads):
            await self._servers.kill()
            return False
        inject = f"inject={point.call}:signal=KILL:when={point.number}"
        async with _traced([threads[point.thread]], "-o", "/dev/null", "-e", f"trace={point.call}", "-e", inject):
            over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(self._revive(over))
                await self._tell_story()
                over.set()
        await self._servers.kill()
        return watching.result()

    async def _revive(self, over: asyncio.Event) -> bool:
        """Start the next server if this one dies. Whether it did."""
        while self._servers.alive:
            if over.is_set():
                return False
            await asyncio.sleep(0.01)
        await self._servers.kill()
        await self._servers.start()
        return True

    async def _serve(self) -> None:
        await self._servers.start()
        async with asyncio.timeout(RUN_SEC):
            while not await self._servers.is_ready():
                assert self._servers.alive, f"the server has ended by itself; see {self._servers.log}"
                await asyncio.sleep(0.01)

    async def _warm_server(self) -> list[int]:
        """A server that has done a run, so that its threads are there; and these."""
        await self._serve()
        await self._tell_story()
        return self._servers.threads()

    async def _tell_story(self) -> None:
        number = len(self._stories)
        story = Story(
            number=number, part=PART, token=f"{self._mark}-{number}-", chance=random.Random(number), cancels=False
        )
        self._stories.append(story)
        try:
            async with asyncio.timeout(RUN_SEC):
                await story.live(self._door)
        except TimeoutError:
            self._auditor.judge_unfinished([story])
            return
        await asyncio.to_thread(self._auditor.look_for_survivors, story)
        self._auditor.judge(story)


@asynccontextmanager
async def _traced(threads: list[int], *words: str) -> AsyncIterator[None]:
    which = [word for thread in threads for word in ("-p", str(thread))]
    strace = await asyncio.create_subprocess_exec(
        "strace", "-qq", *words, *which, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(ATTACH_SEC):
            while not all(map(_is_traced, threads)):
                if strace.returncode is not None and strace.stderr is not None:
                    raise CannotTrace((await strace.stderr.read()).decode(errors="replace").strip())
                await asyncio.sleep(0.005)
        yield
    finally:
        if strace.returncode is None:
            strace.terminate()
        await strace.communicate()


def _is_traced(thread: int) -> bool:
    try:
        return "TracerPid:\t0\n" not in Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return False
