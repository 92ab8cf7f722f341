"""A program that has done its imports, and the processes that are forked off it: a start takes a fraction of the time."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

LIMIT_SEC = 120.0
# The interpreter and the loader of the real program look at these when they start.
_AT_START = ("PYTHON", "LD_")
_first = threading.Lock()


def can_be_forked(env: Mapping[str, str]) -> bool:
    return not any(name.startswith(_AT_START) or name in ("LC_ALL", "LC_CTYPE") for name in env)


class Forked:
    """One such process, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        words: Iterable[bytes],
        *,
        env: Mapping[str, str],
        cwd: Path,
        files: Sequence[Path | str],
        terminal: bool = False,
    ) -> None:
        start = [word.hex() for word in words]
        self.pid = _warm_program().ask(
            {"start": start, "env": env, "cwd": str(cwd), "files": list(map(str, files)), "terminal": terminal}
        )
        self.returncode: int | None = None
        self._once = threading.Lock()
        self._ending = os.pidfd_open(self.pid)

    def __del__(self) -> None:
        os.close(self._ending)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float = LIMIT_SEC) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("askback", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._ending, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None and _readable(self._ending, timeout):
            with self._once:
                if self.returncode is None:
                    self.returncode = _warm_program().ask({"ended": self.pid})
        return self.returncode


def _readable(descriptor: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


class _WarmProgram:
    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_program.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.close)

    def ask(self, request: Mapping[str, object]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=LIMIT_SEC)


@functools.cache
def _only_warm_program() -> _WarmProgram:
    return _WarmProgram()


def _warm_program() -> _WarmProgram:
    """Threads that ask at once must get the same one: a process is known only to the program that it was forked off."""
    with _first:
        return _only_warm_program()
