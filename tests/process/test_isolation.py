"""Whether a process of the same user can read the environment of ours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

NOBODY = 65534
# A change of user makes a process unreadable. It is made readable again first, so that the test proves something.
SCRIPT = """
import ctypes, os, sys
from askback.process.isolation import hide_from_other_processes
os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
if sys.argv[2] == "closed":
    hide_from_other_processes()
pid = os.fork()
if pid == 0:
    try:
        found = b"a-secret-of-ours" in open(f"/proc/{os.getppid()}/environ", "rb").read()
    except PermissionError:
        found = False
    os._exit(10 if found else 20)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc and lets a process close it")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user who may not read everything")
@pytest.mark.parametrize(("how", "code"), [("open", 10), ("closed", 20)])
def test_only_a_closed_program_keeps_its_environment_from_a_child_of_the_same_user(how: str, code: int) -> None:
    command = [sys.executable, "-c", SCRIPT, str(NOBODY), how]
    ended = subprocess.run(command, env={**os.environ, "SECRET": "a-secret-of-ours"}, timeout=120, check=False)
    assert ended.returncode == code
