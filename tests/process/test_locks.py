"""Locks that end with their holder, also with a holder that they were handed to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from askback.process.locks import FileLock, Programs, is_held


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
    assert lock.outlived()
    child.kill()
    child.wait()
    assert not lock.outlived()
    assert is_held(tmp_path / "lock")
    lock.release()


def test_a_program_that_was_killed_is_known_to_be_dead(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from askback.process.locks import Programs\n"
        "name, lock = Programs(Path(sys.argv[1])).register(); print(name, flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    programs = Programs(tmp_path)
    assert programs.is_alive(name)
    assert programs.pid(name) == str(child.pid)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not programs.is_alive(name)


def test_files_of_dead_programs_are_removed_and_living_ones_stay(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    (alive, kept), (killed, lost), (left, last) = (programs.register() for _ in range(3))
    lost.release()
    programs.leave(left, last)
    assert not programs.is_alive(left)
    assert not programs.is_alive(killed)
    programs.forget_dead()
    assert [path.stem for path in tmp_path.iterdir()] == [alive]
    kept.release()
