"""Programs of others that speak MCP and ACP, and the Node and Python that they need. `make test` installs them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

_BIN = Path(__file__).resolve().parent.parent / "peers" / "node_modules" / ".bin"

_FASTMCP = _BIN.parents[3] / ".venv" / "fastmcp"


def peer(name: str) -> str:
    """The program, or a skipped test that says what is missing."""
    for program in (name, "node"):
        if not (_BIN / program).exists():
            pytest.skip(f"{program} of tests/peers is not installed; run `npm install --no-save --prefix tests/peers`")
    return str(_BIN / name)


def fastmcp_python() -> str:
    """The interpreter that has the client of FastMCP, or a skipped test."""
    if not (_FASTMCP / ".installed").exists():
        pytest.skip("the client of FastMCP is not installed; run `make .venv/fastmcp/.installed`")
    return str(_FASTMCP / "bin/python")


def peer_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment in which a peer finds its Node first."""
    env = dict(os.environ if env is None else env)
    return {**env, "PATH": f"{_BIN}{os.pathsep}{env.get('PATH', os.defpath)}"}
