"""Starting programs ourselves: where there is no guardian to be had.

What a program leaves when we are killed lives until the run is taken up, and is ended then.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

from askback.core.runs import ProcessIdentity
from askback.process import tree
from askback.process.child import Child, SpawnRequest, starting
from askback.process.isolation import Isolation, IsolationLevel
from askback.process.limits import Enforcement, not_enforced
from askback.process.streams import Streams


class Direct:
    """The spawner of every system that has process groups."""

    async def start(self, order: SpawnRequest) -> Child:
        with starting(order) as streams:
            hold = _Own(_popen(order, streams))
        return Child(hold, streams, order.limits)

    async def confinement(self) -> Isolation:
        why = (
            "this system cannot adopt orphaned processes: what an engine leaves behind in a session of its own lives on"
        )
        return Isolation(in_force=IsolationLevel.NONE, why_not_more=why, advice="run it on Linux for more")

    async def enforcement(self) -> Enforcement:
        return not_enforced("this system has no table of processes that a watchdog could read")

    async def close(self) -> None:
        """There is nothing to let go of."""


def _popen(order: SpawnRequest, streams: Streams) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = streams.theirs
    return subprocess.Popen(
        order.argv,
        env=dict(order.env),
        cwd=order.cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=order.keep_fds,
    )


class _Own:
    """A child of this very process."""

    lost = False
    breach = None

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.identity = tree.identity(process.pid) or ProcessIdentity(
            pid=process.pid, start_ticks=0, boot_id=tree.boot_id()
        )
        self._watch()

    @property
    def gone(self) -> bool:
        """As far as can be seen without the process table: what left its group is not noticed."""
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

    def close(self) -> None:
        """There is nothing to let go of."""

    def _watch(self) -> None:
        """By a pidfd, for a descendant may keep the pipes open long after the child is gone."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            code = self._process.wait()
            if not self.exit.done():
                self.exit.set_result(code)

        if hasattr(os, "pidfd_open"):
            pidfd = os.pidfd_open(self._process.pid)

            def ended() -> None:
                loop.remove_reader(pidfd)
                os.close(pidfd)
                tell()

            loop.add_reader(pidfd, ended)
        else:
            waiting = loop.run_in_executor(None, self._process.wait)
            waiting.add_done_callback(lambda _: tell())
