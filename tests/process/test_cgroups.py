"""Control groups: where they may be created, and what one does to an engine's tree.

The search is tried on folders that look like a mounted cgroup v2. What needs no controller (birth inside a group, CPU
time, the kill, the removal) is tried on a real one, where this machine lets us write to it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hostile import within

from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian.client import Guardian, available
from askback.process.guardian.control_group import ControlGroup, remove_all
from askback.process.guardian.delegation import CONTROLLERS, Delegation, Place, delegation, find_place
from askback.process.isolation import Breach, Resource, ResourceLimits

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 20)
ME = 42


def mounted(folder: Path, groups: Mapping[str, Mapping[str, str]]) -> Path:
    """A folder like a mounted cgroup v2; each group has its controllers, those that it delegates, and its processes."""
    for name, files in groups.items():
        group = folder / name
        group.mkdir(parents=True, exist_ok=True)
        if name:
            (group / "cgroup.type").write_text("domain\n")
        for file in ("controllers", "subtree_control", "procs"):
            (group / f"cgroup.{file}").write_text(files.get(file, ""))
    return folder


ALL = {"controllers": "cpu memory pids", "subtree_control": "cpu memory pids"}
LEAF = {"controllers": "cpu memory pids"}
SERVICE = "system.slice/askback.service"
TERMINAL = "user.slice/user@1000.service/app.slice/terminal.scope"


def search(root: Path, own: str, *writable: str, ours: set[int] | None = None) -> Place | str:
    allowed = {root / name for name in writable}
    return find_place(root, root / own, CONTROLLERS, may_write=allowed.__contains__, ours=ours or {ME})


def test_a_service_with_delegate_moves_into_a_group_of_its_own(tmp_path: Path) -> None:
    root = mounted(tmp_path, {"": ALL, "system.slice": ALL, SERVICE: {**LEAF, "procs": f"{ME}\n"}})
    assert search(root, SERVICE, SERVICE) == Place(parent=root / SERVICE, moving=True)


def test_a_group_with_processes_of_others_is_left_alone(tmp_path: Path) -> None:
    root = mounted(tmp_path, {"": ALL, "system.slice": ALL, SERVICE: {**LEAF, "procs": f"{ME}\n7\n"}})
    assert "other processes" in str(search(root, SERVICE, SERVICE))


def test_a_user_whose_slice_hands_controllers_down_needs_to_move_nobody(tmp_path: Path) -> None:
    user, app = "user.slice/user@1000.service", "user.slice/user@1000.service/app.slice"
    root = mounted(
        tmp_path, {"": ALL, "user.slice": ALL, user: ALL, app: ALL, TERMINAL: {**LEAF, "procs": f"{ME}\n7\n"}}
    )
    assert search(root, TERMINAL, TERMINAL, app, user) == Place(parent=root / app, moving=False)


def test_the_root_of_the_machine_is_taken_as_it_is(tmp_path: Path) -> None:
    root = mounted(tmp_path, {"": {**LEAF, "procs": f"{ME}\n1\n"}})
    assert search(root, "", "") == Place(parent=root, moving=False)


def test_the_root_of_a_container_is_left_alone_where_others_are_in_it(tmp_path: Path) -> None:
    root = mounted(tmp_path, {"": {**LEAF, "procs": f"{ME}\n1\n"}})
    (root / "cgroup.type").write_text("domain\n")
    assert "other processes" in str(search(root, "", ""))
    assert search(root, "", "", ours={ME, 1}) == Place(parent=root, moving=True)


@pytest.mark.parametrize(
    ("groups", "own", "writable", "why"),
    [
        ({"": {"controllers": "hugetlb"}}, "", ("",), "lacks memory and pids"),
        ({"": ALL, SERVICE: LEAF}, SERVICE, (), "no control group is delegated"),
        ({"": ALL, SERVICE: {"controllers": "pids"}}, SERVICE, (SERVICE,), "does not have memory and pids"),
        ({"": ALL}, "elsewhere", ("",), "not visible"),
    ],
)
def test_where_there_is_no_place_the_reason_is_known(
    tmp_path: Path, groups: dict[str, dict[str, str]], own: str, writable: tuple[str, ...], why: str
) -> None:
    assert why in str(search(mounted(tmp_path, groups), own, *writable))


def test_without_cgroup_v2_the_reason_is_known(tmp_path: Path) -> None:
    assert delegation(mounts=(tmp_path,)).why_not == "cgroup v2 is not mounted"


def test_a_group_is_given_its_limits_and_tells_which_the_kernel_held(tmp_path: Path) -> None:
    group = ControlGroup(str(tmp_path), str(tmp_path), "engine")
    folder = tmp_path / "engine"
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max"):
        (folder / name).touch()
    group.limit({"memory": 200 << 20, "processes": 50, "cpu": 0, "disk": 0, "reserve": 0})
    seen = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "memory.oom.group")}
    assert seen == {"memory.max": str(200 << 20), "memory.swap.max": "0", "memory.oom.group": "1"}
    assert (folder / "pids.max").read_text() == "800"
    assert group.exceeded() is None
    (folder / "pids.events").write_text("max 3\n")
    assert group.exceeded() == "processes"
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\noom_group_kill 1\n")
    assert group.exceeded() == "memory"
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    assert group.cpu_sec() == 2.5


def test_the_limits_are_not_in_the_group_that_the_engine_is_in(tmp_path: Path) -> None:
    """A process that is the root of a cgroup namespace may be able to write to all files of its own group."""
    group = ControlGroup(str(tmp_path), str(tmp_path), "engine")
    for folder in [tmp_path / "engine", *(tmp_path / "engine").iterdir()]:
        for name in ("cgroup.procs", "memory.max", "memory.swap.max", "memory.oom.group", "pids.max"):
            (folder / name).touch()
    group.limit({"memory": 200 << 20, "processes": 50, "cpu": 0, "disk": 0, "reserve": 0})
    assert group.enter()
    entered = [file.parent for file in tmp_path.rglob("cgroup.procs") if file.read_text() == "0"]
    limited = [file.parent for file in tmp_path.rglob("*.max") if file.read_text()]
    assert entered == [tmp_path / "engine" / "inside"]
    assert set(limited) == {tmp_path / "engine"}


# On a real mount.


@pytest.fixture
def real() -> Delegation:
    if not available():
        pytest.skip("no guardian on this system")
    found = delegation(controllers=frozenset())
    if not found.usable:
        pytest.skip(f"no control group to write to: {found.why_not}")
    return found


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(open("/proc/self/cgroup").read().split("0::")[1].split()[0], flush=True)
        {act}
    os._exit(0)
os.wait()
time.sleep(600)
"""


