"""Real children: lines, exits, limits, and nothing left behind."""

import asyncio
import os
import resource
import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from askback.process import child as child_module
from askback.process.child import STDERR, STDOUT, Child, NotStarted, OutputLimits, Pipe, Spawner, SpawnRequest, call
from askback.process.guardian.client import Guardian, available
from askback.process.spawn_direct import Direct
from askback.process.streams import Line
from askback.process.tree import MARK, Tree

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 24)


KINDS: dict[str, Callable[[], Spawner]] = {"direct": Direct, "guardian": Guardian}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Every test runs with both ways to start a program."""
    if request.param == "guardian" and not available():
        pytest.skip("no guardian on this system")
    return str(request.param)


@pytest.fixture
def mark() -> str:
    """Unique to this test: others run in parallel, including this one with the other spawner."""
    return f"child-{secrets.token_hex(8)}"


@asynccontextmanager
async def spawning(kind: str) -> AsyncIterator[Spawner]:
    spawner = KINDS[kind]()
    try:
        async with asyncio.timeout(120):
            yield spawner
    finally:
        await spawner.close()


async def start(
    spawner: Spawner,
    code: str,
    cwd: Path,
    *,
    mark: str,
    stdin: bytes | Pipe | None = None,
    limits: OutputLimits = LIMITS,
) -> Child:
    argv = [sys.executable, "-I", "-c", code]
    env = {"PATH": "/usr/bin:/bin", MARK: mark}
    return await spawner.start(SpawnRequest(argv=argv, env=env, cwd=cwd, stdin=stdin, limits=limits))


async def collect(child: Child) -> tuple[int, list[tuple[str, bytes]]]:
    seen: list[tuple[str, bytes]] = []

    async def take(name: str, line: Line) -> None:
        seen.append((name, line.data))

    return await child.lines(take), seen


def finish(child: Child, mark: str) -> None:
    child.close()
    assert Tree(mark=mark, root=child.identity).members() == set()


def test_lines_of_both_streams_and_the_exit_code_are_told(tmp_path: Path, kind: str, mark: str) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(
                spawner,
                "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)",
                tmp_path,
                mark=mark,
            )
            code, seen = await collect(child)
            assert code == 7
            assert sorted(seen) == [(STDERR, b"err"), (STDOUT, b"out")]
            finish(child, mark)

    asyncio.run(main())


def test_a_prompt_of_a_megabyte_arrives_whole(tmp_path: Path, kind: str, mark: str) -> None:
    prompt = b"-x\n" * 400_000

    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(
                spawner, "import sys; print(len(sys.stdin.buffer.read()))", tmp_path, mark=mark, stdin=prompt
            )
            assert await collect(child) == (0, [(STDOUT, b"1200000")])
            finish(child, mark)

    asyncio.run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can widen a pipe")
def test_a_long_line_fits_into_the_pipe_of_a_child_that_does_not_wait_for_its_reader(
    tmp_path: Path, kind: str, mark: str
) -> None:
    code = """
import fcntl, os, time
until = time.monotonic() + 5
while fcntl.fcntl(1, fcntl.F_GETPIPE_SZ) < 1 << 20 and time.monotonic() < until:
    time.sleep(0.001)
