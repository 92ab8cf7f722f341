"""A port for one test alone: nobody else on this machine is given it, also not while no server listens there."""

from __future__ import annotations

import os
import socket
import sys
import weakref
from contextlib import suppress


class HeldPort:
    """Bound for as long as somebody has this. Nobody listens yet: on Linux, a server that reuses addresses still can."""

    def __init__(self, number: int = 0) -> None:
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", number))
            self.number = int(held.getsockname()[1])
            if sys.platform == "linux":
                weakref.finalize(self, os.close, held.detach())
        # A server takes the port on the other loopback address, too.
        with suppress(OSError), socket.socket(socket.AF_INET6) as twin:
            twin.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            twin.bind(("::1", self.number))
            if sys.platform == "linux":
                weakref.finalize(self, os.close, twin.detach())