async def printed(guardian: Guardian, folder: Path, act: str, resources: ResourceLimits) -> tuple[list[str], Breach]:
    lines: list[str] = []

    async def take(_: str, line: object) -> None:
        lines.append(getattr(line, "data", b"").decode())

    argv = [sys.executable, "-I", "-S", "-c", DAEMON.format(act=act)]
    child = await guardian.start(SpawnRequest(argv=argv, env={}, cwd=folder, limits=LIMITS, resources=resources))
    await child.lines(take)
    assert await child.end("", grace_sec=0)
    child.close()
    assert child.breach is not None
    return lines, child.breach


def test_an_engine_is_born_in_its_group_and_its_daemons_stay_there(tmp_path: Path, real: Delegation) -> None:
    base = real.base
    assert base is not None

    async def main() -> None:
        guardian = Guardian(real)
        try:
            async with asyncio.timeout(120):
                burn = "[0 for _ in iter(int, 1)]"
                lines, breach = await printed(guardian, tmp_path, burn, ResourceLimits(cpu_sec=1))
            (group,) = lines
            parent, _, own = group.rpartition("/")
            assert f"{base.name}/engine-" in parent
            assert own == "inside"
            assert breach.resource is Resource.CPU
            # The keeper itself is never inside: it would be killed with the engine.
            assert list(base.iterdir()) != []
            assert [each for each in base.iterdir() if each.is_dir()] == []
        finally:
            await guardian.close()

    asyncio.run(main())
    assert within(60, lambda: not base.exists())


def test_the_kill_of_a_group_reaches_all_that_is_in_it(tmp_path: Path, real: Delegation) -> None:
    assert real.base is not None
    group = ControlGroup(*real.paths, "engine-kill")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        group.enter()
        os.fork()
        os.write(write, b".")
        os.read(os.open("/dev/zero", os.O_RDONLY), 0)
        while True:
            os.sched_yield()
    os.close(write)
    assert within(60, lambda: len(group.pids()) == 2)
    assert group.cpu_sec() >= 0
    if not group.kill():
        os.killpg(pid, 9)
        pytest.skip("this kernel cannot kill a group")
    # Both ends of their pipe are closed once both have ended.
    while os.read(read, 16):
        pass
    os.waitpid(pid, 0)
    assert group.remove(patience_sec=60)
    real.release()
    assert not real.base.exists()


def test_groups_that_an_engine_has_created_are_removed_with_its_own(tmp_path: Path, real: Delegation) -> None:
    assert real.base is not None
    group = ControlGroup(*real.paths, "engine-nested")
    (Path(group.path) / "inside" / "own" / "deeper").mkdir(parents=True)
    assert group.remove()
    assert not Path(group.path).exists()
    (real.base / "engine-left" / "inside" / "own").mkdir(parents=True)
    remove_all(str(real.base))
    assert not real.base.exists()


def test_what_is_not_there_is_left_out_and_the_watchdog_stays(tmp_path: Path) -> None:
    """The base was removed: the engine still starts."""

    async def main() -> None:
        guardian = Guardian(Delegation(base=tmp_path / "gone", home=tmp_path))
        try:
            async with asyncio.timeout(120):
                act = "held = b'x' * (300 << 20); time.sleep(600)"
                _, breach = await printed(guardian, tmp_path, act, ResourceLimits(memory_bytes=100 << 20))
            assert breach.resource is Resource.MEMORY
            assert breach.figure > 100 << 20
        finally:
            await guardian.close()

    if not available():
        pytest.skip("no guardian on this system")
    asyncio.run(main())


def test_the_reason_here_is_one_of_those_that_are_known() -> None:
    found = delegation()
    try:
        assert found.usable or found.why_not
    finally:
        found.release()
