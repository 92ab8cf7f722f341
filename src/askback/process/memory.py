"""Memory of our own process. Linux with glibc alone; elsewhere nothing is done."""

from __future__ import annotations

import ctypes
import sys

_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """Have large blocks mapped one by one, so that they go back to the system when they are freed.

    By itself glibc raises the size from which it does so to 32 MB, and keeps what a few large requests took.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
