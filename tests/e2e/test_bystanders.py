"""A backup reads the data folder while a server crashes and starts again: it is no part of the turn, and is spared."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from askback.process.locks import FileLock
from askback.process.tree import Tree
from support.data_folder import FINISH, World
from support.program import until, work_folder
from support.server import Server

LOCKING = "import fcntl; fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB); "


@contextmanager
def backup(path: Path, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """A program that has the file open, as one that copies it."""
    code = f"import sys; file = open(sys.argv[1], 'rb'); {then}print('open', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.communicate("", timeout=60)


def test_a_backup_outlives_the_recovery_of_the_run_that_it_copies(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.skill([{"touch": "started"}, {"wait_for": "end"}, FINISH | {"finish": {"colour": "blue"}}])
    with Server(world) as server, server.client() as client:
        run = client.create_run("tested", engine="scripted", mode="auto")
        until(lambda: (work_folder(world, run.id) / "started").exists())
        with backup(world.data_dir / "runs" / run.id / "turn.lock") as copying:
            server.kill()
            with Server(world) as again, again.client() as later:
                (work_folder(world, run.id) / "end").touch()
                assert later.wait(run.id, timeout_sec=60).state == "succeeded"
            assert copying.poll() is None, "it was killed"


@pytest.mark.parametrize("then", ["", LOCKING], ids=["opens it", "locks it"])
def test_who_merely_opens_or_locks_the_file_is_no_member_of_the_turn(tmp_path: Path, then: str) -> None:
    path = tmp_path / "turn.lock"
    path.touch()
    with backup(path, then):
        assert Tree(mark="nobody", lock=path).members() == set()


def test_who_was_handed_the_lock_is_a_member_of_the_turn(tmp_path: Path) -> None:
    lock = FileLock.take(tmp_path / "turn.lock")
    assert lock is not None
    child = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fd], start_new_session=True, env={})
    try:
        assert Tree(mark="nobody", lock=lock.path).members() == {child.pid}
        lock.release()
        assert Tree(mark="nobody", lock=lock.path).members() == {child.pid}
    finally:
        child.kill()
        child.wait()
