"""Keeping our own program's environment and memory from others of the same user, engines among them. Linux alone."""

from __future__ import annotations

import ctypes
import sys

_SET_DUMPABLE = 4


def close_to_others() -> None:
    """From now on nobody of the same user may read this process, nor what it was started with.

    A program that is started from here is readable again; only what it is given can be read there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
