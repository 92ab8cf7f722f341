"""How the user can start this program again, for commands that we suggest."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """`askback`, or what to type where it is not on the PATH."""
    started = Path(sys.argv[0])
    if "archive-v0" in Path(sys.prefix).parts:
        # An environment of uvx, which is on the PATH of this process only.
        return "uvx askback"
    if started.stem != "askback":
        return f"{shlex.quote(sys.executable)} -m askback"
    found = shutil.which("askback")
    on_path = found is not None and Path(found).resolve() == started.resolve()
    return "askback" if on_path else shlex.quote(sys.argv[0])
