"""Limits that need certain users or disks: processes in a sandbox, the disk reserve, and the cost of an idle tree."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian, available
from askback.process.guardian.usage import Processes, Walk
from askback.process.guardian.watchdog import IDLE_CHECK_SEC, NO_LIMITS, Watchdog
from askback.process.isolation import Breach, Resource, ResourceLimits

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system: nothing is limited")

SOURCE = Path(__file__).parents[2] / "src"
NOBODY = 65534
MB = 1 << 20
LIMITS = OutputLimits(line_bytes=MB, turn_bytes=MB)
IN_A_SANDBOX = """
import asyncio, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian
from askback.process.isolation import ResourceLimits
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list
BOMB = '''
import resource, sys, threading, time
while resource.getrlimit(resource.RLIMIT_NPROC)[0] != 64:
    time.sleep(0.01)
started = 0
try:
    while started < 200:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        started += 1
except RuntimeError:
    print("refused", flush=True)
'''
async def main():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        own = folder / "data" / "own"
        own.mkdir(parents=True)
        hide = deny_list(homes=[folder / "home"], private=[folder / "data"])
        spawner = Sandboxed(Guardian(), hide=hide, show=(), share=(), networks=())
        isolation = await spawner.isolation()
        print(isolation.level, (await spawner.enforcement()).means["processes"], flush=True)
        async def take(_, line):
            print(line.data.decode(), flush=True)
        argv = ["/usr/bin/python3", "-I", "-c", BOMB]
        env = {"PATH": "/usr/bin:/bin"}
        limits = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 20)
        request = SpawnRequest(argv=argv, env=env, cwd=own, limits=limits, writable=(own,), resources=ResourceLimits(processes=4))
        child = await spawner.start(request)
        await child.lines(take)
        await child.end("", grace_sec=0)
        child.close()
        await spawner.close()
asyncio.run(main())
"""


@pytest.mark.contract("Q-1")
def test_the_kernel_itself_refuses_a_sandbox_of_an_ordinary_user_more_than_its_share() -> None:
    """In a separate user namespace, the limit counts only what is inside."""
    python = Path("/usr/bin/python3")
    if not python.exists():
        pytest.skip("there is no system Python, which an ordinary user could run")
    asked = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, check=True
    )
    if asked.stdout.strip() != b"True":
        pytest.skip("the system's Python is older than 3.11")
    user = NOBODY if os.geteuid() == 0 else None
    told = subprocess.run(
        [python, "-c", IN_A_SANDBOX, str(SOURCE)],
        user=user,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.stdout, told.stderr
    if not told.stdout.startswith("bubblewrap"):
        pytest.skip(f"no sandbox for an ordinary user here: {told.stdout}{told.stderr[-300:]}")
    assert told.stdout.splitlines() == ["bubblewrap ('watchdog', 'rlimit')", "refused"], told.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(tmp_path)]
    mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


FILLING = """
import time
while time.sleep(0.1) or True:
    with open("{name}", "ab") as file:
        if file.tell() < {most} << 20:
            file.write(b"x" * (1 << 20))
"""


HIDING = """
import os, time
for _ in range(30):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for each in range(4):
    with open(str(each), "wb") as file:
        file.write(b"x" * (10 << 20))
time.sleep(600)
"""


async def breach_of(guardian: Guardian, folder: Path, code: str, resources: ResourceLimits) -> Breach | None:
    """The limit that ended the program."""
    folder.mkdir()
    argv = [sys.executable, "-I", "-S", "-c", code]
    request = SpawnRequest(argv=argv, env={}, cwd=folder, limits=LIMITS, writable=(folder,), resources=resources)
    child = await guardian.start(request)

    async def nothing(_: str, __: object) -> None: ...

    try:
        await child.lines(nothing)
    finally:
        await child.end("", grace_sec=0)
        child.close()
    return child.breach


@pytest.mark.contract("Q-1")
def test_a_file_deeper_than_any_path_is_counted(small_disk: Path) -> None:
    async def main() -> None:
        guardian = Guardian()
        try:
            async with asyncio.timeout(120):
                limits = ResourceLimits(disk_bytes=20 * MB)
                breach = await breach_of(guardian, small_disk / "own", HIDING, limits)
        finally:
            await guardian.close()
        assert breach is not None
        assert breach.resource is Resource.DISK

    asyncio.run(main())


@pytest.mark.contract("Q-1")
def test_who_uses_up_the_last_of_the_disk_is_ended_and_not_who_runs_beside_it(small_disk: Path) -> None:
    async def main() -> None:
        guardian = Guardian()

        def run(name: str, most: int) -> Coroutine[Any, Any, Breach | None]:
            resources = ResourceLimits(disk_bytes=1 << 30, reserve_bytes=24 * MB)
            return breach_of(guardian, small_disk / name, FILLING.format(name="file", most=most), resources)

        try:
            async with asyncio.timeout(120), asyncio.TaskGroup() as group:
                modest = group.create_task(run("modest", 2))
                breach = await run("greedy", 60)
                assert breach is not None
                assert breach.resource is Resource.RESERVE
                assert not modest.done()
                modest.cancel()
        finally:
            await guardian.close()

    asyncio.run(main())


def test_a_tree_that_does_nothing_is_looked_at_less_often() -> None:
    with subprocess.Popen(["/bin/sleep", "600"]) as idle:
        try:
            watchdog = Watchdog({**NO_LIMITS, "memory": 1 << 40}, [], None)
            watchdog.started(idle.pid)
            for _ in range(5):
                assert watchdog.check() is None
            assert watchdog.due > time.monotonic() + IDLE_CHECK_SEC / 2
        finally:
            idle.kill()


def test_a_walk_counts_what_is_allocated_and_every_name_of_a_linked_file(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x" * MB)
    os.sync()
    (tmp_path / "linked").hardlink_to(tmp_path / "real")
    (tmp_path / "away").symlink_to("/")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    walk = Walk([os.fsencode(tmp_path)])
    while not walk.step(0.001, float("inf")):
        pass
    assert 2 * MB <= walk.used < 3 * MB


def test_a_walk_ends_as_soon_as_it_has_seen_too_much(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).touch()
    walk = Walk([os.fsencode(tmp_path)])
    assert walk.step(60, 1024)
    assert 1024 < walk.used < 300 * 1024


def test_a_look_at_a_crowd_stops_when_it_has_seen_enough() -> None:
    crowd = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(6)]
    try:
        assert len(Processes(os.getpid(), float("inf")).pids) >= 6
        assert len(Processes(os.getpid(), 2).pids) == 3
    finally:
        for each in crowd:
            each.kill()
            each.wait()
