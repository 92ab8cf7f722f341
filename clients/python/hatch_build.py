"""Which files of Askback the distribution `askback-client` consists of: the client, and what it imports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = ("__init__.py", "py.typed", "client", "core", "text", "wire")
NEEDS_THE_SERVER = {"text/yaml_text.py"}
"""Files of these parts that import what only the server depends on."""


class ClientFiles(BuildHookInterface[Any]):
    """Adds them from the clone, or from `src` where this is an unpacked source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        unpacked = root / "src/askback"
        source = unpacked if unpacked.is_dir() else root.parent.parent / "src/askback"
        prefix = "src/askback" if self.target_name == "sdist" else "askback"
        for name in PARTS:
            for path in _files(source / name):
                inner = path.relative_to(source).as_posix()
                if inner not in NEEDS_THE_SERVER:
                    build_data["force_include"][str(path)] = f"{prefix}/{inner}"


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]
