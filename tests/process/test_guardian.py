"""The guardian: what a program gets from it, and what happens when it, a keeper or Askback ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hostile import Hostile, children, is_alive, within

from askback.process.child import Child, NotStarted, OutputLimits, SpawnRequest, call
from askback.process.guardian import client as guardian_module
from askback.process.guardian.client import KILLED, Guardian, available
from askback.process.isolation import ResourceLimits
from askback.process.locks import FileLock, is_held
from askback.process.streams import Line
from askback.process.tree import Tree

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

LIMITS = OutputLimits(line_bytes=1 << 22, turn_bytes=1 << 24)
SLEEP = ("/bin/sleep", "600")


@asynccontextmanager
async def guarding() -> AsyncIterator[Guardian]:
    guardian = Guardian()
    try:
        async with asyncio.timeout(120):
            yield guardian
    finally:
        await guardian.close()


def request(argv: Sequence[str], cwd: Path, *pass_fds: int, env: dict[str, str] | None = None) -> SpawnRequest:
    return SpawnRequest(argv=argv, env=env or {"PATH": "/usr/bin:/bin"}, cwd=cwd, limits=LIMITS, pass_fds=pass_fds)


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def printed(guardian: Guardian, wanted: SpawnRequest) -> list[bytes]:
    lines: list[bytes] = []

    async def take(_: str, line: Line) -> None:
        lines.append(line.data)

    child = await guardian.start(wanted)
    assert await child.lines(take) == 0
    assert await child.end("", grace_sec=0)
    child.close()
    return lines


def busy_keepers(guardian: Guardian) -> list[int]:
    """The keepers that keep an engine; the others wait for one."""
    assert guardian.pid is not None
    return [pid for pid in children(guardian.pid) if comm(pid) == "askback-keeper\n"]


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def keeper_of(guardian: Guardian) -> int:
    (keeper,) = busy_keepers(guardian)
    return keeper


def test_a_program_gets_its_streams_and_not_the_lock_that_is_kept_for_it(tmp_path: Path) -> None:
    code = "import os; print(sorted(os.readlink(f'/proc/self/fd/{fd}').split(':')[0] for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))"

    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        async with guarding() as guardian:
            for _ in range(2):
                (seen,) = await printed(guardian, request(python(code), tmp_path, lock.fd))
                assert seen.decode() == str(sorted(["/dev/null", "pipe", "pipe"]))
        lock.release()

    asyncio.run(main())


def ignored_by_a_child() -> list[signal.Signals]:
    """The test runner may ignore signals, like a background job of a shell, and Python itself ignores some."""
    handed_down = {number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN}
    forgotten = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    return sorted((handed_down - forgotten) | {signal.SIGPIPE, signal.SIGXFSZ})  # type: ignore[arg-type]


def test_a_program_starts_as_if_nobody_stood_between(tmp_path: Path) -> None:
    code = """
