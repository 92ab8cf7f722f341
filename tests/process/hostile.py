"""Programs that try to survive being ended, and how to see whether they did.

Each is known by a token in its command line, which forks keep and no emptied environment takes away.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path

_LIFE = """
import os, signal, subprocess, sys, threading, time
token, ready = sys.argv[1:3]
def say_ready():
    os.close(os.open(ready, os.O_WRONLY | os.O_CREAT))
def live():
    end = time.monotonic() + 600
    while time.monotonic() < end:
        time.sleep(1)
    os._exit(0)
def daemon(then=live):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            then()
        os._exit(0)
    os.wait()
def bare():
    os.closerange(0, 1024)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", token], {})
def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
"""

HOSTILE = {
    "ignores TERM": """
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", token])
say_ready(); live()
""",
    "leaves a daemon in its own session": "daemon(); say_ready(); live()",
    "leaves a daemon without environment and files": "daemon(bare); say_ready(); live()",
    "leaves a daemon and ends": "daemon(bare); say_ready()",
    "forks on and on, each in a session of its own": """
daemon()
say_ready()
until = time.monotonic() + 600
while time.monotonic() < until:
    if os.fork():
        os._exit(0)
    os.setsid()
""",
    "starts anew whatever is killed": """
def watch():
    while True:
        child = os.fork()
        if child == 0:
            live()
        os.waitpid(child, 0)
daemon(watch); daemon(watch); say_ready(); watch()
""",
    "stops itself": "daemon(lambda: os.kill(os.getpid(), 19)); say_ready(); os.kill(os.getpid(), 19); live()",
    "kills its keeper": "daemon(bare); say_ready(); os.kill(os.getppid(), 9); live()",
    "kills the guardian": "daemon(bare); say_ready(); os.kill(parent_of(os.getppid()), 9); live()",
    "closes its output and lives": "os.close(1); os.close(2); daemon(); say_ready(); live()",
    "lives on in a thread when its first has ended": """
threading.Thread(target=live).start()
say_ready()
import ctypes
ctypes.CDLL(None).pthread_exit(None)
""",
}


class Hostile:
    """One such program."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.token = f"hostile-{secrets.token_hex(8)}"
        self.ready = folder / f"{self.token}.ready"
        self.argv = [sys.executable, "-I", "-S", "-c", _LIFE + HOSTILE[kind], self.token, str(self.ready)]

    def survivors(self) -> list[int]:
        return [pid for pid in _pids() if _words(pid)[-3:].count(self.token) and is_alive(pid)]

    def is_gone(self, seconds: float = 5.0) -> bool:
        return within(seconds, lambda: not self.survivors())


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children(parent: int) -> list[int]:
    return [pid for pid in _pids() if (fields := _fields(pid)) and int(fields[1]) == parent]


def is_alive(pid: int) -> bool:
    """Not a zombie, or one with other living threads."""
    fields = _fields(pid)
    return bool(fields) and (fields[0] not in "ZX" or int(fields[17]) > 1)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return [""]


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return []
