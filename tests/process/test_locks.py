"""Locks are released when their last holder ends, including a child that inherited one."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from askback.process.locks import FileLock, InstanceLocks, is_held


def test_a_lock_has_one_holder_and_is_free_after_release(tmp_path: Path) -> None:
    lock = FileLock.take(tmp_path / "lock")
    assert lock is not None
    assert FileLock.take(tmp_path / "lock") is None
    assert is_held(tmp_path / "lock")
    lock.release()
    assert not is_held(tmp_path / "lock")


def test_a_lock_is_held_until_the_child_it_was_handed_to_is_gone(tmp_path: Path) -> None:
    lock = FileLock.take(tmp_path / "lock")
    assert lock is not None
    child = subprocess.Popen(["sleep", "600"], pass_fds=[lock.fd])
    assert lock.held_by_descendant()
    child.kill()
    child.wait()
    assert not lock.held_by_descendant()
    assert is_held(tmp_path / "lock")
    lock.release()


def test_a_program_that_was_killed_is_known_to_be_dead(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from askback.process.locks import InstanceLocks\n"
        "name, lock = InstanceLocks(Path(sys.argv[1])).register(); print(name, flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    programs = InstanceLocks(tmp_path)
    assert programs.is_alive(name)
    assert (tmp_path / f"{name}.lock").read_text().split()[0] == str(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not programs.is_alive(name)


def test_files_of_dead_programs_are_removed_and_living_ones_stay(tmp_path: Path) -> None:
    programs = InstanceLocks(tmp_path)
    (alive, kept), (killed, lost), (left, last) = (programs.register() for _ in range(3))
    lost.release()
    programs.leave(left, last)
    assert not programs.is_alive(left)
    assert not programs.is_alive(killed)
    programs.forget_dead()
    assert [path.stem for path in tmp_path.iterdir()] == [alive]
    kept.release()


def test_a_program_is_not_forgotten_while_it_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program may check the file after it was created and before it is locked."""
    programs, lock = InstanceLocks(tmp_path), fcntl.flock
    looks: list[int] = []

    def late(fd: int, how: int) -> None:
        if not looks:
            looks.append(fd)
            programs.forget_dead()
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    name, held = programs.register()
    assert looks
    assert programs.is_alive(name)
    held.release()


def test_a_program_that_registers_while_the_dead_are_looked_for_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may lock its file after another program found it free, and before that one removed it."""
    programs, unlink = InstanceLocks(tmp_path), Path.unlink
    dead, lost = programs.register()
    lost.release()
    registered: list[tuple[str, FileLock | None]] = []

    def late(path: Path, missing_ok: bool = False) -> None:
        registered.append((path.stem, FileLock.take(path)))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", late)
    programs.forget_dead()
    [(name, held)] = registered
    assert name == dead
    assert held is None or programs.is_alive(name)


def test_who_only_looks_does_not_keep_anybody_from_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    path.touch()
    looking, lock = os.open(path, os.O_RDWR), fcntl.flock
    lock(looking, fcntl.LOCK_SH)

    def over(seconds: float) -> None:
        lock(looking, fcntl.LOCK_UN)

    monkeypatch.setattr(time, "sleep", over)
    held = FileLock.take(path)
    os.close(looking)
    assert held is not None
    held.release()
