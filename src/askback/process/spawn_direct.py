"""Starts programs as children of this process, on systems without a guardian.

If this process is killed, its programs keep running until their run restarts, which ends them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.child import Child, NotStarted, ProcessHandle, SpawnRequest, starting
from askback.process.isolation import Enforcement, Isolation, IsolationLevel, not_enforced
from askback.process.streams import Streams

_NO_LEASE = (
    "this system cannot end an engine whose program is suspended, so engines on a shared database need Linux; run"
    " `askback worker` on Linux, or use SQLite"
)


class Direct:
    """A spawner for every system that has process groups."""

    def __init__(self) -> None:
        self._leased = False

    async def start(self, request: SpawnRequest) -> Child:
        if self._leased:
            raise NotStarted(f"{request.argv[0]} cannot be started: {_NO_LEASE}")
        with starting(request) as streams:
            handle = _DirectHandle(_popen(request, streams))
        return Child(handle, streams, request.limits)

    async def isolation(self) -> Isolation:
        why = "this system cannot adopt orphaned processes: a daemon in another session survives its engine"
        return Isolation(level=IsolationLevel.NONE, why_not_more=why, advice="run Askback on Linux for more isolation")

    async def enforcement(self) -> Enforcement:
        return not_enforced("this system has no process table that a watchdog could read")

    def extend_lease(self, deadline: float) -> None:
        """Nothing here ends programs while this process is suspended, so none is started under a lease."""
        self._leased = True

    async def close(self) -> None:
        """Nothing to close."""


def _popen(request: SpawnRequest, streams: Streams) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = streams.theirs
    return subprocess.Popen(
        request.argv,
        env=dict(request.env),
        cwd=request.cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=request.pass_fds,
    )


class _DirectHandle(ProcessHandle):
    """A child of this process. Nobody knows all its descendants, so it is never suspended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self._process = process
        self.identity = tree.identity(process.pid) or ProcessIdentity(
            pid=process.pid, start_ticks=0, boot_id=tree.boot_id()
        )
        self._watch()

    @property
    def gone(self) -> bool:
        """By its process group: a descendant that left the group is not noticed."""
        if not self.exit.done():
            return False
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    async def end(self, mark: str, *, grace_sec: float, lock: Path | None) -> bool:
        gone = await tree.Tree(mark=mark, root=self.identity, lock=lock).end(grace_sec=grace_sec)
        if gone:
            await asyncio.shield(self.exit)
        return gone

    def _watch(self) -> None:
        """By a pidfd: a descendant may keep the pipes open long after the child has exited."""
        loop = asyncio.get_running_loop()

        def report() -> None:
            code = self._process.wait()
            if not self.exit.done():
                self.exit.set_result(code)

        if hasattr(os, "pidfd_open"):
            pidfd = os.pidfd_open(self._process.pid)

            def ended() -> None:
                loop.remove_reader(pidfd)
                os.close(pidfd)
                report()

            loop.add_reader(pidfd, ended)
        else:
            waiting = loop.run_in_executor(None, self._process.wait)
            waiting.add_done_callback(lambda _: report())
