"""A tree is suspended while its files are saved: no process of it runs, however it tries, and it continues afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hostile import is_alive, within

from askback.process.child import Child, NotFrozen, OutputLimits, Pipe, Spawner, SpawnRequest
from askback.process.guardian import client
from askback.process.guardian.client import Guardian, available
from askback.process.guardian.delegation import Delegation, delegation
from askback.process.isolation import IsolationLevel
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
from askback.process.spawn_direct import Direct

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)

FORKS = """
import os, threading, time
def write():
    number = 0
    while True:
        number += 1
        with open(f"thread-{os.getpid()}", "w") as file:
            file.write(str(number))
def chain():
    while True:
        if os.fork() != 0:
            os._exit(0)
        with open("chain", "a") as file:
            file.write(".")
        time.sleep(0.002)
threading.Thread(target=write, daemon=True).start()
if os.fork() == 0:
    os.setsid()
    chain()
while True:
    child = os.fork()
    if child == 0:
        with open("forks", "a") as file:
            file.write(".")
        os._exit(0)
    os.waitpid(child, 0)
"""

WAKES_ITSELF = """
import fcntl, os, signal
F_SETSIG = 10
fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
fcntl.fcntl(0, F_SETSIG, signal.SIGCONT)
fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
open("ready", "w").close()
while os.read(0, 1):
    open("awake", "a").write(".")
"""

WAITS_FOR_A_CHILD_IN_THE_KERNEL = """
import ctypes, os, platform, time
CLONE_VFORK = 0x4000
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
open("ready", "w").close()
if ctypes.CDLL(None).syscall(number, CLONE_VFORK | 17, 0, 0, 0, 0) == 0:
    while True:
        open("child", "a").write(".")
        time.sleep(0.01)
"""


class Ways:
    """The ways in which a tree can be kept here."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self._groups = Delegation()

    def spawner(self) -> Spawner:
        if self.kind == "sandbox":
            return Sandboxed(Guardian(), hide=deny_list(homes=[self.folder / "home"], private=[self.folder / "data"]))
        if self.kind == "group":
            self._groups = delegation(controllers=frozenset())
            if not self._groups.usable:
                pytest.skip(f"no control group to write to: {self._groups.why_not}")
        return Guardian(self._groups)

    @asynccontextmanager
    async def starting(self, code: str) -> AsyncIterator[Child]:
        own = self.folder / "own"
        own.mkdir()
        spawner = self.spawner()
        try:
            async with asyncio.timeout(120):
                if self.kind == "sandbox" and (await spawner.isolation()).level is not IsolationLevel.BUBBLEWRAP:
                    pytest.skip("no sandbox here")
                argv = [sys.executable, "-I", "-S", "-c", code]
                request = SpawnRequest(
                    argv=argv, env={}, cwd=own, limits=LIMITS, writable=(own,), readable=READABLE, stdin=Pipe.OPEN
                )
                child = await spawner.start(request)
                yield child
                assert await child.end("", grace_sec=0)
                child.close()
        finally:
            await spawner.close()

    def seen(self) -> dict[str, tuple[int, int]]:
        """What is in its folder, as seen from outside."""
        found: dict[str, tuple[int, int]] = {}
        for entry in os.scandir(self.folder / "own"):
            status = entry.stat()
            found[entry.name] = (status.st_size, status.st_mtime_ns)
        return found

    async def has(self, name: str) -> None:
        assert await asyncio.to_thread(within, 60, (self.folder / "own" / name).exists)

    async def changes(self) -> None:
        before = self.seen()
        assert await asyncio.to_thread(within, 60, lambda: self.seen() != before)

    async def stays(self) -> None:
        before = self.seen()
        assert not await asyncio.to_thread(within, 0.5, lambda: self.seen() != before)


READABLE = (Path(sys.executable),)


@pytest.fixture(params=["guardian", "sandbox", "group"])
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Ways:
    return Ways(request.param, tmp_path)


@pytest.fixture
def by_signals(tmp_path: Path) -> Ways:
    return Ways("guardian", tmp_path)


@pytest.fixture
def by_group(tmp_path: Path) -> Ways:
    return Ways("group", tmp_path)


def test_a_tree_that_forks_and_writes_all_the_time_changes_nothing_while_it_is_frozen(ways: Ways) -> None:
    async def main() -> None:
        async with ways.starting(FORKS) as child:
            await ways.has("chain")
            await ways.has("forks")
            for _ in range(3):
                async with child.frozen():
                    await ways.stays()
                await ways.changes()

    asyncio.run(main())


