"""Engines that take more of the machine than they may: each really tries, beside a run that must not notice.

The stand-in is the scripted engine, behind a program that first does what the skill's `attack.py` says.
"""

from __future__ import annotations

import json
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from askback.core.errors import ErrorCode
from askback.core.runs import Run
from askback.engines.scripted import Scripted
from askback.process.guardian import client
from askback.process.isolation import IsolationLevel
from support.data_folder import ASK, FINISH, World, over, run_async, submit, until, waiting

pytestmark = pytest.mark.skipif(not client.available(), reason="no guardian on this system: nothing is limited")

STICKY = {"interactive_profile": "sticky_process"}
STAND_IN = """
import os, sys
attack = "skill/attack.py"
if os.path.exists(attack) and "--stay" not in sys.argv:
    exec(open(attack).read())
os.execv(sys.executable, [sys.executable, *ENGINE, *sys.argv[1:]])
"""
TOOLS = """
import errno, mmap, os, time
def live():
    end = time.monotonic() + 600
    while time.monotonic() < end:
        time.sleep(1)
    os._exit(0)
def daemon(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            act()
        os._exit(0)
    os.wait()
def hold(mb):
    held = b"x" * (mb << 20)
    live()
def fork_bomb(alone):
    # It ends by itself at 3,000, should nobody end it.
    count = mmap.mmap(-1, 8)
    while int.from_bytes(count[:], "little") < 3000:
        count[:] = (int.from_bytes(count[:], "little") + 1).to_bytes(8, "little")
        if os.fork() == 0 and alone:
            os.setsid()
    live()
def burn(seconds=600):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
def write(number, mb, keep=True):
    held = []
    for each in range(number):
        file = open(f"file-{each}", "wb", buffering=0)
        if not keep:
            os.unlink(file.name)
        try:
            for _ in range(mb):
                file.write(b"x" * (1 << 20))
        except OSError:
            pass
        held.append(file)
    return held
"""
MEMORY, PROCESSES, CPU, DISK = "memory = 200", "processes = 50", "cpu_sec = 2", "disk = 20"
ATTACKS: dict[str, tuple[str, ErrorCode, str]] = {
    "holds 1 GB": (MEMORY, ErrorCode.MEMORY_LIMIT, "hold(1024)"),
    "holds 1 GB in a daemon": (MEMORY, ErrorCode.MEMORY_LIMIT, "daemon(lambda: hold(1024)); live()"),
    "holds 400 MB in eight processes": (
        MEMORY,
        ErrorCode.MEMORY_LIMIT,
        "[os.fork() or hold(50) for _ in range(8)]; live()",
    ),
    "holds 400 MB in files in memory": (
        MEMORY,
        ErrorCode.MEMORY_LIMIT,
        """
files = [os.memfd_create("x") for _ in range(4)]
[os.write(file, b"x" * (1 << 20)) for file in files for _ in range(100)]
live()
""",
    ),
    "holds 400 MB in files in memory of a process whose first thread has ended": (
        MEMORY,
        ErrorCode.MEMORY_LIMIT,
        """
import ctypes, platform, threading
def hold_files():
    files = [os.memfd_create("x") for _ in range(4)]
    [os.write(file, b"x" * (1 << 20)) for file in files for _ in range(100)]
    live()
threading.Thread(target=hold_files).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
""",
    ),
    "is a fork bomb": (PROCESSES, ErrorCode.PROCESS_LIMIT, "fork_bomb(False)"),
    "is a fork bomb of sessions": (PROCESSES, ErrorCode.PROCESS_LIMIT, "fork_bomb(True)"),
    "starts daemons": (PROCESSES, ErrorCode.PROCESS_LIMIT, "[daemon(live) for _ in range(80)]; live()"),
    "has a thousand threads": (
        "processes = 20",
        ErrorCode.PROCESS_LIMIT,
        "import threading; [threading.Thread(target=live).start() for _ in range(1000)]; live()",
    ),
    "burns": (CPU, ErrorCode.CPU_LIMIT, "burn()"),
    "burns in two daemons": (CPU, ErrorCode.CPU_LIMIT, "daemon(burn); daemon(burn); live()"),
    "burns in many short children": (
        CPU,
        ErrorCode.CPU_LIMIT,
        """
for _ in range(6000):
    if os.fork() == 0:
        burn(0.1)
        os._exit(0)
    os.wait()
""",
    ),
    "fills the disk": (DISK, ErrorCode.DISK_LIMIT, "write(20, 5); live()"),
    "fills the disk and ends its turn properly": (DISK, ErrorCode.DISK_LIMIT, "write(20, 5)"),
    "fills the disk with files without a name": (
        DISK,
        ErrorCode.DISK_LIMIT,
        "held = write(10, 10, keep=False); live()",
    ),
    "fills the disk with empty files": (
        DISK,
        ErrorCode.DISK_LIMIT,
        "[os.close(os.open(f'empty-{each}', os.O_CREAT)) for each in range(25_000)]; live()",
    ),
}


