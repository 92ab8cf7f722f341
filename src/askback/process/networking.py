"""What a sandboxed program can connect to: the options of bubblewrap, and the program that makes a network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from askback.process.confinement import Network
from askback.process.visibility import resolved

PROGRAM = "slirp4netns"
RESOLVER = Path("/etc/resolv.conf")
_HELPER = Path(__file__).with_name("network_program.py")
_RESOLVER_FILE = "askback:resolver"
"""Replaced by `network_program.py` with the number of an open file."""


def program() -> str | None:
    return shutil.which(PROGRAM)


def around(network: Network) -> tuple[str, ...]:
    """What is started instead of the sandbox, and starts it."""
    if network is not Network.NO_LOOPBACK:
        return ()
    return (sys.executable, "-I", "-S", str(_HELPER), program() or PROGRAM, _RESOLVER_FILE)


def options(network: Network) -> tuple[str, ...]:
    return ("--unshare-net",) if network is Network.NONE else ()


def resolver(network: Network) -> tuple[str, ...]:
    """Names are looked up by the program that makes the network: the host's own resolver may be on its loopback."""
    real = resolved(RESOLVER)
    if network is not Network.NO_LOOPBACK or not real.is_file():
        return ()
    return ("--ro-bind-data", _RESOLVER_FILE, str(real))
