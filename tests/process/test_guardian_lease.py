"""Engines that are held by a lease: what ends when it is over, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hostile import Hostile, is_alive, within
from test_guardian import LIMITS, SLEEP, guarding, keeper_of, printed, request

from askback.process import tree
from askback.process.child import NotStarted, SpawnRequest
from askback.process.guardian.client import KILLED, available
from askback.process.guardian.messages import boottime
from askback.process.spawn_direct import Direct

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

_PROGRAM = Path(__file__).with_name("leased_program.py")
LONG_SEC = 120.0
HOUR = 3600.0


@contextmanager
def leased_program(folder: Path, argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    # In JSON: the words of a hostile program are how it is recognized.
    words = [sys.executable, str(_PROGRAM), str(folder), json.dumps(argv)]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def next_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    ready, _, _ = select.select([program.stdout], [], [], LONG_SEC)
    assert ready, "the program prints nothing"
    return program.stdout.readline().strip()


@pytest.mark.parametrize("kind", ["ignores TERM", "leaves a daemon without environment and files"])
def test_the_engines_of_a_suspended_program_end_with_its_lease(tmp_path: Path, kind: str) -> None:
    hostile = Hostile(kind, tmp_path)
    with leased_program(tmp_path, hostile.argv) as program:
        assert next_line(program) == "started"
        assert within(LONG_SEC, hostile.ready.exists)
        assert hostile.survivors()
        program.send_signal(signal.SIGSTOP)
        assert hostile.is_gone(LONG_SEC)
        assert tree.is_stopped(program.pid)
        program.send_signal(signal.SIGCONT)
        # It learns that the engine was taken from it, which is no result of the engine, and goes on with a new lease.
        assert next_line(program) == f"exit {KILLED}, lost True, expired True, gone True"
        assert next_line(program) == "another one"
        assert program.wait(LONG_SEC) == 0


def test_engines_live_as_long_as_the_lease_is_extended(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            guardian.extend_lease(boottime() + HOUR)
            child = await guardian.start(request(SLEEP, tmp_path))
            guardian.extend_lease(boottime() + 2 * HOUR)
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]
            assert not child.has_exited
            guardian.extend_lease(boottime())
            assert (await child.exited(), child.keeper_lost, child.expired) == (KILLED, True, True)
            assert await child.end("", grace_sec=0)
            child.close()

    asyncio.run(main())


def test_without_a_lease_nothing_starts_until_it_is_extended(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            guardian.extend_lease(boottime())
            with pytest.raises(NotStarted, match="cannot reach its database"):
                await guardian.start(request(SLEEP, tmp_path))
            assert guardian.pid is None
            guardian.extend_lease(boottime() + HOUR)
            assert await printed(guardian, request(["echo", "fine"], tmp_path)) == [b"fine"]

    asyncio.run(main())


def test_a_new_guardian_knows_the_lease(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            guardian.extend_lease(boottime() + HOUR)
            await printed(guardian, request(["echo", "fine"], tmp_path))
            first = guardian.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            while guardian.pid is not None:
                await asyncio.sleep(0.01)
            guardian.extend_lease(boottime() + 1)
            child = None
            while child is None:
                try:
                    child = await guardian.start(request(SLEEP, tmp_path))
                except NotStarted:
                    guardian.extend_lease(boottime() + 1)
            # Nobody extends it any more, and nobody else told the new guardian.
            assert await child.exited() == KILLED
            assert child.expired
            assert await child.end("", grace_sec=0)
            child.close()

    asyncio.run(main())


def test_a_keeper_that_is_suspended_cannot_save_its_engine(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarding() as guardian:
            guardian.extend_lease(boottime() + HOUR)
            child = await guardian.start(request(SLEEP, tmp_path))
            os.kill(keeper_of(guardian), signal.SIGSTOP)
            guardian.extend_lease(boottime())
            assert (await child.exited(), child.keeper_lost) == (KILLED, True)
            assert not is_alive(child.identity.pid)
            assert await child.end("", grace_sec=0)
            child.close()

    asyncio.run(main())


def test_without_a_guardian_no_engine_is_started_under_a_lease(tmp_path: Path) -> None:
    async def main() -> None:
        spawner = Direct()
        wanted = SpawnRequest(argv=["/bin/true"], env={}, cwd=tmp_path, limits=LIMITS)
        child = await spawner.start(wanted)
        assert await child.exited() == 0
        child.close()
        spawner.extend_lease(boottime() + HOUR)
        with pytest.raises(NotStarted, match="need Linux"):
            await spawner.start(wanted)

    asyncio.run(main())
