"""The guardian: a separate program that starts every engine, and ends all its processes.

It has one end of a socket pair, and Askback the other: when the socket closes, Askback has ended. For every engine it
uses a keeper: one that has kept another engine to its end, or a new fork. Guardian and keepers adopt the orphans of their
descendants, so `keeper.py` knows when all processes of its engine have ended.

Askback may hold its engines by a lease. When the lease ends without an extension, because Askback is suspended or cut off
from its database, the guardian ends every engine, and starts another one only once it has a new lease.

Stand-alone on purpose: it imports only the standard library and the modules of this package except `client` and
`delegation`, so that it starts fast and forks cheaply. Linux only. The protocol, with `client.py` on the other side:

    Askback → guardian   "spawn <name> <limits>" with files: request, control, stdin, stdout, stderr, and those to keep;
                                           keepers whose limits differ are not interchangeable
                         "kill <name>"     the keeper no longer answers
                         "lease <time>"    engines may live until then, by CLOCK_BOOTTIME
    guardian → Askback   "lost <name>"     the keeper was killed, and the rest of its tree has ended
                         "refused <name>"  there are too many open files to receive those of the request
                         "expired <name>"  it was not started, because the lease is over
    guardian → keeper    a packet with the files of the next engine
                         "end"             the lease is over
    keeper → guardian    its pid, on a pipe, when it can keep another engine
    Askback → keeper     "end <seconds>"   on the control socket; closing it kills the tree at once
                         "freeze"          suspend the tree; "frozen <1 or 0>" answers whether it is suspended
                         "thaw"            continue it; "thawed <1 or 0>" answers whether it was suspended all the time
    keeper → Askback     lines: "started <pid> <start ticks>" or "failed <errno> <why>", then "exit <code>", then "gone";
                         "lost" before these if the guardian was killed, which makes the keeper end the tree;
                         "expired" instead of it if the lease is over;
                         "limit <which> <figure>" before "exit" if the tree exceeded a limit and was killed
"""

# Without pathlib, which would double the start-up time.
from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time

# Started by its path and without site-packages, so the package is found from there.
sys.path.append(__file__.rpartition("/askback/")[0])

