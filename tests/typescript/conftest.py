"""What the tests of the TypeScript client share: its compiled form, and a browser."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from client_programs import CLIENT, COMPILER, ran


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    return found or pytest.skip("there is no Node here: node is not on PATH")


@pytest.fixture(scope="session")
def compiled(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client and its tests as JavaScript."""
    if not COMPILER.exists():
        pytest.skip("the TypeScript compiler is not installed: npm ci --prefix clients/typescript")
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "package.json").write_text('{"type": "module"}')
    ran(node, str(COMPILER), "-p", str(CLIENT / "tsconfig.test.json"), "--outDir", str(folder / "build"))
    return folder / "build"


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    return found or pytest.skip("there is no browser here: chromium is not on PATH")