async def woken(child: Child, ways: Ways) -> None:
    async with child.frozen():
        await child.send(b".")
        await ways.has("awake")


def test_a_process_that_continues_itself_is_noticed(by_signals: Ways) -> None:
    async def main() -> None:
        async with by_signals.starting(WAKES_ITSELF) as child:
            await by_signals.has("ready")
            with pytest.raises(NotFrozen, match="ran although"):
                await woken(child, by_signals)

    asyncio.run(main())


def test_a_process_cannot_continue_itself_in_a_frozen_group(by_group: Ways) -> None:
    async def main() -> None:
        async with by_group.starting(WAKES_ITSELF) as child:
            await by_group.has("ready")
            async with child.frozen():
                await child.send(b".")
                await by_group.stays()
            await by_group.has("awake")

    asyncio.run(main())


def test_a_tree_that_cannot_be_stopped_by_signals_is_not_frozen_and_continues(by_signals: Ways) -> None:
    async def main() -> None:
        async with by_signals.starting(WAITS_FOR_A_CHILD_IN_THE_KERNEL) as child:
            await by_signals.has("child")
            with pytest.raises(NotFrozen, match="cannot be suspended"):
                async with child.frozen():
                    pytest.fail("it is not frozen")
            await by_signals.changes()

    asyncio.run(main())


def test_a_process_that_was_suspended_before_stays_suspended(by_signals: Ways) -> None:
    async def main() -> None:
        async with by_signals.starting(FORKS) as child:
            await by_signals.has("forks")
            os.kill(child.identity.pid, signal.SIGSTOP)
            assert await asyncio.to_thread(within, 60, lambda: child.is_stopped)
            async with child.frozen():
                pass
            assert child.is_stopped

    asyncio.run(main())


def test_a_frozen_tree_can_be_ended_at_once(ways: Ways) -> None:
    async def main() -> None:
        async with ways.starting(FORKS) as child:
            await ways.has("forks")
            async with child.frozen():
                assert await child.end("", grace_sec=0)
            assert child.gone

    asyncio.run(main())


async def left(child: Child) -> None:
    async with child.frozen():
        # As when our program is killed: the keeper sees only that its socket closes.
        child._handle.close()
        assert await asyncio.to_thread(within, 60, lambda: not is_alive(child.identity.pid))


def test_a_frozen_tree_does_not_outlive_askback(ways: Ways) -> None:
    async def main() -> None:
        async with ways.starting(FORKS) as child:
            await ways.has("forks")
            with pytest.raises(NotFrozen):
                await left(child)

    asyncio.run(main())


async def failing() -> None:
    raise ValueError


async def canceled() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize(("work", "error"), [(failing, ValueError), (canceled, asyncio.CancelledError)])
def test_a_tree_continues_when_its_files_cannot_be_saved(
    by_signals: Ways, work: Callable[[], Awaitable[None]], error: type[BaseException]
) -> None:
    async def save(child: Child) -> None:
        async with child.frozen():
            await work()

    async def main() -> None:
        async with by_signals.starting(FORKS) as child:
            await by_signals.has("forks")
            with pytest.raises(error):
                await asyncio.create_task(save(child))
            await by_signals.changes()

    asyncio.run(main())


def test_a_keeper_that_does_not_answer_has_frozen_nothing(by_signals: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FREEZE_SEC", 0.05)
    monkeypatch.setattr(client, "_KILL_SEC", 0.05)

    async def main() -> None:
        async with by_signals.starting("import time; time.sleep(600)") as child:
            keeper = int(Path(f"/proc/{child.identity.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            os.kill(keeper, signal.SIGSTOP)
            for _ in range(2):
                with pytest.raises(NotFrozen):
                    async with child.frozen():
                        pytest.fail("it is not frozen")
            os.kill(keeper, signal.SIGCONT)

    asyncio.run(main())


def test_without_a_guardian_nothing_is_frozen(tmp_path: Path) -> None:
    async def main() -> None:
        child = await Direct().start(SpawnRequest(argv=("/bin/sleep", "600"), env={}, cwd=tmp_path, limits=LIMITS))
        with pytest.raises(NotFrozen):
            async with child.frozen():
                pytest.fail("it is not frozen")
        assert await child.end("", grace_sec=0)
        child.close()

    asyncio.run(main())
