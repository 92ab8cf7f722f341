"""A machine that is short of processes or open files: turns wait for it, nothing is called missing, nobody else is hurt."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import support.talker as talker
from askback.core.errors import ErrorCode, RefusalCode, Unavailable, WarningCode, is_temporary
from askback.core.outcomes import TurnError
from askback.core.runs import RunState
from askback.process.child import NotStarted, OutputLimits, SpawnRequest
from askback.process.guardian import client
from askback.process.guardian.client import Guardian
from askback.worker.claimed_run import ClaimedRun, StopReason
from askback.worker.turn.context import CannotStart, Shortage, Stopped
from support.asking import asking
from support.data_folder import World, over, run_async, submit

LIMITS = OutputLimits(line_bytes=1 << 20, turn_bytes=1 << 20)


def order(*argv: str) -> SpawnRequest:
    return SpawnRequest(argv=argv, env={"PATH": "/usr/bin:/bin"}, cwd=Path("/"), limits=LIMITS)


@pytest.mark.skipif(not client.available(), reason="no guardian on this system")
def test_a_guardian_without_open_files_refuses_for_now_and_hurts_nobody() -> None:
    async def main() -> None:
        keeping = Guardian()
        try:
            other = await keeping.start(order("sleep", "600"))
            assert keeping.pid is not None
            before = resource.prlimit(keeping.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(keeping.pid, resource.RLIMIT_NOFILE, (8, before[1]))
            pid = keeping.pid
            with pytest.raises(NotStarted) as refused:
                await keeping.start(order("true"))
            assert is_temporary(refused.value)
            assert (keeping.pid, other.has_exited, other.keeper_lost) == (pid, False, False)
            resource.prlimit(keeping.pid, resource.RLIMIT_NOFILE, before)
            child = await keeping.start(order("true"))
            assert await child.exited() == 0
        finally:
            await keeping.close()

    run_async(main)


def test_a_program_that_is_not_there_is_no_shortage() -> None:
    async def main() -> None:
        keeping = Guardian()
        try:
            with pytest.raises(NotStarted) as refused:
                await keeping.start(order("/no/such/program"))
            assert not is_temporary(refused.value)
        finally:
            await keeping.close()

    run_async(main)


@contextmanager
def being_written(path: Path) -> Iterator[None]:
    """While a program is open for writing, the system does not start it."""
    with path.open("r+b"):
        with suppress(OSError):
            subprocess.run([path, "--version"], check=True, stdout=subprocess.DEVNULL)
            pytest.skip("this system starts programs that are being written")
        yield


def program(folder: Path) -> tuple[Path, str]:
    path = folder / "codex"
    path.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({talker.__file__!r}, run_name='__main__')\n")
    path.chmod(0o755)
    return path, f"[engines.codex]\ncommand = [{json.dumps(str(path))}]\n"


def test_an_engine_that_cannot_be_asked_now_is_not_called_missing(tmp_path: Path) -> None:
    world = World(tmp_path)
    skill = world.skill()
    path, config = program(tmp_path)

    async def main() -> None:
        async with world.working(config) as app:
            with being_written(path), pytest.raises(Unavailable) as refused:
                await submit(app, skill, engine="codex", mode="auto", options={"model": "tiny-0.001"})
            assert refused.value.code is RefusalCode.RESOURCE_SHORTAGE
            # Nothing of it was remembered.
            run = await submit(app, skill, engine="codex", mode="auto", options={"model": "tiny-0.001"})
            assert (await over(app, run.id)).state is RunState.SUCCEEDED

    run_async(main)


def test_a_turn_waits_until_its_engine_can_be_started(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    skill = world.skill()
    path, config = program(tmp_path)

    async def main() -> None:
        async with world.working(config) as app:
            first = await submit(app, skill, engine="codex", mode="auto", options={"model": "tiny-0.001"})
            assert (await over(app, first.id)).warnings == ()
            with being_written(path):
                runs = [
                    await submit(app, skill, engine="codex", mode="auto", options={"model": "tiny-0.001"})
                    for _ in range(3)
                ]
                while "short of resources" not in caplog.text:
                    await asyncio.sleep(0.01)
                assert {(await app.service.store.get(run.id)).state.final for run in runs} == {False}
            for run in runs:
                ended = await over(app, run.id)
                assert (ended.state, ended.error) == (RunState.SUCCEEDED, None)
            codes = {warning.code for run in runs for warning in (await app.service.store.get(run.id)).warnings}
            assert codes == {WarningCode.ENGINE_START_DELAYED}

    run_async(main)
    assert caplog.text.count("short of resources") <= 3


def test_a_shortage_that_does_not_end_has_its_own_code() -> None:
    async def fails() -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    async def main() -> None:
        with pytest.raises(CannotStart) as refused:
            await Shortage(patience_sec=0.05).retry(fails, ClaimedRun(asking("Which?", ())))
        assert isinstance(refused.value.outcome, TurnError)
        assert refused.value.outcome.error.code is ErrorCode.ENGINE_START_FAILED
        claim = ClaimedRun(asking("Which?", ()))
        claim.stop(StopReason.CANCEL)
        with pytest.raises(Stopped):
            await Shortage().retry(fails, claim)

    run_async(main)


def test_a_fault_that_is_no_shortage_is_not_tried_again() -> None:
    async def fails() -> None:
        raise OSError(errno.EACCES, "Permission denied")

    async def main() -> None:
        with pytest.raises(PermissionError):
            await Shortage().retry(fails, ClaimedRun(asking("Which?", ())))

    run_async(main)