class Stage:
    """A skill that attacks, one that does not, and the engine that plays both."""

    def __init__(self, folder: Path, attack: str, *, sandbox: str = "off", limits: str = "") -> None:
        self.world = World(folder)
        self.token = f"attack-{secrets.token_hex(8)}"
        self.hostile = self.world.skill([ASK], [FINISH], name="hostile")
        Path(self.hostile, "attack.py").write_text(TOOLS + attack)
        self.friend = self.world.skill([ASK], [FINISH], name="friend")
        stand_in = folder / "engine" / "stand_in.py"
        stand_in.parent.mkdir()
        stand_in.write_text(f"ENGINE = {list(Scripted.default_command[1:])!r}\n{STAND_IN}")
        command = json.dumps([sys.executable, "-I", "-S", str(stand_in)])
        self.config = (
            f'sandbox = "{sandbox}"\nslots = 4\n[limits]\n{limits}\n'
            f'[engines.scripted]\ncommand = {command}\nextra_args = ["--model={self.token}"]\n'
        )

    def living(self) -> list[str]:
        """What has the token in its command line, which forks keep."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            if self.token.encode() in words:
                found.append(words.decode(errors="replace"))
        return found


def in_every_sandbox(test: Callable[..., None]) -> Callable[..., None]:
    """Where bubblewrap works, `auto` and `on` are the same sandbox."""
    return pytest.mark.parametrize("sandbox", ["off", "auto", pytest.param("on", marks=pytest.mark.long)])(test)


def check_sandbox(sandbox: str) -> None:
    if sandbox == "on" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")


def exceeded(run: Run, cause: ErrorCode) -> None:
    assert run.error is not None
    assert (run.error.code, run.error.cause) == (ErrorCode.RESOURCE_LIMIT_EXCEEDED, cause), run.error
    assert "limits." in run.error.message


@pytest.mark.contract("Q-1")
@in_every_sandbox
@pytest.mark.parametrize("name", ATTACKS)
def test_an_engine_that_takes_more_than_it_may_is_ended_alone(tmp_path: Path, name: str, sandbox: str) -> None:
    check_sandbox(sandbox)
    limits, cause, attack = ATTACKS[name]
    stage = Stage(tmp_path, attack, sandbox=sandbox, limits=limits)

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            friend = await waiting(app, (await submit(app, stage.friend, options=STICKY)).id)
            hostile = await submit(app, stage.hostile)
            exceeded(await over(app, hostile.id), cause)
            # The other run's process lived through it, and nothing else does.
            await app.service.reply(friend.id, "red")
            assert (await over(app, friend.id)).error is None
            assert stage.living() == []

    run_async(main)


@pytest.mark.contract("Q-1")
@in_every_sandbox
def test_a_file_that_only_looks_large_harms_nobody(tmp_path: Path, sandbox: str) -> None:
    """What counts is what is allocated; and no single file can be declared larger than all that the run may take."""
    check_sandbox(sandbox)
    attack = """
for each in range(10):
    os.truncate(os.open(f"sparse-{each}", os.O_CREAT | os.O_RDWR), 15 << 20)
try:
    os.truncate(os.open("terabyte", os.O_CREAT | os.O_RDWR), 1 << 40)
except OSError as error:
    assert error.errno == errno.EFBIG
    open("refused", "w").close()
"""
    stage = Stage(tmp_path, attack, sandbox=sandbox, limits=DISK)

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await waiting(app, (await submit(app, stage.hostile)).id)
            assert (app.workspaces.of(run.id).cwd / "refused").exists()

    run_async(main)


@pytest.mark.contract("Q-1")
@pytest.mark.parametrize("sandbox", ["on"])
def test_memory_that_a_sandbox_provides_as_a_disk_counts(tmp_path: Path, sandbox: str) -> None:
    check_sandbox(sandbox)
    attack = """
for each in range(4):
    with open(f"/dev/shm/{each}", "wb", buffering=0) as file:
        [file.write(b"x" * (1 << 20)) for _ in range(100)]
live()
"""
    stage = Stage(tmp_path, attack, sandbox=sandbox, limits=MEMORY)

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            if (await app.spawner.isolation()).level is not IsolationLevel.BUBBLEWRAP:
                pytest.skip("bubblewrap does not work here")
            exceeded(await over(app, (await submit(app, stage.hostile)).id), ErrorCode.MEMORY_LIMIT)

    run_async(main)


LURKING = """
def lurk():
    while not os.path.exists("go"):
        time.sleep(0.05)
    {attack}
