"""Skill folders for the tests: a valid one, and ways to break it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOOD = "---\nname: good-skill\ndescription: Does good things.\n---\n\nDo the good thing.\n"


def make_skill(
    parent: Path,
    name: str = "good-skill",
    *,
    text: str | bytes | None = None,
    runner: Any = None,
    files: dict[str, str | bytes] | None = None,
    **schemas: Any,
) -> Path:
    """A folder `name` in `parent`; `schemas` by `input`, `parameter` and `output`."""
    folder = parent / name
    folder.mkdir(parents=True)
    _write(folder / "SKILL.md", text if text is not None else GOOD.replace("good-skill", name))
    if runner is not None:
        _write(folder / "assets/runner.json", runner if isinstance(runner, str | bytes) else json.dumps(runner))
    for key, schema in schemas.items():
        content = schema if isinstance(schema, str | bytes) else json.dumps(schema)
        _write(folder / f"assets/{key}.schema.json", content)
    for path, content in (files or {}).items():
        _write(folder / path, content)
    return folder


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