os.set_blocking(1, False)
os.write(1, b"x" * 1_000_000 + b"\\n")
os._exit(0)
"""

    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(spawner, code, tmp_path, mark=mark)
            assert await collect(child) == (0, [(STDOUT, b"x" * 1_000_000)])
            finish(child, mark)

    asyncio.run(main())


def test_a_child_that_prints_too_much_is_noticed_without_reading_it_all(tmp_path: Path, kind: str, mark: str) -> None:
    limits = OutputLimits(line_bytes=1000, turn_bytes=100_000)

    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(spawner, "while True: print('x' * 70)", tmp_path, mark=mark, limits=limits)
            reading = asyncio.ensure_future(collect(child))
            async with asyncio.timeout(60):
                await child.over_limit.wait()
            assert await child.end(mark, grace_sec=0)
            code, seen = await reading
            assert code != 0
            assert sum(len(line) for _, line in seen) <= 110_000
            finish(child, mark)

    asyncio.run(main())


def test_short_lines_that_come_all_at_once_do_not_keep_others_from_their_turn(
    tmp_path: Path, kind: str, mark: str
) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(spawner, "import os; os.write(1, b'y\\n' * 32_000)", tmp_path, mark=mark)
            read = 0
            seen: set[int] = set()

            async def take(_name: str, _line: Line) -> None:
                nonlocal read
                read += 1

            async def other() -> None:
                while read < 32_000:
                    seen.add(read)
                    await asyncio.sleep(0)

            async with asyncio.TaskGroup() as group:
                group.create_task(other())
                await child.lines(take)
            await child.end(mark, grace_sec=0)
            finish(child, mark)
            assert len(seen) > 50

    asyncio.run(main())


def test_an_exit_is_seen_while_a_descendant_keeps_the_pipe_open(tmp_path: Path, kind: str, mark: str) -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print('bye')"

    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(spawner, code, tmp_path, mark=mark)
            async with asyncio.timeout(60):
                assert await collect(child) == (0, [(STDOUT, b"bye")])
            assert not child.gone
            assert await child.end(mark, grace_sec=0)
            finish(child, mark)

    asyncio.run(main())


def test_a_program_that_is_not_there_is_told_by_name(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            with pytest.raises(NotStarted, match="no-such-program cannot be started"):
                await spawner.start(SpawnRequest(argv=["no-such-program"], env={}, cwd=tmp_path, limits=LIMITS))

    asyncio.run(main())


def test_a_short_call_keeps_what_was_printed(tmp_path: Path, kind: str, mark: str) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            printed = await call(
                spawner, ["sh", "-c", "echo a; echo b >&2; exit 3"], env={}, cwd=tmp_path, timeout_sec=60, mark=mark
            )
            assert (printed.exit_code, printed.stdout, printed.stderr) == (3, "a", "b")

    asyncio.run(main())


def test_a_call_that_hangs_is_ended_with_its_tree(tmp_path: Path, kind: str, mark: str) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            printed = await call(
                spawner, ["sh", "-c", "sleep 600 & sleep 600"], env={}, cwd=tmp_path, timeout_sec=0.2, mark=mark
            )
            assert printed.exit_code is None
            assert Tree(mark=mark).members() == set()

    asyncio.run(main())


def test_a_reader_that_is_held_up_still_gets_what_a_program_said_before_it_ended(
    kind: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn must not lose its last line because the store is slow for a moment."""
    monkeypatch.setattr(child_module, "_DRAIN_SEC", 0.01)
    seen: list[bytes] = []

    async def main() -> None:
        async with spawning(kind) as spawner:
            child = await start(spawner, "print('x' * 100_000, 'two', 'three', sep='\\n')", tmp_path, mark=mark)

            async def take(_name: str, line: Line) -> None:
                if not seen:
                    await child.exited()
                    await asyncio.sleep(0.2)
                seen.append(line.data)

            assert await child.lines(take) == 0
            await child.end(mark, grace_sec=0)
            child.close()

    asyncio.run(main())
    assert seen == [b"x" * 100_000, b"two", b"three"]


def test_a_start_for_which_there_are_too_few_files_leaves_none_open(
    kind: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with spawning(kind) as spawner:
            opened = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
            limits = resource.getrlimit(resource.RLIMIT_NOFILE)
            for stdin in (b"text", Pipe.OPEN):
                for room in range(1, 6):
                    resource.setrlimit(resource.RLIMIT_NOFILE, (_next_fd() + room, limits[1]))
                    try:
                        with pytest.raises((NotStarted, OSError)):
                            await start(spawner, "", tmp_path, mark=mark, stdin=stdin)
                    finally:
                        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
                    assert len(os.listdir("/proc/self/fd")) == opened, room  # noqa: PTH208

    asyncio.run(main())


def _next_fd() -> int:
    fd = os.dup(0)
    os.close(fd)
    return fd
