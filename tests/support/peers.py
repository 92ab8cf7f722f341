"""Programs of others that speak MCP and ACP, and the Node that they need. Installed in tests/peers by `make test`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

_BIN = Path(__file__).resolve().parent.parent / "peers" / "node_modules" / ".bin"


def peer(name: str) -> str:
    """The program, or a skipped test that says what is missing."""
    for program in (name, "node"):
        if not (_BIN / program).exists():
            pytest.skip(f"{program} of tests/peers is not installed; run `npm install --no-save --prefix tests/peers`")
    return str(_BIN / name)


def peer_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which a peer finds its Node first."""
    env = dict(os.environ if env is None else env)
    return {**env, "PATH": f"{_BIN}{os.pathsep}{env.get('PATH', os.defpath)}"}
