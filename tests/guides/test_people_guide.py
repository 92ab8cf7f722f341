"""The guide about people works as it is printed: its commands and its program are run."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from support.data_folder import World
from support.guide import GUIDES, blocks
from support.program import askback
from support.server import Server

PAGE = "people.md"


@pytest.mark.long
def test_the_guide_to_people_works_as_printed(tmp_path: Path) -> None:
    world = World(tmp_path)
    (commands,) = [block.text for block in blocks(PAGE) if block.language == "sh"]
    (program,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    with Server(world) as server:
        for line in commands.splitlines():
            assert askback(world, *line.split()[1:]).code == 0
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, PAGE, "exec"), {"url": server.url, "token": server.token})
    lines = printed.getvalue().splitlines()
    assert lines[0].startswith("askback_")
    assert "/enter?invitation=" in lines[1]
    assert [line.split()[0] for line in lines[2:]] == ["main", "anna", "ben"]


def test_the_guide_names_what_the_page_shows() -> None:
    text = (GUIDES / PAGE).read_text()
    english = (GUIDES.parents[1] / "src/askback/web/translations/en/people.json").read_text()
    for key in ("answer", "read", "submit", "admin"):
        found = re.search(rf'"people\.may\.{key}": "([^"]+)"', english)
        assert found is not None
        assert f"| {found[1]} | `{key}` |" in text
