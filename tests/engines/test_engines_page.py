"""docs/explanation/engines.md says of every engine what the engine says of itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from askback.engines import registry
from askback.engines.acp import AcpEngine

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/engines.md").read_text()
ROWS = {row.split("`")[1]: row for row in PAGE.partition("\n## ")[0].splitlines() if row.startswith("| `")}
SECTIONS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}


def test_every_engine_has_a_row_and_a_section() -> None:
    written = {name for name, engine in registry.engines().items() if not isinstance(engine, AcpEngine)}
    assert set(ROWS) == written
    assert set(ROWS) <= set(SECTIONS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_tells_how_to_install_and_to_sign_in(name: str) -> None:
    engine = registry.get(name)
    for told in (engine.install, engine.sign_in):
        commands = re.findall(r"(?<=with: )[^,]+|engines\.\w+\.command|[A-Z]{4,}_[A-Z_]+", told)
        assert [command for command in commands if command not in ROWS[name]] == []


@pytest.mark.parametrize("name", ROWS)
def test_a_section_names_the_files_of_the_sign_in(name: str) -> None:
    assert [path for path in registry.get(name).credentials if f"`{path}`" not in SECTIONS[name]] == []


def test_the_versions_are_those_that_are_tried() -> None:
    pinned = json.loads((ROOT / "tests/real/package.json").read_text())["dependencies"]
    for package, version in pinned.items():
        assert [row for row in ROWS.values() if f"{package}`" in row and f"| {version} |" in row], package
