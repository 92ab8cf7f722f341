"""What needs the MCP SDK is known without loading it, and a command of MCP loads no engine, store or worker."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(program: str) -> set[str]:
    code = f"import sys\n{program}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_whether_the_sdk_is_there_is_known_without_loading_it() -> None:
    loaded = loaded_by("import askback.mcp\nassert not askback.mcp.missing_package()")
    assert not {"mcp", "mcp_types"} & loaded


def test_the_server_on_stdio_is_a_client_and_loads_no_server() -> None:
    loaded = loaded_by("import askback.cli.commands.mcp\nimport askback.mcp.stdio")
    assert not {"askback.app", "askback.worker", "askback.store", "askback.process.child"} & loaded
