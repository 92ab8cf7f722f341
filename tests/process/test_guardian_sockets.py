"""Sockets between Askback, the guardian and its keepers: an error of the connection is not the end of its packets.

If one side closes a socket before it has read everything, Linux reports a reset to the other side, ahead of the packets
that this side has sent before.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostile import children, is_alive, within

from askback.process.child import OutputLimits, SpawnRequest
from askback.process.guardian import messages
from askback.process.guardian.client import Guardian, _GuardedProcess, _request_file, available

pytestmark = pytest.mark.skipif(not available(), reason="no guardian on this system")

LIMITS = OutputLimits(line_bytes=1 << 16, turn_bytes=1 << 16)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


READERS: dict[str, Callable[[socket.socket], bytes | None]] = {
    "receive_packet": lambda end: messages.receive_packet(end),
    "receive": lambda end: messages.receive(end)[0],
    "read": lambda end: messages.read(end.fileno()),
}


@pytest.mark.parametrize("reader", READERS)
def test_packets_that_were_sent_before_a_reset_are_read_first(
    pair: tuple[socket.socket, socket.socket], reader: str
) -> None:
    ours, theirs = pair
    ours.send(b"never read")
    theirs.send(b"exit 0")
    theirs.send(b"gone")
    theirs.close()
    assert [READERS[reader](ours) for _ in range(4)] == [b"exit 0", b"gone", b"", b""]


def test_a_socket_without_a_packet_has_not_ended(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    ours.setblocking(False)
    assert messages.receive_packet(ours) is None


def test_the_end_of_a_tree_is_known_at_once_though_its_keeper_never_read_the_request() -> None:
    """The engine exits by itself while it is asked to end: its keeper reports that, and closes its socket."""

    async def main() -> None:
        ours, keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = _GuardedProcess("1", ours, Guardian())
        ending = asyncio.create_task(process.end("", grace_sec=600, lock=None))
        while not await asyncio.to_thread(_has_packet, keeper):
            await asyncio.sleep(0)
        keeper.send(b"exit 7")
        keeper.send(b"gone")
        keeper.close()
        async with asyncio.timeout(60):
            assert await ending
        assert process.exit.result() == 7
        process.close()

    asyncio.run(main())


def test_what_a_killed_guardian_reported_is_known_before_the_next_one_starts(tmp_path: Path) -> None:
    async def main() -> None:
        guardian = Guardian()
        try:
            async with asyncio.timeout(120):
                wanted = SpawnRequest(argv=("/bin/sleep", "600"), env={}, cwd=tmp_path, limits=LIMITS)
                first = await guardian.start(wanted)
                (keeper,) = [pid for pid in children(guardian.pid or 0) if comm(pid) == "askback-keeper"]
                os.kill(keeper, signal.SIGKILL)
                # Our own loop is busy until the guardian has reported the end of the tree, and was killed.
                assert within(60, lambda: not is_alive(first.identity.pid))
                assert within(60, lambda: _has_packet(guardian._socket))
                os.kill(guardian.pid or 0, signal.SIGKILL)
                assert within(60, lambda: not is_alive(guardian.pid or 0))
                second = await guardian.start(wanted)
                assert first.gone
                for child in (first, second):
                    assert await child.end("", grace_sec=0)
                    child.close()
        finally:
            await guardian.close()

    asyncio.run(main())


LAST_ENGINE = """
import os, socket, sys
from askback.process.guardian import keeper
keeper.MAX_ENGINES = 2
channel, lifeline, idle = map(int, sys.argv[1:])
keeper.keep(socket.socket(fileno=channel), lifeline, idle, None, [])
"""


def test_a_keeper_that_is_replaced_does_not_offer_itself_for_another_engine(tmp_path: Path) -> None:
    """An engine that is handed to a keeper which is about to exit would never start."""
    ours, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    (lifeline, held), (read, idle) = os.pipe(), os.pipe()
    given = (channel.fileno(), lifeline, idle)
    argv = [sys.executable, "-c", LAST_ENGINE, *map(str, given)]
    with ours, subprocess.Popen(argv, pass_fds=given) as keeper:
        for each in given:
            os.close(each)
        channel.detach()
        for _ in range(2):
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            wanted = SpawnRequest(argv=("/bin/true",), env={}, cwd=tmp_path, limits=LIMITS)
            with control, theirs, Path("/dev/null").open("r+") as null, _request_file(wanted, wrapped=False) as request:
                socket.send_fds(ours, [b"keep"], [request, theirs.fileno(), *[null.fileno()] * 3])
                theirs.close()
                control.settimeout(60)
                while control.recv(1 << 16):
                    pass
        assert keeper.wait(60) == 0
        with os.fdopen(read, "rb") as offers:
            assert offers.read() == keeper.pid.to_bytes(4, "little")
    os.close(held)


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _has_packet(connected: socket.socket | None) -> bool:
    return connected is not None and bool(select.select([connected], [], [], 0)[0])
