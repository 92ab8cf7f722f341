"""The program with its imports done once: a request a line on stdin, and for each start a process forked off this one.

To start: `{"start": [hex, …], "env": {…}, "cwd": folder, "files": [in, out, err], "terminal": true|false}`; the answer is
the id of the process. To collect one that has ended: `{"ended": pid}`; the answer is its exit code.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from typing import Any

import askback.access.tokens
import askback.app
import askback.app.server
import askback.cli.commands.access
import askback.cli.commands.demo
import askback.cli.commands.doctor
import askback.cli.commands.engines
import askback.cli.commands.reply
import askback.cli.commands.run
import askback.cli.commands.runs
import askback.cli.commands.serve
import askback.cli.commands.skills
import askback.cli.runs
import askback.cli.terminal.conversation
import askback.client
import askback.settings.model  # noqa: F401
from askback.cli.main import main


def enter(request: dict[str, Any]) -> None:
    """Make the forked process one that was started alone: its files, terminal, surroundings and signals."""
    if request["terminal"]:
        # A session's leader that opens a terminal gets it as its own: Ctrl-C and a hang-up reach it then.
        os.setsid()
    for number, path in enumerate(request["files"]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    # Whoever runs the tests may have had some signals ignored, which is handed down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    sys.argv = ["askback", *(os.fsdecode(bytes.fromhex(word)) for word in request["start"])]
    sys.stdin = sys.__stdin__ = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())
    sys.stderr = sys.__stderr__ = os.fdopen(
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


def answer(request: dict[str, Any]) -> int:
    """In the forked process this returns 0, as `fork` does."""
    if "ended" in request:
        return os.waitstatus_to_exitcode(os.waitpid(request["ended"], 0)[1])
    read, write = os.pipe()
    child = os.fork()
    os.close(read if child == 0 else write)
    if child == 0:
        enter(request)
        os.close(write)
    else:
        # The terminal of whoever asks may be closed once the process has opened it, and not before.
        os.read(read, 1)
        os.close(read)
    return child


def serve() -> bool:
    """Until the requests end, or this is a forked process, which has its command to execute."""
    for line in sys.stdin:
        request = json.loads(line)
        said = answer(request)
        if said == 0 and "start" in request:
            return True
        print(said, flush=True)
    return False


if __name__ == "__main__":
    gc.freeze()
    if serve():
        main()