import os, signal, sys
print(os.getcwd(), os.getsid(0) == os.getpid(), os.environb[b"A"], len(sys.argv[1]), signal.pthread_sigmask(0, []))
print([number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN])
"""

    async def main() -> None:
        async with guarding() as guardian:
            argv = [*python(code), os.fsdecode(b"\xff")]
            seen = await printed(guardian, request(argv, tmp_path, env={"A": os.fsdecode(b"\xff\n")}))
            assert [line.decode() for line in seen] == [
                f"{tmp_path} True b'\\xff\\n' 1 set()",
                str(ignored_by_a_child()),
            ]

    asyncio.run(main())


def test_an_environment_of_a_megabyte_fits(tmp_path: Path) -> None:
    env = {f"V{number}": "x" * 100_000 for number in range(10)}

    async def main() -> None:
        async with guarding() as guardian:
            code = "import os; print(sum(len(each) for name, each in os.environ.items() if name[0] == 'V'))"
            assert await printed(guardian, request(python(code), tmp_path, env=env)) == [b"1000000"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("argv", "env", "why"),
    [
        (["no-such-program"], None, "No such file"),
        (["/"], None, "Permission denied"),
        (["sleep"], {"PATH": "/nowhere"}, "No such file"),
        (["sleep", "1"], {"A=B": "", "PATH": "/bin"}, "illegal environment"),
    ],
)
def test_what_cannot_be_started_is_told_and_harms_nobody(
    tmp_path: Path, argv: list[str], env: dict[str, str] | None, why: str
) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            with pytest.raises(NotStarted, match=f"{argv[0]} cannot be started: .*{why}"):
                await guardian.start(request(argv, tmp_path, env=env))
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]

    asyncio.run(main())


@pytest.mark.contract("B-3")
def test_the_lock_is_held_while_anything_lives_even_what_let_go_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        hostile = Hostile("leaves a daemon and ends", tmp_path)
        async with guarding() as guardian:
            child = await guardian.start(request(hostile.argv, tmp_path, lock.fd))
            assert await child.exited() == 0
            assert not child.gone
            # It has no recognizable command line while it becomes another program.
            assert await asyncio.to_thread(within, 60, lambda: len(hostile.survivors()) == 1)
            assert lock.held_by_descendant()
            assert await child.end("", grace_sec=0)
            assert child.gone
            assert hostile.survivors() == []
            assert not lock.held_by_descendant()
            child.close()
        lock.release()

    asyncio.run(main())


@pytest.mark.contract("B-3")
def test_a_tree_that_is_let_go_of_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            hostile = Hostile("ignores TERM", tmp_path)
            child = await guardian.start(request(hostile.argv, tmp_path))
            assert await asyncio.to_thread(within, 60, hostile.ready.exists)
            child.close()
            assert await asyncio.to_thread(hostile.is_gone)

    asyncio.run(main())


def test_a_guardian_that_is_closed_has_ended_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            children = [await guardian.start(request(SLEEP, tmp_path)) for _ in range(3)]
        assert not any(is_alive(child.identity.pid) for child in children)
        for child in children:
            child.close()

    asyncio.run(main())


def test_a_killed_keeper_loses_its_own_tree_and_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            hostile = Hostile("leaves a daemon without environment and files", tmp_path)
            child = await guardian.start(request(hostile.argv, tmp_path))
            assert await asyncio.to_thread(within, 60, hostile.ready.exists)
            keeper = keeper_of(guardian)
            other = await guardian.start(request(SLEEP, tmp_path))
            os.kill(keeper, signal.SIGKILL)
            assert (await child.exited(), child.keeper_lost, child.gone) == (KILLED, True, True)
            assert hostile.survivors() == []
            assert not other.has_exited
            assert is_alive(other.identity.pid)
            assert await other.end("", grace_sec=1)
            assert not other.keeper_lost
            for each in (child, other):
                each.close()

    asyncio.run(main())


def test_a_keeper_keeps_one_engine_after_another(tmp_path: Path) -> None:
    code = "import os; print(os.getppid(), os.getcwd(), sorted(os.listdir('/proc/self/fd')))"

    async def main() -> None:
        async with guarding() as guardian:
            seen: set[bytes] = set()
            # A keeper that is not yet idle is not used again, so it may take a few engines.
            while (line := (await printed(guardian, request(python(code), tmp_path)))[0]) not in seen:
                assert line.split(b" ", 1)[1] == f"{tmp_path} ['0', '1', '2', '3']".encode()
                seen.add(line)

    asyncio.run(main())


def test_a_killed_idle_keeper_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            for _ in range(3):
                assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]
                assert guardian.pid is not None
                for pid in children(guardian.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    asyncio.run(main())


def test_a_keeper_is_not_used_for_an_engine_with_another_limit(tmp_path: Path) -> None:
    """The limit of the size of a file cannot be raised again."""
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0])"

    async def main() -> None:
        async with guarding() as guardian:
            for megabytes in (7, 9, 7, 9):
                limits = ResourceLimits(disk_bytes=megabytes << 20)
                wanted = replace(request(python(code), tmp_path), resources=limits)
                assert await printed(guardian, wanted) == [str(megabytes << 20).encode()]

    asyncio.run(main())


def test_a_short_call_whose_keeper_is_killed_is_made_again(tmp_path: Path) -> None:
    script = "[ -e once ] && exec echo fine; touch once; kill -9 $PPID; exec sleep 600"

    async def main() -> None:
        async with guarding() as guardian:
            told = await call(guardian, ["/bin/sh", "-c", script], env={}, cwd=tmp_path, timeout_sec=20, mark="t-again")
            assert (told.exit_code, told.stdout) == (0, "fine")

    asyncio.run(main())


def test_a_killed_guardian_loses_what_it_had_and_the_next_program_gets_a_new_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            child = await guardian.start(request(SLEEP, tmp_path))
            first = guardian.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            assert (await child.exited(), child.keeper_lost) == (KILLED, True)
            assert await child.end("", grace_sec=0)
            child.close()
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]
            assert guardian.pid not in (None, first)

    asyncio.run(main())


def test_what_neither_keeper_nor_guardian_can_end_is_found_by_its_lock(tmp_path: Path) -> None:
    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        async with guarding() as guardian:
            child = await guardian.start(request(SLEEP, tmp_path, lock.fd))
            assert guardian.pid is not None
            keeper = keeper_of(guardian)
            os.kill(guardian.pid, signal.SIGSTOP)
            os.kill(keeper, signal.SIGKILL)
            os.kill(guardian.pid, signal.SIGKILL)
            assert (await child.exited(), child.keeper_lost, child.gone) == (KILLED, True, False)
            assert is_alive(child.identity.pid)
            assert await child.end("nobody", grace_sec=0, lock=lock.path)
            assert not is_alive(child.identity.pid)
            child.close()
        lock.release()

    asyncio.run(main())


def test_a_stopped_keeper_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian_module, "_KILL_SEC", 0.3)

    async def main() -> None:
        async with guarding() as guardian:
            child = await guardian.start(request(SLEEP, tmp_path))
            os.kill(keeper_of(guardian), signal.SIGSTOP)
            assert await child.end("", grace_sec=0)
            assert not is_alive(child.identity.pid)
            child.close()

    asyncio.run(main())


def test_a_stopped_guardian_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guardian_module, "_START_SEC", 2.0)

    async def main() -> None:
        async with guarding() as guardian:
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]
            assert guardian.pid is not None
            os.kill(guardian.pid, signal.SIGSTOP)
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]

    asyncio.run(main())


def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]
            hostile = Hostile("ignores TERM", tmp_path)
            starting = asyncio.ensure_future(guardian.start(request(hostile.argv, tmp_path)))
            await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            # It handles requests in order, so it has reached the abandoned one.
            assert await printed(guardian, request(["echo", "after"], tmp_path)) == [b"after"]
            assert guardian.pid is not None
            assert await asyncio.to_thread(within, 60, lambda: not busy_keepers(guardian))
            assert not any(map(children, children(guardian.pid)))
            assert hostile.survivors() == []

    asyncio.run(main())


def test_two_hundred_at_once_are_all_told_apart(tmp_path: Path) -> None:
    async def one(guardian: Guardian, number: int) -> None:
        assert await printed(guardian, request(["echo", str(number)], tmp_path)) == [str(number).encode()]

    async def main() -> None:
        async with guarding() as guardian:
            async with asyncio.TaskGroup() as group:
                for number in range(200):
                    group.create_task(one(guardian, number))
            assert guardian.pid is not None
            assert await asyncio.to_thread(within, 60, lambda: not busy_keepers(guardian))
            assert not any(map(children, children(guardian.pid)))

    asyncio.run(main())


@pytest.mark.contract("B-3")
def test_who_takes_a_run_up_lets_the_keeper_of_a_dead_program_finish_first(tmp_path: Path) -> None:
    """Only the keeper knows a daemon that nobody else could find. If it was killed in between, it could not end it."""

    async def main() -> None:
        lock = FileLock.take(tmp_path / "lock")
        assert lock is not None
        hostile = Hostile("leaves a daemon without environment and files", tmp_path)
        async with guarding() as guardian:
            child: Child = await guardian.start(request(hostile.argv, tmp_path, lock.fd))
            assert await asyncio.to_thread(within, 60, hostile.ready.exists)
            keeper = keeper_of(guardian)
            os.kill(keeper, signal.SIGSTOP)
            lock.release()
            child.close()
            taking_up = asyncio.ensure_future(Tree(mark="nobody", lock=lock.path).end(grace_sec=0))
            await asyncio.sleep(0.1)
            assert is_alive(keeper)
            os.kill(keeper, signal.SIGCONT)
            assert await taking_up
            assert hostile.survivors() == []
            assert not is_held(lock.path)

    asyncio.run(main())


def test_a_loop_that_was_held_up_does_not_take_the_guardian_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer came while our own loop was blocked. Killing the guardian would interrupt all turns."""
    monkeypatch.setattr(guardian_module, "_START_SEC", 0.2)

    async def main() -> None:
        async with guarding() as guardian:
            first = await guardian.start(request(SLEEP, tmp_path))
            before = guardian.pid
            starting = asyncio.create_task(guardian.start(request(SLEEP, tmp_path)))
            await asyncio.sleep(0)
            time.sleep(3)
            second = await starting
            assert guardian.pid == before
            assert not first.gone
            for child in (first, second):
                assert await child.end("", grace_sec=0)
                child.close()

    asyncio.run(main())
