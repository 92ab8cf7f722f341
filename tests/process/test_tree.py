"""Ending a whole tree, whatever its processes do to escape. Real processes, verified in `/proc`."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.child import Child, OutputLimits, SpawnRequest
from askback.process.guardian import descendants
from askback.process.locks import FileLock
from askback.process.spawn_direct import Direct
from askback.process.tree import MARK, Tree, boot_id, identity
from support.processes import lives

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)

READY = "import os, signal, subprocess, sys, time\n"
CHILDREN = {
    "a plain child": "subprocess.Popen(['sleep', '600'])",
    "a child that ignores TERM": (
        "subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)'])"
    ),
    "a daemon in its own session": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "an orphaned daemon": (
        "subprocess.run([sys.executable, '-c', 'import subprocess; subprocess.Popen([\"sleep\", \"600\"], start_new_session=True)'])"
    ),
    "a daemon with an emptied environment that keeps its files": (
        'subprocess.run([sys.executable, \'-c\', \'import subprocess; subprocess.Popen(["/bin/sleep", "600"],'
        " start_new_session=True, env={}, close_fds=False)'], close_fds=False)"
    ),
    "a child that stopped itself": (
        "subprocess.Popen([sys.executable, '-c', 'import os, signal; os.kill(os.getpid(), signal.SIGSTOP)'])"
    ),
}


async def start(argv: list[str], env: dict[str, str], cwd: Path, *pass_fds: int) -> Child:
    return await Direct().start(SpawnRequest(argv=argv, env=env, cwd=cwd, limits=LIMITS, pass_fds=pass_fds))


async def until_ready(folder: Path) -> None:
    async with asyncio.timeout(60):
        while not (folder / "ready").exists():
            await asyncio.sleep(0.01)


@pytest.mark.contract("B-2")
@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("engine_ignores_term", [False, True])
def test_nothing_of_a_tree_survives_its_end(tmp_path: Path, kind: str, engine_ignores_term: bool) -> None:
    mark = f"tree-{os.getpid()}-{time.monotonic_ns()}"
    ignore = "signal.signal(15, signal.SIG_IGN)\n" if engine_ignores_term else ""
    code = f"{READY}{ignore}{CHILDREN[kind]}\nopen('ready', 'w')\ntime.sleep(600)"

    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        argv = [sys.executable, "-I", "-c", code]
        env = {"PATH": "/usr/bin:/bin", MARK: mark}
        child = await start(argv, env, tmp_path, lock.fd)
        await until_ready(tmp_path)
        tree = Tree(mark=mark, root=child.identity, lock=lock.path)
        before = tree.members()
        assert len(before) >= 2
        assert await child.end(mark, grace_sec=0.2, lock=lock.path)
        assert tree.members() == set()
        assert not any(lives(pid) for pid in before)
        assert not lock.held_by_descendant()
        child.close()
        lock.release()

    asyncio.run(main())


def test_a_tree_that_ends_when_asked_is_not_killed(tmp_path: Path) -> None:
    code = (
        f"{READY}signal.signal(15, lambda *_: (open('asked', 'w'), sys.exit(0)))\nopen('ready', 'w')\ntime.sleep(600)"
    )

    async def main() -> None:
        child = await start([sys.executable, "-I", "-c", code], {MARK: "t-asked"}, tmp_path)
        await until_ready(tmp_path)
        assert await child.end("t-asked", grace_sec=10)
        assert await child.exited() == 0
        child.close()

    asyncio.run(main())
    assert (tmp_path / "asked").exists()


def test_another_process_that_got_the_same_pid_is_left_alone() -> None:
    mine = identity(os.getppid())
    assert mine is not None
    reused = ProcessIdentity(pid=mine.pid, start_ticks=mine.start_ticks + 1, boot_id=mine.boot_id)
    assert Tree(mark="nobody", root=reused).members() == set()
    earlier_boot = ProcessIdentity(pid=mine.pid, start_ticks=mine.start_ticks, boot_id="another boot")
    assert Tree(mark="nobody", root=earlier_boot).members() == set()


def test_a_process_is_known_by_pid_start_and_boot() -> None:
    mine = identity(os.getpid())
    assert mine is not None
    assert mine.boot_id == boot_id() != ""
    assert identity(2**22 + 1) is None


def test_a_zombie_counts_as_gone(tmp_path: Path) -> None:
    pid = os.spawnve(os.P_NOWAIT, "/bin/true", ["true"], {MARK: "t-zombie"})
    while lives(pid):
        os.sched_yield()
    assert Tree(mark="t-zombie").members() == set()
    assert os.waitpid(pid, 0) == (pid, 0)


def test_a_process_that_lives_on_in_a_thread_is_no_zombie(tmp_path: Path) -> None:
    code = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""

    async def main() -> None:
        child = await start([sys.executable, "-I", "-c", code], {MARK: "t-thread"}, tmp_path)
        async with asyncio.timeout(60):
            while lives(child.identity.pid):
                await asyncio.sleep(0.01)
        assert Tree(mark="nobody", root=child.identity).members() == {child.identity.pid}
        assert await child.end("nobody", grace_sec=0)
        child.close()

    asyncio.run(main())


def test_a_turn_of_ours_is_not_ended_with_another_whose_lock_we_hold(tmp_path: Path) -> None:
    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        argv, env = ["/bin/sleep", "600"], {"PATH": "/bin"}
        mine = await start(argv, env, tmp_path, lock.fd)
        other = await start(argv, env, tmp_path)
        members = Tree(mark="nobody", lock=lock.path).members()
        assert mine.identity.pid in members
        assert other.identity.pid not in members
        for child in (mine, other):
            assert await child.end("nobody", grace_sec=1.0)
            child.close()
        lock.release()

    asyncio.run(main())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_process_that_we_may_not_end_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may start a program that runs as another user, such as `sudo`."""
    monkeypatch.setattr(tree, "_KILL_SEC", 0.01)
    other = subprocess.Popen(["sleep", "600"], start_new_session=True)
    root = identity(other.pid)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            code = 2 if asyncio.run(Tree(mark="nobody's", root=root).end(grace_sec=0.01)) else 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert other.poll() is None
    other.kill()
    other.wait()
    assert os.waitstatus_to_exitcode(status) == 0


