"""A program that has done its imports and forks a server for every request, so that a thousand starts are quick.

A request is a line on stdin: `{"start": {"args", "env", "cwd", "log"}}` is answered with the server's pid, and
`{"wait": pid}` with its exit code. With `bind`, the server sees the first of two folders at the path of the second. With `--without NAME` the servers lack something that the storm must find missing.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import uvicorn.lifespan.off
import uvicorn.loops.asyncio  # noqa: F401

import askback.app
import askback.app.server
import askback.cli.commands.serve
import askback.cli.connection
import askback.http.app
import askback.http.protocol
import askback.settings.model
import askback.web.app
from askback.app import opening
from askback.cli.main import main
from askback.process import tree
from askback.process.guardian.client import Guardian
from askback.process.locks import FileLock
from askback.process.spawn_direct import Direct
from askback.runs.service import Service
from askback.store.sql.connection import Dialect
from askback.store.sqlite.connection import DIALECT
from askback.worker.turn import files, process
from askback.workspace.archives import RunArchives
from askback.workspace.layout import Workspace

_NEW_MOUNTS = 0x20000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000


def _replace(owner: Any, name: str, value: Any) -> None:
    assert name in vars(owner), f"{owner} has no {name}"
    setattr(owner, name, value)


def _without_snapshots() -> None:
    """A turn that is taken up finds what its first try left in the session."""
    _replace(Workspace, "begin_first_turn", lambda self, _: self.home.mkdir(exist_ok=True))
    _replace(Workspace, "begin_later_turn", lambda *_, **__: None)


def _without_lock() -> None:
    """A turn that was interrupted is taken up whether or not something of it lives."""

    async def end(*_: Any, **__: Any) -> bool:
        return True

    async def take_lock(run: Any, workspace: Any, _claim: Any) -> FileLock:
        path = workspace.lock_path.with_name(f"turn-{run.epoch}.lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), path)

    _replace(tree.Tree, "end", end)
    for module in (process, files):
        _replace(module, "take_lock", take_lock)


def _without_guardian() -> None:
    """Engines are the server's own children, and what they leave is looked for by their marks."""
    _replace(opening, "make_spawner", lambda *_: Direct())


def _without_fence() -> None:
    """Whoever writes a run's state last has won, also when what was decided is out of date."""
    _remove_fence(DIALECT)


def _without_fence_in_postgres() -> None:
    from askback.store.postgres import connection

    _remove_fence(connection.DIALECT)


def _remove_fence(dialect: Dialect) -> None:
    sql = dict(dialect.sql)
    unfenced = {name: text.replace(" AND version = :before", "") for name, text in sql.items()}
    assert unfenced != sql
    dialect.sql.update(unfenced)


def _without_pointer() -> None:
    """A turn begins with what its machine has of the run, whichever archive the run names."""

    async def nothing(*_: Any) -> None:
        return

    _replace(RunArchives, "_restore", nothing)


def _without_end_of_lease() -> None:
    """A worker whose lease is over goes on, and so do its engines."""
    from askback.cluster.lease import LeasedInstances

    _replace(LeasedInstances, "mark_lost", lambda *_: None)
    _replace(Guardian, "extend_lease", lambda *_: None)


def _without_live_snapshots() -> None:
    """A turn in a warm process begins without saving the home."""
    _replace(Workspace, "begin_live_turn", lambda *_, **__: None)


def _without_end_of_warm() -> None:
    """A run that is canceled while it waits is over whether or not its warm process lives."""

    async def nothing(*_: Any) -> None:
        return

    _replace(Service, "_end_warm", nothing)


MUTATIONS = {
    "live snapshots": _without_live_snapshots,
    "warm ends": _without_end_of_warm,
    "snapshots": _without_snapshots,
    "lock": _without_lock,
    "guardian": _without_guardian,
    "fence": _without_fence,
    "fence in PostgreSQL": _without_fence_in_postgres,
    "pointer": _without_pointer,
    "end of the lease": _without_end_of_lease,
}


def start(args: list[str], env: dict[str, str], cwd: str, log: str, bind: tuple[str, str] | None = None) -> int:
    child = os.fork()
    if child == 0:
        if bind is not None:
            _bind(*bind)
        _serve(args, env, cwd, log)
    return child


def _bind(folder: str, path: str) -> None:
    """In a mount namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    for failed in (
        libc.unshare(_NEW_MOUNTS),
        libc.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None),
        libc.mount(folder.encode(), path.encode(), None, _BIND, None),
    ):
        if failed:
            os._exit(os.EX_OSERR)


def _serve(args: list[str], env: dict[str, str], cwd: str, log: str) -> NoReturn:
    for number, path in enumerate((os.devnull, log, log)):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["askback", *args]
    try:
        main()
    except SystemExit as ended:
        os._exit(int(ended.code or 0))
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def attend() -> None:
    if sys.argv[1:2] == ["--without"]:
        MUTATIONS[sys.argv[2]]()
    asyncio.set_event_loop_policy(None)
    for line in sys.stdin:
        match json.loads(line):
            case {"start": wanted}:
                print(start(**wanted), flush=True)
            case {"wait": pid}:
                print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    assert Path(askback.app.__file__).is_file()
    attend()