from askback.process.guardian.control_group import remove_all
from askback.process.guardian.descendants import descendants, freeze_and_kill
from askback.process.guardian.keeper import IGNORED, RETRY_SEC, keep
from askback.process.guardian.messages import (
    SET_CHILD_SUBREAPER,
    ChildWatcher,
    Lease,
    failed,
    prctl,
    receive,
    rename,
    send,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PATIENCE_SEC = 5.0
_SPARE_SEC = 0.05
"""How long nothing must happen before a keeper is forked in advance."""
_END_SEC = 2.0
"""How long a keeper may take to end its tree when the lease is over, before it is killed."""
MAX_IDLE = 8
"""How many keepers wait for another engine."""


class KeeperState:
    """What the guardian knows about one keeper."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.engine: str | None = None
        """The name of its engine; None while it is idle."""
        self.limits: str | None = None
        """The limits that it has set for its engines; None before its first one."""
        self.kill_at: float | None = None
        """When to kill it; None unless it was asked to end its engine."""

    def begin(self, engine: str, limits: str) -> None:
        self.engine, self.limits, self.kill_at = engine, limits, None


class Guardian:
    """Starts keepers until Askback ends, then waits until no process is left."""

    def __init__(self, askback: socket.socket, groups: tuple[str, str] | None) -> None:
        self._askback = askback
        self._groups = groups
        self._keepers: dict[int, KeeperState] = {}
        self._lost: list[str] = []
        self._lease = Lease()
        # The keepers read one end. The kernel closes the other one when this process ends, for whatever reason.
        self._lifeline, self._held_end = os.pipe()
        self._idle_pids, self._idle_end = os.pipe()
        self._child_watcher = ChildWatcher()

    def run(self) -> None:
        while self._listen():
            self._reap()
        self._askback.close()
        for keeper in self._keepers.values():
            # An idle keeper ends at once, another one when its engine has ended.
            keeper.channel.close()
        kill_at = time.monotonic() + _PATIENCE_SEC
        while not self._reap():
            if time.monotonic() > kill_at:
                for pid in self._keepers:
                    os.kill(pid, signal.SIGKILL)
            self._child_watcher.wait((), RETRY_SEC)
        if self._groups is not None:
            remove_all(self._groups[0])

    def _listen(self) -> bool:
        """Wait for a packet and handle it. False once Askback has ended."""
        spare = any(keeper.engine is None for keeper in self._keepers.values())
        began = time.monotonic()
        ready = self._child_watcher.wait((self._askback.fileno(), self._idle_pids), self._pause(spare=spare))
        if self._idle_pids in ready:
            self._record_idle()
        if self._askback.fileno() not in ready:
            # Only now: a packet that was not read yet may extend the lease.
            self._end_expired()
            if not ready and not spare and time.monotonic() - began >= _SPARE_SEC:
                self._fork_spare()
            return True
        packet, files, complete = receive(self._askback)
        if packet:
            self._obey(packet.decode().split(), files, complete=complete)
        return bool(packet)

    def _pause(self, *, spare: bool) -> float | None:
        busy = [keeper for keeper in self._keepers.values() if keeper.engine is not None]
        if self._lost or any(keeper.kill_at is not None for keeper in busy):
            return RETRY_SEC
        waits = (None if spare else _SPARE_SEC, self._lease.wait_sec if busy else None)
        return min((seconds for seconds in waits if seconds is not None), default=None)

    def _end_expired(self) -> None:
        """End every engine if the lease is over. A keeper that does not do so is killed, and then we do."""
        now, over = time.monotonic(), self._lease.is_over
        for pid, keeper in self._keepers.items():
            if keeper.engine is None:
                continue
            if keeper.kill_at is not None and now >= keeper.kill_at:
                os.kill(pid, signal.SIGKILL)
            elif keeper.kill_at is None and over:
                keeper.kill_at = now + _END_SEC
                send(keeper.channel.fileno(), "end")

    def _obey(self, words: list[str], files: list[int], *, complete: bool) -> None:
        word, name, *limits = words
        if word == "kill":
            for pid in [pid for pid, keeper in self._keepers.items() if keeper.engine == name]:
                os.kill(pid, signal.SIGKILL)
        elif word == "lease":
            self._lease.extend(float(name))
        elif self._lease.is_over:
            send(self._askback.fileno(), f"expired {name}")
        elif complete:
            self._spawn(name, limits[0], files)
        else:
            send(self._askback.fileno(), f"refused {name}")
        for file in files:
            os.close(file)

    def _record_idle(self) -> None:
        pids = os.read(self._idle_pids, 4096)
        for place in range(0, len(pids), 4):
            keeper = self._keepers.get(int.from_bytes(pids[place : place + 4], "little"))
            if keeper is not None:
                keeper.engine = None
                if sum(each.engine is None for each in self._keepers.values()) > MAX_IDLE:
                    keeper.channel.close()

    def _spawn(self, name: str, limits: str, files: list[int]) -> None:
        keeper = self._hand_over(limits, files)
        if keeper is None:
            try:
                keeper = self._fork(files)
            except OSError as error:
                send(files[1], failed(error))
                return
        keeper.begin(name, limits)

    def _hand_over(self, limits: str, files: list[int]) -> KeeperState | None:
        """Pass an engine to an idle keeper, preferably one that has kept an engine before. None if there is none."""
        for fit in (limits, None):
            for keeper in self._keepers.values():
                if keeper.engine is None and keeper.limits == fit and keeper.channel.fileno() >= 0:
                    try:
                        socket.send_fds(keeper.channel, [b"keep"], files)
                    except OSError:
                        # It was killed.
                        keeper.channel.close()
                    else:
                        return keeper
        return None

    def _fork(self, files: list[int]) -> KeeperState:
        """A new keeper for the engine of these files; without files, for any later one."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            self._become_keeper(theirs, files)
        theirs.close()
        keeper = self._keepers[pid] = KeeperState(ours)
        return keeper

    def _fork_spare(self) -> None:
        """Fork a keeper while nobody waits for it: this takes longer than everything else that a start needs."""
        try:
            self._fork([])
        except OSError:
            # The machine is short of something. An engine that needs a keeper reports it.
            return

    def _become_keeper(self, channel: socket.socket, files: list[int]) -> NoReturn:
        code = 1
        try:
            os.close(self._held_end)
            os.close(self._idle_pids)
            self._askback.close()
            self._child_watcher.close()
            for other in self._keepers.values():
                other.channel.close()
            prctl(SET_CHILD_SUBREAPER, 1)
            rename(b"askback-idle")
            try:
                keep(channel, self._lifeline, self._idle_end, self._groups, files)
            except OSError as error:
                if files:
                    send(files[1], failed(error))
                raise
            code = 0
        finally:
            os._exit(code)

    def _reap(self) -> bool:
        """Reap children, and end the orphans of killed keepers. True once there are no children."""
        childless = False
        while not childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                childless = True
                continue
            if pid == 0:
                break
            if (keeper := self._keepers.pop(pid, None)) is not None:
                keeper.channel.close()
                if status != 0 and keeper.engine is not None:
                    self._lost.append(keeper.engine)
        if self._lost:
            self._end_orphans()
        return childless

    def _end_orphans(self) -> None:
        """A child that is not a keeper has lost its keeper."""
        if freeze_and_kill(lambda: descendants(os.getpid(), exclude=self._keepers)):
            return
        for name in self._lost:
            send(self._askback.fileno(), f"lost {name}")
        self._lost.clear()


def main() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl(SET_CHILD_SUBREAPER, 1)
    rename(b"askback-guard")
    askback = socket.socket(fileno=int(sys.argv[1]))
    askback.set_inheritable(False)
    groups = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 3 else None
    guardian = Guardian(askback, groups)
    gc.disable()
    gc.freeze()
    guardian.run()


if __name__ == "__main__":
    main()