daemon(lurk)
"""


@pytest.mark.contract("Q-1")
@in_every_sandbox
@pytest.mark.parametrize(
    ("limits", "cause", "attack"),
    [
        (MEMORY, ErrorCode.MEMORY_LIMIT, "hold(400)"),
        (PROCESSES, ErrorCode.PROCESS_LIMIT, "fork_bomb(False)"),
        (DISK, ErrorCode.DISK_LIMIT, "write(20, 5)"),
    ],
)
def test_a_sticky_engine_that_takes_too_much_while_it_waits_fails_its_run(
    tmp_path: Path, sandbox: str, limits: str, cause: ErrorCode, attack: str
) -> None:
    check_sandbox(sandbox)
    stage = Stage(tmp_path, LURKING.format(attack=attack), sandbox=sandbox, limits=limits)
    stand_in = tmp_path / "engine" / "stand_in.py"
    stand_in.write_text(stand_in.read_text().replace(' and "--stay" not in sys.argv', ""))

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await waiting(app, (await submit(app, stage.hostile, options=STICKY)).id)
            (app.workspaces.of(run.id).cwd / "go").touch()
            exceeded(await over(app, run.id), cause)
            assert stage.living() == []

    run_async(main)


@pytest.mark.contract("Q-1")
def test_a_sticky_engine_that_takes_too_much_in_a_turn_fails_its_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "hold(400)", limits=MEMORY)
    stand_in = tmp_path / "engine" / "stand_in.py"
    stand_in.write_text(stand_in.read_text().replace(' and "--stay" not in sys.argv', ""))

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await submit(app, stage.hostile, options=STICKY)
            exceeded(await over(app, run.id), ErrorCode.MEMORY_LIMIT)
            assert stage.living() == []

    run_async(main)


@pytest.mark.contract("Q-1", "X-9")
def test_a_limit_on_a_resumed_turn_is_no_failed_resume(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 'if any(each.startswith("--resume=") for each in sys.argv): hold(400)', limits=MEMORY)

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await waiting(app, (await submit(app, stage.hostile)).id)
            await app.service.reply(run.id, "red")
            exceeded(await over(app, run.id), ErrorCode.MEMORY_LIMIT)

    run_async(main)


@pytest.mark.contract("Q-1")
def test_an_engine_may_have_limits_that_differ_from_those_of_all(tmp_path: Path) -> None:
    attack = "held = b'x' * (300 << 20); time.sleep(0)"
    stage = Stage(tmp_path, attack + "\nlive()", limits="memory = 4096\ndisk = 0\ncpu_sec = 0")
    stage.config += "limits = { memory = 200 }\n"

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await over(app, (await submit(app, stage.hostile)).id)
            exceeded(run, ErrorCode.MEMORY_LIMIT)
            assert run.error is not None
            assert "engines.scripted.limits.memory" in run.error.message
            assert "the limit is 200 MB" in run.error.message

    run_async(main)


def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    """Ten processes with the same 100 MB hold 100 MB, also where a sum of what each shows would be 1 GB."""
    attack = """
held = b"x" * (100 << 20)
if os.fork() == 0:
    [os.fork() or live() for _ in range(9)]
    open("all-there", "w").close()
    live()
while not os.path.exists("looked-at"):
    time.sleep(0.05)
"""
    stage = Stage(tmp_path, attack, limits="memory = 400")

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await submit(app, stage.hostile)
            folder = app.workspaces.of(run.id).cwd
            await until((folder / "all-there").exists)
            (folder / "looked-at").touch()
            assert (await waiting(app, run.id)).error is None

    run_async(main)


def test_the_kernel_short_of_memory_takes_an_engine_before_us(tmp_path: Path) -> None:
    attack = """
open("score", "w").write(" ".join(open(f"/proc/{pid}/oom_score_adj").read().strip() for pid in ("self", str(os.getppid()))))
"""
    stage = Stage(tmp_path, attack)

    async def main() -> None:
        async with stage.world.working(stage.config) as app:
            run = await waiting(app, (await submit(app, stage.hostile)).id)
            scores = (app.workspaces.of(run.id).cwd / "score").read_text().split()
            ours = Path("/proc/self/oom_score_adj").read_text().strip()
            assert scores == ["600", ours]

    run_async(main)


def test_what_is_enforced_is_known(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def main() -> None:
        async with world.working() as app:
            found: Any = (await app.spawner.enforcement()).means
            assert {name for name, means in found.items() if means} == {"memory", "processes", "cpu", "disk", "oom"}

    run_async(main)
