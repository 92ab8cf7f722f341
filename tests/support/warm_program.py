"""The command line, with its imports done once: a request a line on stdin, and for each a process forked off this one.

A request is `{"args": [hex, …], "env": {…}, "cwd": folder, "files": [in, out, err]}`; the answer is its exit code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any, NoReturn

import askback.bootstrap
import askback.cli.commands.demo
import askback.cli.commands.doctor
import askback.cli.commands.engines
import askback.cli.commands.reply
import askback.cli.commands.run
import askback.cli.commands.runs
import askback.cli.commands.skills
import askback.cli.commands.tokens
import askback.cli.run_ids
import askback.cli.terminal.conversation
import askback.client
import askback.http.tokens
import askback.settings  # noqa: F401
from askback.cli.main import main


def answer(request: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        carry_out(request)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def carry_out(request: dict[str, Any]) -> NoReturn:
    for number, path in enumerate(request["files"]):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8")
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["askback", *(os.fsdecode(bytes.fromhex(word)) for word in request["args"])]
    code: Any = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    for line in sys.stdin:
        print(answer(json.loads(line)), flush=True)
