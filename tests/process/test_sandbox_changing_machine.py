"""A sandbox on a machine whose files change: while it is tested whether one works, and between two starts."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from askback.process.child import call
from askback.process.guardian.client import Guardian
from askback.process.isolation import Isolation, IsolationLevel
from askback.process.sandbox.bubblewrap import Sandboxed
from askback.process.sandbox.visibility import deny_list


def _spawner() -> Sandboxed:
    return Sandboxed(Guardian(), hide=deny_list(homes=[], private=[]))


async def _isolation() -> Isolation:
    spawner = _spawner()
    try:
        return await spawner.isolation()
    finally:
        await spawner.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """In a folder of which every sandbox shows what other users can read."""
    if (isolation := asyncio.run(_isolation())).level is not IsolationLevel.BUBBLEWRAP:
        pytest.skip(f"no sandbox here: {isolation.why_not_more}")
    try:
        name = tempfile.mkdtemp(dir="/opt", prefix="askback-test-")
    except PermissionError:
        pytest.skip("/opt cannot be written to by the user who runs the tests")
    yield Path(name)
    shutil.rmtree(name, ignore_errors=True)


@pytest.mark.contract("Q-3")
def test_a_hidden_folder_that_is_removed_during_the_probe_does_not_turn_the_sandbox_off(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\nrm -rf {folder}\nexec {shutil.which("bwrap")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    isolation = asyncio.run(_isolation())
    assert not folder.exists()
    assert isolation.level is IsolationLevel.BUBBLEWRAP, isolation.why_not_more


@pytest.mark.contract("Q-3")
def test_a_file_closed_to_others_since_the_last_start_is_hidden_from_the_next(folder: Path) -> None:
    folder.chmod(0o755)
    key = folder / "key"
    key.write_text("secret")
    key.chmod(0o644)

    async def main() -> tuple[str, str]:
        spawner = _spawner()

        async def read() -> str:
            env = {"PATH": "/usr/bin:/bin"}
            printed = await call(spawner, ("cat", str(key)), env=env, cwd=Path("/usr"), timeout_sec=60, mark="test")
            return printed.stdout

        try:
            before = await read()
            closed = folder / "new"
            closed.write_text("secret")
            closed.chmod(0o600)
            closed.rename(key)
            return before, await read()
        finally:
            await spawner.close()

    assert asyncio.run(main()) == ("secret", "")