def test_the_process_table_is_not_read_by_who_serves_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table may have thousands of entries, and the server must keep answering."""
    readers: set[int] = set()
    read = tree._table

    def table() -> list[tree._Entry]:
        readers.add(threading.get_ident())
        return read()

    monkeypatch.setattr(tree, "_table", table)
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)
    assert asyncio.run(Tree(mark="none", root=identity(left.pid)).end(grace_sec=0.01))
    assert left.wait() != 0
    assert readers
    assert threading.get_ident() not in readers


def test_a_process_that_got_a_reused_pid_is_not_signalled() -> None:
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    known = identity(bystander.pid)
    assert known is not None
    descendants.signal_each({bystander.pid: (known.start_ticks - 1, bystander.pid)}, signal.SIGKILL)
    assert bystander.poll() is None
    descendants.signal_each({bystander.pid: (known.start_ticks, bystander.pid)}, signal.SIGKILL)
    assert bystander.wait() == -signal.SIGKILL


def test_a_neighbour_in_the_group_of_a_marked_process_survives() -> None:
    mark = f"tree-{os.getpid()}-{time.monotonic_ns()}"
    neighbour = subprocess.Popen(["sleep", "600"], process_group=0)
    member = subprocess.Popen(["sleep", "600"], process_group=neighbour.pid, env={**os.environ, MARK: mark})
    assert asyncio.run(Tree(mark=mark).end(grace_sec=0))
    assert member.wait() == -signal.SIGKILL
    assert neighbour.poll() is None
    neighbour.kill()
    neighbour.wait()
